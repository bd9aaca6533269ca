"""Unpacks the values that peers send, in the order of each peer's messages, and lets the senders free their memory once
tensors are copied."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor

from walkgraph.errors import ErrorInfo, WalkgraphError
from walkgraph.ids import Rank
from walkgraph.transports.base import BadTicket
from walkgraph.wire import messages as m
from walkgraph.worker.events import Arrived
from walkgraph.worker.io import values
from walkgraph.worker.io.carrier import CarrierLike

Unpacked = Arrived | tuple[str, ErrorInfo]
"""A message; (run, error) if its value can't be read."""


@dataclass(slots=True)
class _Arriving:
    """A peer's message whose tensors, or those of a message before it, are on their way."""

    rank: Rank
    message: m.OfRun
    tickets: tuple[m.Ticket, ...]
    missing: deque[m.Ticket] = field(init=False)
    """Tickets whose tensors are not here."""
    tensors: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    failed: WalkgraphError | None = None

    def __post_init__(self) -> None:
        self.missing = deque(self.tickets)

    def come(self, transport: CarrierLike) -> bool:
        """Ask for its tensors; True once they are here, or can't be read."""
        try:
            for _ in range(len(self.missing)):
                ticket = self.missing.popleft()
                tensor = transport.get(ticket)
                if tensor is None:
                    self.missing.append(ticket)
                else:
                    self.tensors[ticket.id] = tensor
        except WalkgraphError as error:
            self.failed = error
            self.missing.clear()
        return not self.missing


class Intake:
    def __init__(self, transport: CarrierLike) -> None:
        self._transport = transport
        self._arriving: deque[_Arriving] = deque()
        self._reading: deque[tuple[Rank, m.Ticket, str]] = deque()
        """Tickets whose tensors are being copied, with sender and run. `Freed` was not sent for them yet."""

    def take(self, rank: Rank, message: m.OfRun) -> Iterator[Unpacked]:
        """Yield a message, unpacked, unless tensors are on their way; then `arrived` will yield it."""
        valued = isinstance(message, m.Deliver | m.StatePart | m.StreamItem)
        one = _Arriving(rank, message, tuple(values.tickets_in(message.value)) if valued else ())
        behind = any(other.rank == rank for other in self._arriving)
        if one.come(self._transport) and not behind:
            yield self._unpacked(one)
        else:
            self._arriving.append(one)

    def arrived(self) -> Iterator[Unpacked]:
        """Yield messages whose tensors, and those of all messages of their sender before them, have come."""
        behind: set[Rank] = set()
        for _ in range(len(self._arriving)):
            one = self._arriving.popleft()
            if one.come(self._transport) and one.rank not in behind:
                yield self._unpacked(one)
            else:
                behind.add(one.rank)
                self._arriving.append(one)

    def copied(self) -> Iterator[tuple[Rank, int, tuple[str, ErrorInfo] | None]]:
        """Yield sender and ticket of each finished copy, with (run, error) if the tensor was overwritten meanwhile."""
        for _ in range(len(self._reading)):
            rank, ticket, run = self._reading.popleft()
            try:
                taken = self._transport.taken(ticket)
            except BadTicket as error:
                yield rank, ticket.id, (run, error.info())
                continue
            if taken:
                yield rank, ticket.id, None
            else:
                self._reading.append((rank, ticket, run))

    @property
    def arriving(self) -> bool:
        return bool(self._arriving)

    @property
    def reading(self) -> bool:
        return bool(self._reading)

    def forget(self, rank: Rank) -> None:
        """Forget what comes from a sender that has died."""
        self._arriving = deque(one for one in self._arriving if one.rank != rank)
        self._reading = deque(one for one in self._reading if one[0] != rank)

    def _unpacked(self, one: _Arriving) -> Unpacked:
        message = one.message
        if not isinstance(message, m.Deliver | m.StatePart | m.StreamItem):
            return Arrived(message)
        # Readable or not, the sender gets its memory back in the end.
        self._reading.extend((one.rank, ticket, message.run) for ticket in one.tickets if ticket.owner == one.rank)
        try:
            if one.failed is not None:
                raise one.failed
            return Arrived(message, values.unpack(message.value, lambda ticket: one.tensors[ticket.id]))
        except WalkgraphError as error:
            return message.run, error.info()
