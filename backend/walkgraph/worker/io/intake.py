"""Unpacks the values that peers send, and lets the senders free their memory once tensors are copied."""

from collections import deque
from collections.abc import Iterator

from walkgraph.errors import ErrorInfo, WalkgraphError
from walkgraph.ids import Rank
from walkgraph.transports.base import BadTicket
from walkgraph.wire import messages as m
from walkgraph.worker.events import Arrived
from walkgraph.worker.io import values
from walkgraph.worker.io.carrier import CarrierLike


class Intake:
    def __init__(self, transport: CarrierLike) -> None:
        self._transport = transport
        self._reading: deque[tuple[Rank, m.Ticket, str]] = deque()
        """Tickets whose tensors are being copied, with sender and run. `Freed` was not sent for them yet."""

    def unpack(self, rank: Rank, message: m.BetweenWorkers) -> Arrived | tuple[str, ErrorInfo]:
        """Unpack a message; (run, error) if its value can't be read."""
        if not isinstance(message, m.Deliver | m.StatePart | m.StreamItem):
            return Arrived(message)
        try:
            return Arrived(message, self._transport.unpack(message.value))
        except WalkgraphError as error:
            return message.run, error.info()
        finally:
            # Readable or not, the sender gets its memory back in the end.
            tickets = values.tickets_in(message.value)
            self._reading.extend((rank, ticket, message.run) for ticket in tickets if ticket.owner == rank)

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
    def reading(self) -> bool:
        return bool(self._reading)

    def forget(self, rank: Rank) -> None:
        """Forget the tickets of a sender that has died."""
        self._reading = deque(one for one in self._reading if one[0] != rank)
