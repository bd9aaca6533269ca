"""A worker's connections: to the conductor (`reports`) and to each peer, with the tensors that travel between them.

Each has an ordered queue of outgoing messages. A message waits there while the transport has no space for its tensors,
or the socket takes no more. When a run ends, its messages are dropped; when a peer is restarted, those for that peer.
Queues are bounded by the credits of streams and the number of admitted runs. Messages for peers that aren't known yet
are held within bounds of their own.

    set_peers ──> Greet ──> peer ──> Greeted ──> Connected ──> conductor

The conductor starts a run once all its ranks have reported that they are connected. A connection between hosts that is
lost takes messages with it, and is not used again: the conductor hears of it and replaces the peer, and a rank that has
lost its conductor stops.
"""

import logging
from collections.abc import Iterable, Iterator
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
from walkgraph.wire.processes.posting import WorkerPost
from walkgraph.worker.events import Arrived, Send
from walkgraph.worker.io.carrier import CarrierLike
from walkgraph.worker.io.intake import Intake
from walkgraph.worker.io.orders import Orders
from walkgraph.worker.io.outbox import Outbox, OutgoingMessage
from walkgraph.worker.io.peers import SENDER, Connect, Peers
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
        connect: Connect,
        transport: CarrierLike,
        places: Places | None = None,
        post: WorkerPost | None = None,
    ) -> None:
        """`places`: names of the plan's edges. `post`: large values go to and from the service by it; None: all go
        inside their messages."""
        self.post = post
        self.conductor = Reports(conductor, None if post is None else post.sender)
        self.from_conductor = Orders(conductor)
        self.inbox = inbox
        self.peers = Peers(rank)
        self.held = HeldMessages(rank, places or Places())
        """Messages for peers that aren't known yet."""
        self._inbox = sockets.Reader(inbox, codec.between_workers, frames=2)
        self._rank, self._head = rank, (SENDER.pack(rank, start),)
        self._connect, self._transport = connect, transport
        self._intake = Intake(transport)
        self._out: dict[Rank, Outbox] = {}
        self._cuts: dict[Rank, sockets.Socket] = {}
        """Peers on other hosts -> what tells that the connection with them is lost."""
        self._unreached: dict[Rank, m.Peer] = {}
        """Peers that could not be connected to."""
        self._left: list[Any] = []
        """Notes of messages that were sent."""
        self.poller = zmq.Poller()
        for socket in (conductor, self.from_conductor.cut, inbox, self._inbox.refusals):
            if socket is not None:
                self.poller.register(socket, zmq.POLLIN)

    @property
    def rejected(self) -> int:
        letters = 0 if self.post is None else self.post.office.rejected
        return self.from_conductor.rejected + self._inbox.rejected + letters

    @property
    def waiting(self) -> int:
        """The number of messages for peers that are not sent yet."""
        return len(self.held) + sum(map(len, self._out.values()))

    @property
    def tickets_out(self) -> int:
        return self._transport.out

    def set_peers(self, peers: dict[Rank, m.Peer]) -> None:
        """Connect to every peer that is new or was restarted, and drop what was queued for its predecessor."""
        for rank in self.peers.replaced(peers):
            self._part(rank)
        self._unreached.clear()
        for rank, peer in peers.items():
            if rank == self._rank or rank in self.peers.known:
                continue
            try:
                self._transport.connect(rank, peer)
            except BadTicket as error:
                # It has died meanwhile, and the conductor will name its successor; or the connection is tried again.
                _log.warning("rank %d can't connect to rank %d: %s", self._rank, rank, error)
                self._unreached[rank] = peer
                continue
            self.peers.known[rank] = peer
            socket = self._connect(rank, peer)
            if (cut := sockets.partings(socket)) is not None:
                self._cuts[rank] = cut
                self.poller.register(cut, zmq.POLLIN)
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
        """Try again to connect to peers that could not be reached."""
        if self._unreached:
            self.set_peers({**self.peers.known, **self._unreached})

    def send(self, send: Send, note: Any = None) -> None:
        """Queue a message to a peer. `departures` returns `note` once the message was sent."""
        waiting = OutgoingMessage(send.message, send.value, send.transport != "inline", note)
        outbox = self._out.get(send.rank)
        if outbox is not None:
            outbox.send(waiting)
        else:
            self._hold(send.rank, waiting, send.walk)

    def urge(self, rank: Rank, message: m.BetweenParts) -> None:
        """Like `send`, but ahead of all queued messages."""
        outbox = self._out.get(rank)
        if outbox is not None:
            outbox.urge(message)
        else:
            self._hold(rank, OutgoingMessage(message))

    def departures(self) -> list[Any]:
        """Notes of the messages sent since the last call."""
        if not self._left:
            return []
        left = self._left[:]
        self._left.clear()
        return left

    def flush(self) -> None:
        """Send what can be sent to the peers."""
        for outbox in self._out.values():
            outbox.flush()

    def wait(self, seconds: float, wakes: int | None = None) -> bool:
        """Wait for a message, for a blocked socket to accept data, or for a file to be readable; False if none came.
        `wakes`: the file's descriptor."""
        if self.from_conductor.waiting or self._inbox.waiting:
            return True
        blocked = [outbox.socket for outbox in (self.conductor, *self._out.values()) if outbox.blocked]
        for socket in blocked:
            self.poller.modify(socket, zmq.POLLIN | zmq.POLLOUT if socket in self.poller else zmq.POLLOUT)
        if wakes is not None:
            self.poller.register(wakes, zmq.POLLIN)
        found = bool(self.poller.poll(ceil(1000 * seconds)))
        if wakes is not None:
            self.poller.unregister(wakes)
        for socket in blocked:
            if socket is self.conductor.socket:
                self.poller.modify(socket, zmq.POLLIN)
            else:
                self.poller.unregister(socket)
        return found

    @property
    def check_after(self) -> float | None:
        """Seconds after which to look again while a copy is in flight: then there will be something to send, take or
        free without a message coming. None: there is no copy."""
        return self._transport.check_after

    def messages(self) -> Iterable[m.ToWorker]:
        """Messages of the conductor that have come."""
        for rank, cut in self._cuts.items():
            if sockets.drop(cut):
                self.conductor.send(m.Parted(rank=self._rank, peer=rank, start=self.peers.known[rank].start))
        return self.from_conductor.messages()

    def sends(self, run: str) -> bool:
        """True if a message of a run waits for a known peer."""
        return any(outbox.sends(run) for outbox in self._out.values())

    def forget(self, run: str) -> None:
        self.held.forget(run)
        for outbox in self._out.values():
            outbox.forget(run)
        if self.post is not None:
            self.post.forget(run)

    def arrivals(self) -> Iterable[Arrived | FromPart | tuple[str, ErrorInfo]]:
        """Yield what peers have sent, unpacked; (run, error) for a value that can't be read."""
        strangers = self.peers.strangers
        before = [strangers.popleft() for _ in range(len(strangers))] if strangers else []
        for sender, message in (*before, *self._inbox.drain()):
            rank = self.peers.sender(sender)
            if rank is None:
                self.peers.keep(sender, message)
            elif isinstance(message, m.Freed):
                _free(self._transport, self.peers, message.ticket, rank)
            elif isinstance(message, m.Opened):
                self._transport.accept(rank, message.transport)
            elif isinstance(message, m.Greet):
                self._out[rank].send(OutgoingMessage(m.Greeted()))
            elif isinstance(message, m.Greeted):
                self.conductor.send(self.peers.greeted(rank))
            elif isinstance(message, m.BetweenParts):
                yield FromPart(rank, message)
            else:
                yield from self._intake.take(rank, message)
        if self._intake.arriving:
            yield from self._intake.arrived()
        for rank, ticket, failed in self._intake.copied() if self._intake.reading else ():
            if failed is not None:
                yield failed
            # Not queued: messages ahead of it may wait for space, and this peer for the very space that it frees.
            self._out[rank].urge(m.Freed(ticket=ticket))

    def failures(self) -> Iterator[tuple[str, ErrorInfo]]:
        """Yield (run, error) for each value that can't be sent."""
        for queue in (self.conductor, self.held, *self._out.values()):
            if queue.failed:
                failed, queue.failed = queue.failed, []
                yield from ((str(getattr(message, "run", "")), error.info()) for message, error in failed)

    def close(self) -> None:
        for rank in list(self.peers.known):
            self._part(rank)
        if self.post is not None:
            self.post.close()
        self._transport.close()

    def _hold(self, rank: Rank, waiting: OutgoingMessage, walk: str = "") -> None:
        """Hold a message for an unknown peer. Messages for a peer that has died are dropped: the conductor is ending
        the runs that it took part in."""
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
        cut = self._cuts.pop(rank, None)
        if cut is not None:
            self.poller.unregister(cut)
            cut.close(linger=0)


def _free(transport: CarrierLike, peers: Peers, ticket: int, by: Rank) -> None:
    try:
        transport.free(ticket, by)
    except BadTicket:
        peers.stale += 1
