"""What a worker has to do with loops that span devices: it carries its engine's words to the peers' and back.

These go before all that waits for a socket, for a device may be waiting for what follows from them.
"""

import logging
from typing import TypedDict

import zmq

from walkgraph.abi.calls import CallFailed
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.loop_peers import (
    Inbox,
    InboxesAt,
    LaunchedTo,
    LeftLoop,
    PeerKey,
    PeerMemory,
    PeerWord,
    RunRests,
)
from walkgraph.engine.loops.scheduler import LoopScheduler
from walkgraph.ids import Rank, RunId
from walkgraph.placement.capacity.budget import ROOM_BYTES
from walkgraph.placement.compiler.loop_decisions import spanning_ranks
from walkgraph.placement.tables import Plan
from walkgraph.wire import messages as m
from walkgraph.wire import spanning
from walkgraph.worker.io.carrier import Carrier
from walkgraph.worker.io.links import Links

_log = logging.getLogger(__name__)

_PEEK_MS = 1
"""How long a message is waited for while the device is at work: after that it is looked what has come of this."""


class _Named(TypedDict):
    run: RunId
    step: int
    loop: str
    iteration: tuple[int, ...]


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

    def send(self, to: Rank, word: PeerWord) -> None:
        match word:
            case InboxesAt(key, inboxes):
                where = tuple(spanning.Inbox(**inbox._asdict()) for inbox in inboxes)
                self._links.urge(to, m.Inboxes(inboxes=where, **_named(key)))
            case LaunchedTo(key, upto):
                self._links.urge(to, m.Ride(upto=upto, **_named(key)))
            case RunRests(run):
                self._links.urge(to, m.Rest(run=RunId(run)))
            case LeftLoop(key):
                self._links.urge(to, m.Left(**_named(key)))

    # ── the peers' ──

    def take(self, rank: Rank, message: m.BetweenParts) -> None:
        match message:
            case m.Inboxes():
                inboxes = [Inbox(r.channel, r.data, r.number, r.start, r.nbytes) for r in message.inboxes]
                word = InboxesAt(_key(message), inboxes)
            case m.Ride():
                word = LaunchedTo(_key(message), message.upto)
            case m.Rest():
                word = RunRests(message.run)
            case m.Left():
                word = LeftLoop(_key(message))
        self._quiet = False
        self._resident.receive(rank, word)

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


def _key(message: spanning.OfLoop) -> PeerKey:
    return PeerKey(message.run, message.step, message.loop, message.iteration)


def _named(key: PeerKey) -> _Named:
    return {"run": RunId(key.run), "step": key.step, "loop": key.loop, "iteration": key.iteration}
