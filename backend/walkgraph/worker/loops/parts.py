"""What a worker has to do with loops that span devices: it carries its engine's words to the peers' and back.

These go before all that waits for a socket, for a device may be waiting for what follows from them.
"""

import logging

import zmq

from walkgraph.abi.calls import CallFailed
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.loop_peers import PeerMemory
from walkgraph.engine.loops.scheduler import LoopScheduler
from walkgraph.ids import Rank
from walkgraph.placement.capacity.budget import ROOM_BYTES
from walkgraph.placement.compiler.loop_decisions import spanning_ranks
from walkgraph.placement.tables import Plan
from walkgraph.wire.spanning import BetweenParts
from walkgraph.worker.io.carrier import Carrier
from walkgraph.worker.io.links import Links

_log = logging.getLogger(__name__)

_PEEK_MS = 1
"""How long a message is waited for while the device is at work: after that it is looked what has come of this."""


class Parts:
    """Implements `engine.loops.loop_peers.PeerWorker`."""

    def __init__(self, resident: LoopScheduler, links: Links, carrier: Carrier) -> None:
        self._resident, self._links, self._carrier = resident, links, carrier
        self._quiet = False

    # ── the engine's words ──

    def address(self, rank: Rank) -> int:
        found = self._carrier.address(rank)
        if found is None:
            raise CallFailed(f"the GPU of rank {rank} can't be reached from that of a rank it shares a loop with")
        return found

    def send(self, to: Rank, word: BetweenParts) -> None:
        self._links.urge(to, word)

    # ── the peers' ──

    def take(self, rank: Rank, message: BetweenParts) -> None:
        self._quiet = False
        self._resident.receive(rank, message)

    def gone(self, rank: Rank) -> None:
        """A peer is no more; what touches its memory is over when this returns."""
        self._resident.gone(rank)

    # ── the worker's loop ──

    def stepped(self, *, quiet: bool) -> None:
        """`quiet`: nothing has come of the engine's last step."""
        self._quiet = quiet

    def wait(self, poller: zmq.Poller) -> None:
        """For a message, while nothing but the device can go on and what it does may need peers."""
        if self._quiet and self._resident.waits_for_peers:
            poller.poll(_PEEK_MS)


def spanning_parts(plan: Plan, rank: Rank, engine: Engine, links: Links, carrier: Carrier) -> Parts | None:
    """For a rank that has parts of such loops."""
    if rank not in spanning_ranks(plan):
        return None
    parts = Parts(engine.loops, links, carrier)
    room = carrier.reserve(ROOM_BYTES)
    if room is None:
        _log.warning("rank %d shares no device memory: loops that span devices will fail here", rank)
    else:
        engine.connect_peers(PeerMemory(*room), parts)
    return parts
