"""The ordered queue of messages from a worker to one peer. They wait for space in the transport, or for the socket."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import msgspec
import zmq

from walkgraph.errors import WalkgraphError
from walkgraph.ids import Rank
from walkgraph.transports.base import TooLarge
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.worker.events import ABSENT
from walkgraph.worker.io import values
from walkgraph.worker.io.carrier import CarrierLike
from walkgraph.worker.io.reports import encoded

AHEAD = 8
"""The most messages at the head of a queue whose tensors are put into the transport ahead of time."""


@dataclass(slots=True)
class OutgoingMessage:
    message: Any
    value: Any = ABSENT
    shared: bool = False
    """True if larger tensors go through the transport."""
    note: Any = None
    """Returned by `departures` once the message was sent."""


@dataclass(slots=True)
class _Packed:
    """An encoded message, with its tensors in the transport or being copied there."""

    run: str
    frames: list[bytes]
    tickets: list[int]
    note: Any


class Outbox:
    def __init__(
        self, socket: sockets.Socket, to: Rank, head: tuple[bytes, ...], transport: CarrierLike, left: list[Any]
    ) -> None:
        """`left`: the list that receives the notes of sent messages."""
        self.socket = socket
        self._to = to
        self._head = head
        self._transport = transport
        self._left = left
        self._packed: deque[_Packed] = deque()
        self._queue: deque[OutgoingMessage] = deque()
        """Messages behind the packed ones."""
        self._urgent: deque[list[bytes]] = deque()
        """Frames to send before all others."""
        self.blocked = False
        """True if it waits for the socket, rather than for space or a copy."""
        self.failed: list[tuple[Any, WalkgraphError]] = []
        """Messages whose value can't be sent."""

    def send(self, waiting: OutgoingMessage) -> None:
        self._queue.append(waiting)
        if len(self) == 1:
            self.flush()

    def urge(self, message: m.BetweenParts | m.Freed) -> None:
        """Send a message without a value ahead of all queued ones, at once if the socket takes it."""
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
                note = self._packed.popleft().note
                if note is not None:
                    self._left.append(note)
            elif len(self._packed) >= AHEAD or not self._pack():
                return

    def forget(self, run: str) -> None:
        """Drop the messages of a run, except those whose tensors are already in the transport: the peer must free
        these."""
        self._packed = deque(one for one in self._packed if one.run != run or one.tickets)
        self._queue = deque(one for one in self._queue if _run(one) != run)

    def sends(self, run: str) -> bool:
        """True if a message of a run waits here."""
        return any(one.run == run for one in self._packed) or any(_run(one) == run for one in self._queue)

    def __len__(self) -> int:
        return len(self._packed) + len(self._queue)

    def _sent(self, frames: list[bytes]) -> bool:
        try:
            self.socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            self.blocked = True
        return not self.blocked

    def _pack(self) -> bool:
        """Encode the next message; False if it must wait."""
        if not self._queue:
            return False
        waiting, alone = self._queue[0], not self._transport.out
        try:
            self._packed.append(self._encode(waiting, alone))
        except values.TransportFull:
            if not alone:
                return False
            what = "the tensors of a value are together larger than the worker's arena; raise `arena_bytes`"
            self.failed.append((waiting.message, TooLarge(what)))
        except WalkgraphError as error:
            self.failed.append((waiting.message, error))
        self._queue.popleft()
        return True

    def _encode(self, waiting: OutgoingMessage, alone: bool) -> _Packed:
        message, tickets = waiting.message, list[int]()
        if waiting.value is not ABSENT:
            packed = (
                self._transport.pack(waiting.value, self._to, alone=alone)
                if waiting.shared
                else values.pack(waiting.value)
            )
            message = msgspec.structs.replace(message, value=packed)
            tickets = [ticket.id for ticket in values.tickets_in(packed)]
        return _Packed(_run(waiting), [*self._head, encoded(message)], tickets, waiting.note)


def _run(waiting: OutgoingMessage) -> str:
    return getattr(waiting.message, "run", "")
