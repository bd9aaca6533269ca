"""Between ranks of one process: the tensor itself is handed over, and counted as if it travelled."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

from walkgraph.ids import Rank
from walkgraph.placement.transports import TransportDeclaration
from walkgraph.transports.base import BadTicket, TooLarge, sweep
from walkgraph.wire.messages import Ticket

if TYPE_CHECKING:
    from torch import Tensor

DECLARATION = TransportDeclaration(reach="process", cost=0)


class Transport:
    def __init__(self, rank: Rank, nbytes: int, numbers: Iterator[int] | None = None) -> None:
        self._rank = rank
        self._space = self._size = nbytes
        self._held: dict[int, tuple[Rank, Tensor]] = {}
        self._numbers = numbers or count(1)
        self._peers: dict[Rank, Transport] = {}

    def handle(self) -> Transport:
        return self

    def fits(self, tensor: Tensor) -> bool:
        return tensor.nbytes <= self._size

    def put(self, tensor: Tensor, to: Rank) -> Ticket | None:
        if tensor.nbytes > self._size:
            raise TooLarge(
                f"a tensor of {tensor.nbytes} bytes is over the transport's {self._size}; raise `arena_bytes`"
            )
        if tensor.nbytes > self._space:
            return None
        number = next(self._numbers)
        self._held[number] = (to, tensor)
        self._space -= tensor.nbytes
        dtype, shape, nbytes = _header(tensor)
        return Ticket(
            dtype=dtype, shape=shape, id=number, owner=self._rank, transport="inproc", offset=0, nbytes=nbytes
        )

    def holds(self, ticket: int) -> bool:
        return ticket in self._held

    def there(self, ticket: int) -> bool:
        return True

    def get(self, ticket: Ticket) -> Tensor:
        peer = self._peers.get(ticket.owner)
        held = peer._held.get(ticket.id) if peer else None
        if held is None or (held[0], *_header(held[1])) != (self._rank, ticket.dtype, ticket.shape, ticket.nbytes):
            raise BadTicket("a ticket names no tensor that is addressed here")
        return held[1]

    def taken(self, ticket: Ticket) -> bool:
        return True

    def free(self, ticket: int, by: Rank) -> None:
        held = self._held.get(ticket)
        if held is None or held[0] != by:
            raise BadTicket("a ticket was freed that is not out")
        del self._held[ticket]
        self._space += held[1].nbytes

    def sweep(self, rank: Rank) -> int:
        return sweep(self, rank, {number: to for number, (to, _) in self._held.items()})

    def connect(self, rank: Rank, handle: Transport) -> None:
        self._peers[rank] = handle

    def disconnect(self, rank: Rank) -> None:
        self._peers.pop(rank, None)

    @property
    def out(self) -> int:
        return len(self._held)

    @property
    def copying(self) -> bool:
        return False

    def close(self) -> None:
        self._held.clear()
        self._peers.clear()


def _header(tensor: Tensor) -> tuple[Any, tuple[int, ...], int]:
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tensor.nbytes
