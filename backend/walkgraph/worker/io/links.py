"""A worker's ways out and in: the conductor (`reports`), each peer, and the tensors on their way between.

Every way out is a queue of its own, in order. A message waits there while its tensors find no room in the transport or
the socket takes no more; what is queued for a run is dropped when the run ends, what is queued for a peer when that
peer is started anew. How much can wait is bounded by the streams' credits and the runs that are admitted. What is for a
peer that isn't known yet is held within bounds of its own.

    set_peers ──> Greet ──> peer ──> Greeted ──> Connected ──> conductor

The conductor starts a run once all its ranks have told it that they are connected.
"""

import logging
import struct
from collections import deque
from collections.abc import Iterator
from math import ceil
from typing import Any, Protocol

import zmq

from walkgraph.errors import ErrorInfo, WalkgraphError
from walkgraph.ids import Rank
from walkgraph.transports.base import BadTicket
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.worker.events import Arrived, Send
from walkgraph.worker.io import values
from walkgraph.worker.io.carrier import Carrier
from walkgraph.worker.io.outbox import Outbox, Waiting
from walkgraph.worker.io.pending import Held
from walkgraph.worker.io.reports import Reports

_log = logging.getLogger(__name__)

_SENDER = struct.Struct("<II")
"""Rank and start of who sent a frame to a peer."""
STRANGERS = 1024
"""Messages kept of starts that the conductor has not named yet; it will, for it starts no run before."""


class PartsProtocol(Protocol):
    def take(self, rank: Rank, message: m.BetweenParts) -> None: ...

    def gone(self, rank: Rank) -> None:
        """What touches a peer's memory is over when this returns."""
        ...


