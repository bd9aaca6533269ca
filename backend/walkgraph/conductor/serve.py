"""Runs a deployment from `spec.json` in its folder: opens the sockets, builds the core, and runs the loop."""

import secrets
from contextlib import closing
from pathlib import Path

from walkgraph.conductor.core import Conductor
from walkgraph.conductor.itinerary_cache import ItineraryCache
from walkgraph.conductor.loop import ConductorLoop
from walkgraph.conductor.processes import ForkLink
from walkgraph.graph import codec
from walkgraph.telemetry.emit import Buffered, Emitter, Off
from walkgraph.wire import sockets
from walkgraph.wire.fault_points import fault_points
from walkgraph.wire.spec import SERVICE_SOCKET, WORKERS_SOCKET, DeploymentSpec, read_spec

SEED_BITS = 53
"""Drawn seeds fit a JSON number in every language."""
_LAST_WORDS = 1000
"""Milliseconds for unsent messages at exit."""


def serve(directory: Path, fork_server: Path) -> None:
    """`fork_server`: the socket of the process that workers are forked from."""
    spec = read_spec(directory)
    name = spec.telemetry_name or spec.name
    itineraries = ItineraryCache(codec.load(spec.graph), spec.plan)
    core = Conductor(itineraries, spec.limits, lambda: secrets.randbits(SEED_BITS), name)
    faults = fault_points(spec.fault, directory, "conductor")
    context = sockets.context(faults)
    service = sockets.pair(context, sockets.address(directory, SERVICE_SOCKET))
    workers = sockets.router(context, sockets.address(directory, WORKERS_SOCKET))
    with closing(ForkLink(fork_server)) as forking:
        ConductorLoop(directory, core, service, workers, _emitter(spec, context), forking, faults=faults).run()
    context.destroy(linger=_LAST_WORDS)


def _emitter(spec: DeploymentSpec, context: sockets.Context) -> Emitter:
    if spec.telemetry_address is None:
        return Off()
    socket = sockets.feed(context, spec.telemetry_address)
    return Buffered(spec.telemetry_name or spec.name, "conductor", spec.telemetry_level, sockets.offer(socket))
