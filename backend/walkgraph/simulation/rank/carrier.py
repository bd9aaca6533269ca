"""The simulated transport: a few places in each rank's arena, copies that take time, arenas that die with processes.

Lists stand for tensors and are sent by tickets. All other values travel in the message.
"""

from dataclasses import dataclass
from typing import Any, cast

from walkgraph.ids import Rank
from walkgraph.simulation.network import Endpoint
from walkgraph.simulation.simulator import Simulator
from walkgraph.transports.base import BadTicket, SenderLost
from walkgraph.wire import messages as m
from walkgraph.worker.io import values

PLACES = 2
"""Values that a rank may have under way to its peers."""
COPY_SECONDS = 0.002
"""Longest copy into or out of an arena."""
TRANSPORT = "simulated"


@dataclass(slots=True)
class SentValue:
    value: Any
    to: Rank
    there: float
    """Time at which it has been copied into the arena."""


Arenas = dict[Endpoint, dict[int, SentValue]]
"""All arenas of a world: the values under way, by ticket."""


class SimulatedCarrier:
    """Implements `worker.io.carrier.CarrierLike`."""

    def __init__(self, simulator: Simulator, here: Endpoint, arenas: Arenas) -> None:
        self._simulator, self._here, self._arenas = simulator, here, arenas
        self._sent = arenas[here] = {}
        self._number = 0
        self._starts: dict[Rank, int] = {}
        """Starts of the peers whose arenas this rank can read."""
        self._accepted: set[Rank] = set()
        """Peers that can read this arena."""
        self._taking: dict[tuple[Endpoint, int], float] = {}
        """Times at which copies out of peers' arenas end."""
        self._coming: dict[tuple[Endpoint, int], float] = {}
        """Times at which values that come over a network are here."""

    # ── as a sender ──

    def pack(self, value: Any, to: Rank, *, alone: bool = False) -> m.Value:
        if not isinstance(value, list) or to not in self._accepted:
            return values.pack(value)
        if len(self._sent) >= PLACES:
            self._simulator.counts["full arenas"] += 1
            raise values.TransportFull
        self._number += 1
        self._sent[self._number] = SentValue(cast("list[Any]", value), to, self._copied())
        self._simulator.counts["tickets"] += 1
        size = len(cast("list[Any]", value))
        return m.Ticket(
            dtype="int64",
            shape=(size,),
            id=self._number,
            owner=Rank(self._here.rank),
            transport=TRANSPORT,
            offset=0,
            nbytes=8 * size,
        )

    def there(self, ticket: int) -> bool:
        return self._simulator.now >= self._sent[ticket].there

    def free(self, ticket: int, by: Rank) -> None:
        sent = self._sent.get(ticket)
        if sent is None or sent.to != by:
            raise BadTicket("a ticket was freed that is not out")
        del self._sent[ticket]

    def sweep(self, rank: Rank) -> int:
        lost = [ticket for ticket, sent in self._sent.items() if sent.to == rank]
        for ticket in lost:
            del self._sent[ticket]
        self._accepted.discard(rank)
        return len(lost)

    # ── as a receiver ──

    def get(self, ticket: m.Ticket) -> Any:
        """The value of a peer's ticket. Every other one comes over a network: None until it is here."""
        value, key = self._found(ticket), (self._source(ticket), ticket.id)
        if ticket.id % 2 == 0 and self._simulator.now < self._coming.setdefault(key, self._copied()):
            return None
        self._coming.pop(key, None)
        self._taking[key] = self._copied()
        return value

    def taken(self, ticket: m.Ticket) -> bool:
        key = self._source(ticket), ticket.id
        if self._simulator.now < max(self._taking.get(key, 0.0), self._coming.get(key, 0.0)):
            return False
        self._taking.pop(key, None)
        self._coming.pop(key, None)
        return True

    # ── peers ──

    def peer(self, address: str) -> m.Peer:
        """The record by which peers find this process."""
        return m.Peer(address=address, start=self._here.start)

    def connect(self, rank: Rank, peer: m.Peer) -> None:
        if Endpoint(rank, peer.start) not in self._arenas:
            raise SenderLost
        self._starts[rank] = peer.start

    def disconnect(self, rank: Rank) -> None:
        self._accepted.discard(rank)
        start = self._starts.pop(rank, 0)
        gone = Endpoint(rank, start)
        self._taking = {key: at for key, at in self._taking.items() if key[0] != gone}
        self._coming = {key: at for key, at in self._coming.items() if key[0] != gone}

    def opened(self, rank: Rank) -> tuple[str, ...]:
        return (TRANSPORT,) if rank in self._starts else ()

    def accept(self, rank: Rank, transport: str) -> None:
        self._accepted.add(rank)

    @property
    def out(self) -> int:
        return len(self._sent)

    @property
    def check_after(self) -> float | None:
        now = self._simulator.now
        copying = self._taking or self._coming or any(sent.there > now for sent in self._sent.values())
        return 0.0 if copying else None

    def due(self) -> float:
        """Time at which the next copy ends; infinite if none is under way."""
        if not (self._sent or self._taking or self._coming):
            return float("inf")
        now = self._simulator.now
        ends = (*(sent.there for sent in self._sent.values()), *self._taking.values(), *self._coming.values())
        return min((at for at in ends if at > now), default=float("inf"))

    def close(self) -> None: ...

    def _found(self, ticket: m.Ticket) -> Any:
        source = self._source(ticket)
        found = self._arenas.get(source, {}).get(ticket.id)
        if source not in self._arenas:
            raise SenderLost
        if found is None or found.to != self._here.rank:
            raise BadTicket("a ticket names no value that is addressed here")
        if self._simulator.now < found.there:
            raise self._simulator.fail(f"ticket {ticket.id} of rank {ticket.owner} is read before its value is there")
        return found.value

    def _source(self, ticket: m.Ticket) -> Endpoint:
        return Endpoint(ticket.owner, self._starts.get(ticket.owner, 0))

    def _copied(self) -> float:
        return self._simulator.now + COPY_SECONDS * self._simulator.chance.random()
