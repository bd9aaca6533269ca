"""Runs a deployment from `spec.json` in its folder: opens the sockets, builds the core, and runs the loop."""

import secrets
from contextlib import closing
from pathlib import Path

from walkgraph.conductor.core import Conductor
from walkgraph.conductor.itinerary_cache import ItineraryCache
from walkgraph.conductor.loop import ConductorLoop, Connections
from walkgraph.conductor.processes import ForkLink
from walkgraph.conductor.telemetry_relay import TelemetryRelay
from walkgraph.graph import codec
from walkgraph.telemetry.emit import Buffered, Emitter, Off
from walkgraph.wire import sockets
from walkgraph.wire.fault_points import fault_points
from walkgraph.wire.processes.host_network import Ports
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
    context = sockets.context(faults, spec.network and spec.network.keys)
    service = sockets.pair(context, sockets.address(directory, SERVICE_SOCKET))
    workers = sockets.router(context, sockets.address(directory, WORKERS_SOCKET))
    ports, relay = _open_to_hosts(spec, context, workers)
    far = {one.rank: ports for one in spec.plan.ranks if one.host and ports is not None}
    connections = Connections(service, workers, relay, far)
    with closing(ForkLink(fork_server, far)) as forking:
        emitter = _emitter(spec, context)
        ConductorLoop(directory, core, connections, emitter, forking, faults=faults).run()
    context.destroy(linger=_LAST_WORDS)


def _open_to_hosts(
    spec: DeploymentSpec, context: sockets.Context, workers: sockets.Socket
) -> tuple[Ports | None, TelemetryRelay | None]:
    """Let ranks on other hosts connect: to `workers`, and to what passes their telemetry on, if anybody reads it. None:
    there is no such rank."""
    if spec.network is None:
        return None, None
    here = spec.network.address("")
    if spec.telemetry_address is None:
        return Ports(workers=sockets.listen(workers, here), telemetry=0), None
    source = sockets.unbound_pull(context)
    ports = Ports(workers=sockets.listen(workers, here), telemetry=sockets.listen(source, here))
    return ports, TelemetryRelay(source, sockets.feed(context, spec.telemetry_address))


def _emitter(spec: DeploymentSpec, context: sockets.Context) -> Emitter:
    if spec.telemetry_address is None:
        return Off()
    socket = sockets.feed(context, spec.telemetry_address)
    return Buffered(spec.telemetry_name or spec.name, "conductor", spec.telemetry_level, sockets.offer(socket))
