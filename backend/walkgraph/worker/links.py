"""A worker's ways out and in: the conductor (`reports`), each peer, and the tensors on their way between.

Every way out is a queue of its own, in order. A message waits there while its tensors find no room in the transport or
the socket takes no more; what is queued for a run is dropped when the run ends, what is queued for a peer when that
peer is started anew. How much can wait is bounded by the streams' credits and the runs that are admitted.
"""

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import zmq

from walkgraph.errors import ErrorInfo, WalkgraphError
from walkgraph.ids import Rank
from walkgraph.transports.base import BadTicket, TooLarge
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.worker import values
from walkgraph.worker.carrier import Carrier
from walkgraph.worker.events import ABSENT, Arrived
from walkgraph.worker.reports import Reports, encoded

_SENDER = struct.Struct("<II")
"""Rank and start of who sent a frame to a peer."""
STRANGERS = 1024
"""Messages kept of starts that the conductor has not named yet; it will, for it starts no run before."""

AHEAD = 8
"""Messages whose tensors may be under way into the transport behind the first of a queue."""


class PartsProtocol(Protocol):
    def take(self, rank: Rank, message: m.BetweenParts) -> None: ...

    def gone(self, rank: Rank) -> None:
        """What touches a peer's memory is over when this returns."""
        ...


@dataclass(slots=True)
class _Waiting:
    message: Any
    value: Any
    shared: bool
    """Larger tensors go through the transport."""


@dataclass(slots=True)
class _Packed:
    """Its tensors are in the transport, or on their way into it."""

    frames: list[bytes]
    tickets: list[int]


class Outbox:
    """The way to one peer."""

    def __init__(self, socket: sockets.Socket, to: Rank, head: tuple[bytes, ...], transport: Carrier) -> None:
        self.socket = socket
        self._to = to
        self._head = head
        self._transport = transport
        self._packed: deque[_Packed] = deque()
        self._queue: deque[_Waiting] = deque()
        """Behind those that are packed."""
        self._urgent: deque[list[bytes]] = deque()
        """Before all others."""
        self.blocked = False
        """Waiting for the socket, not for room or a copy."""
        self.failed: list[tuple[Any, WalkgraphError]] = []
        """Messages whose value can't travel at all."""

    def send(self, message: Any, value: Any = ABSENT, shared: bool = False) -> None:
        self._queue.append(_Waiting(message, value, shared))
        if len(self) == 1:
            self.flush()

    def urge(self, message: Any) -> None:
        """Send a message without a value before all that waits, now if the socket takes it."""
        self._urgent.append([*self._head, codec.encode(message)])
        self.flush()

    def flush(self) -> None:
        self.blocked = False
        while self._urgent:
            if not self._sent(self._urgent[0]):
                return
            self._urgent.popleft()
        while self._packed or self._queue:
            if self._packed and all(map(self._transport.there, self._packed[0].tickets)):
                if not self._sent(self._packed[0].frames):
                    return
                self._packed.popleft()
            elif len(self._packed) >= AHEAD or not self._pack():
                return

    def forget(self, run: str) -> None:
        """Drop what waits for a run, unless its tensors are already in the transport: the peer frees those."""
        self._queue = deque(one for one in self._queue if getattr(one.message, "run", None) != run)

    def __len__(self) -> int:
        return len(self._packed) + len(self._queue)

    def _sent(self, frames: list[bytes]) -> bool:
        try:
            self.socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            self.blocked = True
        return not self.blocked

    def _pack(self) -> bool:
        """False if nothing could be done about the next one."""
        if not self._queue:
            return False
        waiting, alone = self._queue[0], not self._transport.out
        try:
            self._packed.append(self._encode(waiting, alone))
        except values.NoRoom:
            if not alone:
                return False
            what = "a value's tensors are together over the arena for what leaves a worker; raise `arena_bytes`"
            self.failed.append((waiting.message, TooLarge(what)))
        except WalkgraphError as error:
            self.failed.append((waiting.message, error))
        self._queue.popleft()
        return True

    def _encode(self, waiting: _Waiting, alone: bool) -> _Packed:
        message, tickets = waiting.message, list[int]()
        if waiting.value is not ABSENT:
            put = (lambda one: self._transport.put(one, self._to, alone=alone)) if waiting.shared else None
            packed = values.pack(waiting.value, put, self._take_back)
            message = msgspec.structs.replace(message, value=packed)
            tickets = [ticket.id for ticket in values.tickets_in(packed)]
        return _Packed([*self._head, encoded(message)], tickets)

    def _take_back(self, ticket: m.Ticket) -> None:
        self._transport.free(ticket.id, self._to)


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
            except BadTicket:
                continue  # it has ended meanwhile: the conductor will name its successor
            self._peers[rank] = peer
            socket = sockets.push(self._context, peer.address)
            self._out[rank] = Outbox(socket, rank, self._head, self._transport)
            if self._transport.opens(rank):
                self._out[rank].send(m.Opened())

    def send(self, rank: Rank, message: m.BetweenWorkers, value: Any, transport: str) -> None:
        """Queue a message to a peer. One to a peer that is gone is dropped: its runs are being ended."""
        outbox = self._out.get(rank)
        if outbox is not None:
            outbox.send(message, value, shared=transport != "inline")

    def urge(self, rank: Rank, message: m.BetweenParts) -> None:
        """As `send`, before all that waits."""
        outbox = self._out.get(rank)
        if outbox is not None:
            outbox.urge(message)

    def flush(self) -> None:
        """To the peers."""
        for outbox in self._out.values():
            outbox.flush()

    def blocked(self) -> list[sockets.Socket]:
        """Sockets that have something to take once they can."""
        return [outbox.socket for outbox in (self.conductor, *self._out.values()) if outbox.blocked]

    @property
    def copying(self) -> bool:
        """Whether there will be something to send or to free without a message coming: ask again soon."""
        return self._transport.copying

    def forget(self, run: str) -> None:
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
                self._transport.accept(rank)
            elif isinstance(message, m.BetweenParts):
                if self.parts is not None:
                    self.parts.take(rank, message)
            else:
                yield self._unpacked(rank, message)
        yield from self._taken()

    def failures(self) -> Iterator[tuple[str, ErrorInfo]]:
        """(run, error) for values that could not be sent."""
        for outbox in (self.conductor, *self._out.values()):
            for message, error in outbox.failed:
                yield str(getattr(message, "run", "")), error.info()
            outbox.failed.clear()

    def close(self) -> None:
        for rank in list(self._peers):
            self._part(rank)
        self._transport.close()

    def _part(self, rank: Rank) -> None:
        if self.parts is not None:
            self.parts.gone(rank)
        self._latest[rank] = self._peers.pop(rank).start
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
                self._out[rank].send(m.Freed(ticket=ticket.id))
            else:
                self._reading.append((rank, ticket, run))
