"""The worker's side of loops that span devices: carries messages between its engine and its peers' engines.

These messages go ahead of all others, because a device may be waiting for what follows from them.
"""

import logging

import zmq

from walkgraph.abi.calls import CallFailed
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.loop_peers import PeerMemory
from walkgraph.engine.loops.scheduler import LoopScheduler
from walkgraph.ids import Rank
from walkgraph.placement.capacity.needs import ROOM_BYTES
from walkgraph.placement.compiler.loop_decisions import spanning_ranks
from walkgraph.placement.tables import Plan
from walkgraph.wire.spanning import BetweenParts
from walkgraph.worker.io.carrier import Carrier
from walkgraph.worker.io.links import Links

_log = logging.getLogger(__name__)

_PEEK_MS = 1
"""Milliseconds to wait for a message while the device works; then its progress is checked again."""


class Parts:
    """Implements `engine.loops.loop_peers.PeerWorker`."""

    def __init__(self, resident: LoopScheduler, links: Links, carrier: Carrier) -> None:
        self._resident, self._links, self._carrier = resident, links, carrier
        self._quiet = False

    # ── from the engine ──

    def address(self, rank: Rank) -> int:
        found = self._carrier.address(rank)
        if found is None:
            raise CallFailed(f"the GPU of rank {rank} can't be reached from that of a rank it shares a loop with")
        return found

    def send(self, to: Rank, word: BetweenParts) -> None:
        self._links.urge(to, word)

    # ── from peers ──

    def take(self, rank: Rank, message: BetweenParts) -> None:
        self._quiet = False
        self._resident.receive(rank, message)

    def gone(self, rank: Rank) -> None:
        """Handle the death of a peer. Work that touches its memory is over when this returns."""
        self._resident.gone(rank)

    # ── the worker's loop ──

    def stepped(self, *, quiet: bool) -> None:
        """Note that the engine has stepped. `quiet`: the step returned no events."""
        self._quiet = quiet

    def wait(self, poller: zmq.Poller) -> None:
        """Wait briefly for a message if only the device can make progress, and its work may need peers."""
        if self._quiet and self._resident.waits_for_peers:
            poller.poll(_PEEK_MS)


def spanning_parts(plan: Plan, rank: Rank, engine: Engine, links: Links, carrier: Carrier) -> Parts | None:
    """The parts of a rank, if the plan has loops that span it and others."""
    if rank not in spanning_ranks(plan):
        return None
    parts = Parts(engine.loops, links, carrier)
    room = carrier.reserve(ROOM_BYTES)
    if room is None:
        _log.warning("rank %d shares no device memory: loops that span devices will fail here", rank)
    else:
        engine.connect_peers(PeerMemory(*room), parts)
    return parts
