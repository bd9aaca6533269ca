"""A worker's connections: to the conductor (`reports`) and to each peer, with the tensors that go between them.

What leaves for each of them is a queue of its own, in order. A message waits there while its tensors find no room in
the transport or the socket takes no more; what is queued for a run is dropped when the run ends, what is queued for a
peer when that peer is started anew. How much can wait is bounded by the streams' credits and the runs that are
admitted. What is for a peer that isn't known yet is held within bounds of its own.

    set_peers ──> Greet ──> peer ──> Greeted ──> Connected ──> conductor

The conductor starts a run once all its ranks have told it that they are connected.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

import zmq

from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank
from walkgraph.telemetry.places import Places
from walkgraph.transports.base import BadTicket
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.worker.events import Arrived, Send
from walkgraph.worker.io.carrier import CarrierLike
from walkgraph.worker.io.intake import Intake
from walkgraph.worker.io.outbox import Outbox, OutgoingMessage
from walkgraph.worker.io.peers import SENDER, Peers
from walkgraph.worker.io.pending import HeldMessages
from walkgraph.worker.io.reports import Reports

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FromPart:
    """A peer's message about a loop that spans devices."""

    rank: Rank
    message: m.BetweenParts


class Links:
    def __init__(
        self,
        rank: Rank,
        start: int,
        conductor: sockets.Socket,
        inbox: sockets.Socket,
        context: sockets.Context,
        transport: CarrierLike,
        places: Places | None = None,
        poller: zmq.Poller | None = None,
    ) -> None:
        """`places`: names of the plan's edges. `poller`: an empty one, to wait on these sockets."""
        self.conductor = Reports(conductor)
        self.from_conductor = sockets.Reader(conductor, codec.to_worker)
        self.inbox = inbox
        self.peers = Peers(rank)
        self.held = HeldMessages(rank, places or Places())
        """What is for peers that aren't known yet."""
        self._inbox = sockets.Reader(inbox, codec.between_workers, frames=2)
        self._rank, self._head = rank, (SENDER.pack(rank, start),)
        self._context, self._transport = context, transport
        self._intake = Intake(transport)
        self._out: dict[Rank, Outbox] = {}
        self._unreached: dict[Rank, m.Peer] = {}
        """Peers that could not be connected to."""
        self._left: list[Any] = []
        """Notes of messages that have left."""
        self.poller = zmq.Poller() if poller is None else poller
        for socket in (conductor, inbox):
            self.poller.register(socket, zmq.POLLIN)

    @property
    def rejected(self) -> int:
        return self.from_conductor.rejected + self._inbox.rejected

    @property
    def waiting(self) -> int:
        """Messages for peers that have not left."""
        return len(self.held) + sum(map(len, self._out.values()))

    @property
    def tickets_out(self) -> int:
        return self._transport.out

    def set_peers(self, peers: dict[Rank, m.Peer]) -> None:
        """Connect to every peer that is new or was started anew, and forget what was under way to its predecessor."""
        for rank in self.peers.replaced(peers):
            self._part(rank)
        self._unreached.clear()
        for rank, peer in peers.items():
            if rank == self._rank or rank in self.peers.known:
                continue
            try:
                self._transport.connect(rank, peer)
            except BadTicket as error:
                # It has ended meanwhile, and the conductor will name its successor; or it is tried again.
                _log.warning("rank %d can't connect to rank %d: %s", self._rank, rank, error)
                self._unreached[rank] = peer
                continue
            self.peers.known[rank] = peer
            socket = sockets.push(self._context, peer.address)
            outbox = self._out[rank] = Outbox(socket, rank, self._head, self._transport, self._left)
            for name in self._transport.opened(rank):
                outbox.send(OutgoingMessage(m.Opened(transport=name)))
            outbox.send(OutgoingMessage(m.Greet()))
            for waiting in self.held.take(rank):
                if isinstance(waiting.message, m.BetweenParts):
                    outbox.urge(waiting.message)
                else:
                    outbox.send(waiting)

    def reach_again(self) -> None:
        """Try once more to connect to the peers of which that failed."""
        if self._unreached:
            self.set_peers({**self.peers.known, **self._unreached})

    def send(self, send: Send, note: Any = None) -> None:
        """Queue a message to a peer. `note` is handed to `departures` once the message has left."""
        waiting = OutgoingMessage(send.message, send.value, send.transport != "inline", note)
        outbox = self._out.get(send.rank)
        if outbox is not None:
            outbox.send(waiting)
        else:
            self._hold(send.rank, waiting, send.walk)

    def urge(self, rank: Rank, message: m.BetweenParts) -> None:
        """As `send`, before all that waits."""
        outbox = self._out.get(rank)
        if outbox is not None:
            outbox.urge(message)
        else:
            self._hold(rank, OutgoingMessage(message))

    def departures(self) -> list[Any]:
        """Notes of the messages that have left since the last call."""
        left = self._left[:]
        self._left.clear()
        return left

    def flush(self) -> None:
        """To the peers."""
        for outbox in self._out.values():
            outbox.flush()

    def wait(self, seconds: float) -> None:
        """For a message, or for a socket to take what it didn't take before."""
        if self.from_conductor.waiting or self._inbox.waiting:
            return
        blocked = [outbox.socket for outbox in (self.conductor, *self._out.values()) if outbox.blocked]
        for socket in blocked:
            self.poller.modify(socket, zmq.POLLIN | zmq.POLLOUT if socket in self.poller else zmq.POLLOUT)
        self.poller.poll(ceil(1000 * seconds))
        for socket in blocked:
            if socket is self.conductor.socket:
                self.poller.modify(socket, zmq.POLLIN)
            else:
                self.poller.unregister(socket)

    @property
    def copying(self) -> bool:
        """Whether there will be something to send or to free without a message coming: ask again soon."""
        return self._transport.copying

    def sends(self, run: str) -> bool:
        """Something of a run waits for a peer that is known."""
        return any(outbox.sends(run) for outbox in self._out.values())

    def forget(self, run: str) -> None:
        self.held.forget(run)
        for outbox in self._out.values():
            outbox.forget(run)

    def arrivals(self) -> Iterator[Arrived | FromPart | tuple[str, ErrorInfo]]:
        """What peers have sent, unpacked; (run, error) for a value that could not be read."""
        before = [self.peers.strangers.popleft() for _ in range(len(self.peers.strangers))]
        for sender, message in (*before, *self._inbox.drain()):
            rank = self.peers.sender(sender)
            if rank is None:
                self.peers.keep(sender, message)
            elif isinstance(message, m.Freed):
                self._freed(message.ticket, rank)
            elif isinstance(message, m.Opened):
                self._transport.accept(rank, message.transport)
            elif isinstance(message, m.Greet):
                self._out[rank].send(OutgoingMessage(m.Greeted()))
            elif isinstance(message, m.Greeted):
                self.conductor.send(self.peers.greeted(rank))
            elif isinstance(message, m.BetweenParts):
                yield FromPart(rank, message)
            else:
                yield self._intake.unpack(rank, message)
        for rank, ticket, failed in self._intake.copied():
            if failed is not None:
                yield failed
            # Behind messages that wait for room it could wait for a peer that waits for this very room.
            self._out[rank].urge(m.Freed(ticket=ticket))

    def failures(self) -> Iterator[tuple[str, ErrorInfo]]:
        """(run, error) for values that could not be sent."""
        for queue in (self.conductor, self.held, *self._out.values()):
            for message, error in queue.failed:
                yield str(getattr(message, "run", "")), error.info()
            queue.failed.clear()

    def close(self) -> None:
        for rank in list(self.peers.known):
            self._part(rank)
        self._transport.close()

    def _hold(self, rank: Rank, waiting: OutgoingMessage, walk: str = "") -> None:
        """What is for a peer that is gone is dropped: the conductor is ending the runs that it had a part in."""
        if not self.peers.gone(rank):
            self.held.keep(rank, waiting, walk)

    def _part(self, rank: Rank) -> None:
        self.peers.remove(rank)
        self._intake.forget(rank)
        self._transport.sweep(rank)
        self._transport.disconnect(rank)
        outbox = self._out.pop(rank, None)
        if outbox is not None:
            outbox.socket.close(linger=0)

    def _freed(self, ticket: int, by: Rank) -> None:
        try:
            self._transport.free(ticket, by)
        except BadTicket:
            self.peers.stale += 1