class Links:
    def __init__(
        self,
        rank: Rank,
        start: int,
        conductor: sockets.Socket,
        inbox: sockets.Socket,
        context: sockets.Context,
        transport: Carrier,
    ) -> None:
        self.conductor = Reports(conductor)
        self.from_conductor = sockets.Reader(conductor, codec.to_worker)
        self.inbox = inbox
        self.stale = 0
        """Messages from starts of a rank that are no longer."""
        self._inbox = sockets.Reader(inbox, codec.between_workers, frames=2)
        self._rank, self._head = rank, (_SENDER.pack(rank, start),)
        self._context, self._transport = context, transport
        self._peers: dict[Rank, m.Peer] = {}
        self._latest: dict[Rank, int] = {}
        """Rank that is gone -> its last start."""
        self._strangers: deque[tuple[bytes, m.BetweenWorkers]] = deque(maxlen=STRANGERS)
        self._out: dict[Rank, Outbox] = {}
        self.held = Held(rank)
        """What is for peers that aren't known yet."""
        self._connected: dict[Rank, int] = {}
        """Peers that have answered a greeting, with their starts."""
        self._left: list[Any] = []
        """Notes of messages that have left."""
        self.poller = zmq.Poller()
        for socket in (conductor, inbox):
            self.poller.register(socket, zmq.POLLIN)
        self.parts: PartsProtocol | None = None
        """Who is told what concerns loops that span devices."""
        self._reading: deque[tuple[Rank, m.Ticket, str]] = deque()
        """Tickets whose tensors are being copied, with their runs: no `Freed` was sent."""

    @property
    def rejected(self) -> int:
        return self.from_conductor.rejected + self._inbox.rejected

    @property
    def tickets_out(self) -> int:
        return self._transport.out

    def set_peers(self, peers: dict[Rank, m.Peer]) -> None:
        """Connect to every peer that is new or was started anew, and forget what was under way to its predecessor."""
        for rank in [rank for rank in self._peers if self._peers[rank] != peers.get(rank)]:
            self._part(rank)
        for rank, peer in peers.items():
            if rank == self._rank or rank in self._peers:
                continue
            try:
                self._transport.connect(rank, peer)
            except BadTicket as error:
                # It has ended meanwhile, and the conductor will name its successor; or it will miss the greeting.
                _log.warning("rank %d can't connect to rank %d: %s", self._rank, rank, error)
                continue
            self._peers[rank] = peer
            socket = sockets.push(self._context, peer.address)
            outbox = self._out[rank] = Outbox(socket, rank, self._head, self._transport, self._left)
            for name in self._transport.opened(rank):
                outbox.send(Waiting(m.Opened(transport=name)))
            outbox.send(Waiting(m.Greet()))
            for waiting in self.held.take(rank):
                if isinstance(waiting.message, m.BetweenParts):
                    outbox.urge(waiting.message)
                else:
                    outbox.send(waiting)

    def send(self, send: Send, note: Any = None) -> None:
        """Queue a message to a peer. `note` is handed to `departures` once the message has left."""
        waiting = Waiting(send.message, send.value, send.transport != "inline", note)
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
            self._hold(rank, Waiting(message))

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

    def arrivals(self) -> Iterator[Arrived | tuple[str, ErrorInfo]]:
        """What peers have sent, unpacked; (run, error) for a value that could not be read."""
        before = [self._strangers.popleft() for _ in range(len(self._strangers))]
        for sender, message in (*before, *self._inbox.drain()):
            rank = self._sender(sender)
            if rank is None:
                self._unknown(sender, message)
            elif isinstance(message, m.Freed):
                self._freed(message.ticket, rank)
            elif isinstance(message, m.Opened):
                self._transport.accept(rank, message.transport)
            elif isinstance(message, m.Greet):
                self._out[rank].send(Waiting(m.Greeted()))
            elif isinstance(message, m.Greeted):
                self._connected[rank] = self._peers[rank].start
                self.conductor.send(m.Connected(rank=self._rank, peers=dict(self._connected)))
            elif isinstance(message, m.BetweenParts):
                if self.parts is not None:
                    self.parts.take(rank, message)
            else:
                yield self._unpacked(rank, message)
        yield from self._taken()

    def failures(self) -> Iterator[tuple[str, ErrorInfo]]:
        """(run, error) for values that could not be sent."""
        for way in (self.conductor, self.held, *self._out.values()):
            for message, error in way.failed:
                yield str(getattr(message, "run", "")), error.info()
            way.failed.clear()

    def close(self) -> None:
        for rank in list(self._peers):
            self._part(rank)
        self._transport.close()

    def _hold(self, rank: Rank, waiting: Waiting, walk: str = "") -> None:
        """What is for a peer that is gone is dropped: the conductor is ending the runs that it had a part in."""
        if rank not in self._latest:
            self.held.keep(rank, waiting, walk)

    def _part(self, rank: Rank) -> None:
        if self.parts is not None:
            self.parts.gone(rank)
        self._latest[rank] = self._peers.pop(rank).start
        self._connected.pop(rank, None)
        self._reading = deque(one for one in self._reading if one[0] != rank)
        self._transport.sweep(rank)
        self._transport.disconnect(rank)
        outbox = self._out.pop(rank, None)
        if outbox is not None:
            outbox.socket.close(linger=0)

    def _sender(self, frame: bytes) -> Rank | None:
        if len(frame) != _SENDER.size:
            return None
        rank, start = _SENDER.unpack(frame)
        peer = self._peers.get(Rank(rank))
        return Rank(rank) if peer is not None and peer.start == start else None

    def _unknown(self, sender: bytes, message: m.BetweenWorkers) -> None:
        """Of a start that is over, or not yet named."""
        rank, start = _SENDER.unpack(sender) if len(sender) == _SENDER.size else (0, 0)
        peer = self._peers.get(Rank(rank))
        if start > (peer.start if peer else self._latest.get(Rank(rank), 0)):
            self._strangers.append((sender, message))
        else:
            self.stale += 1

    def _freed(self, ticket: int, by: Rank) -> None:
        try:
            self._transport.free(ticket, by)
        except BadTicket:
            self.stale += 1

    def _unpacked(self, rank: Rank, message: m.BetweenWorkers) -> Arrived | tuple[str, ErrorInfo]:
        if not isinstance(message, m.Deliver | m.StreamItem):
            return Arrived(message)
        try:
            return Arrived(message, values.unpack(message.value, self._transport.get))
        except WalkgraphError as error:
            return message.run, error.info()
        finally:
            # Whether they are being copied or never will be: in the end the sender has its room back.
            tickets = values.tickets_in(message.value)
            self._reading.extend((rank, ticket, message.run) for ticket in tickets if ticket.owner == rank)

    def _taken(self) -> Iterator[tuple[str, ErrorInfo]]:
        """Tell the senders of what was copied; (run, error) for what was torn meanwhile."""
        for _ in range(len(self._reading)):
            rank, ticket, run = self._reading.popleft()
            try:
                taken = self._transport.taken(ticket)
            except BadTicket as error:
                yield run, error.info()
                taken = True
            if taken:
                self._out[rank].send(Waiting(m.Freed(ticket=ticket.id)))
            else:
                self._reading.append((rank, ticket, run))
