"""Between ranks of one process: hands over the tensor itself, with the same accounting as other transports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from walkgraph.ids import Rank
from walkgraph.placement.transports import TransportDeclaration
from walkgraph.transports.base import BadTicket, Out, Tickets, TooLarge
from walkgraph.wire.messages import Ticket

if TYPE_CHECKING:
    from torch import Tensor

DECLARATION = TransportDeclaration(reach="process", cost=0)


class Transport(Tickets["Tensor"]):
    def __init__(self, rank: Rank, nbytes: int, numbers: Iterator[int] | None = None) -> None:
        super().__init__(rank, numbers)
        self._space = self._size = nbytes
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
        self._out[number] = Out(to, tensor)
        self._space -= tensor.nbytes
        dtype, shape, nbytes = _header(tensor)
        return Ticket(
            dtype=dtype, shape=shape, id=number, owner=self._rank, transport="inproc", offset=0, nbytes=nbytes
        )

    def get(self, ticket: Ticket) -> Tensor:
        peer = self._peers.get(ticket.owner)
        out = peer._out.get(ticket.id) if peer else None
        if out is None or (out.to, *_header(out.held)) != (self._rank, ticket.dtype, ticket.shape, ticket.nbytes):
            raise BadTicket("a ticket names no tensor that is addressed here")
        return out.held

    def connect(self, rank: Rank, handle: Transport) -> None:
        self._peers[rank] = handle

    def disconnect(self, rank: Rank) -> None:
        self._peers.pop(rank, None)

    def close(self) -> None:
        self._out.clear()
        self._peers.clear()

    def _give_back(self, ticket: int, held: Tensor) -> None:
        self._space += held.nbytes


def _header(tensor: Tensor) -> tuple[Any, tuple[int, ...], int]:
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tensor.nbytes
