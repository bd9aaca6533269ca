"""Values that peers have sent: unpacked, and their senders told once their tensors were copied."""

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
        """Tickets whose tensors are being copied, with their runs: no `Freed` was sent."""

    def unpack(self, rank: Rank, message: m.BetweenWorkers) -> Arrived | tuple[str, ErrorInfo]:
        """(run, error) for a value that could not be read."""
        if not isinstance(message, m.Deliver | m.StreamItem):
            return Arrived(message)
        try:
            return Arrived(message, self._transport.unpack(message.value))
        except WalkgraphError as error:
            return message.run, error.info()
        finally:
            # Whether they are being copied or never will be: in the end the sender has its room back.
            tickets = values.tickets_in(message.value)
            self._reading.extend((rank, ticket, message.run) for ticket in tickets if ticket.owner == rank)

    def copied(self) -> Iterator[tuple[Rank, int, tuple[str, ErrorInfo] | None]]:
        """Sender and ticket of what was copied since, or torn meanwhile: then with (run, error)."""
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

    def forget(self, rank: Rank) -> None:
        """A sender that is gone."""
        self._reading = deque(one for one in self._reading if one[0] != rank)
