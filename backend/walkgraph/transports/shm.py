"""Between workers of one host: each has one arena of shared memory, and peers read from it.

The arena is a `MemoryFile`; peers map it read-only, so none can damage it.

    arena:  | token .. | block | block | ...          block:  | id, nbytes .. | the tensor's bytes |
            0          64                                     0               64

A block's header names its ticket: a reader that finds another one, before or after copying, has a stale ticket. Tickets
of one sender to one reader rise, so none is taken twice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from walkgraph.ids import Rank
from walkgraph.placement.transports import TransportDeclaration
from walkgraph.transports.base import (
    ALIGN,
    BadTicket,
    FileHandle,
    MemoryFile,
    Out,
    PeerArenas,
    Ranges,
    Tickets,
    TooLarge,
    dtype_name,
    open_file,
    read_handle,
)
from walkgraph.wire.messages import Ticket

if TYPE_CHECKING:
    from torch import Tensor

DECLARATION = TransportDeclaration(reach="host", cost=450)

_HEADER = struct.Struct("<QQ")


class Transport(Tickets[int]):
    def __init__(self, rank: Rank, nbytes: int, numbers: Iterator[int] | None = None) -> None:
        super().__init__(rank, numbers)
        self._size = nbytes
        self._file = MemoryFile(nbytes, "walkgraph-arena")
        self._memory = self._file.memory
        self._ranges = Ranges(ALIGN, nbytes // ALIGN * ALIGN)
        self._peers = PeerArenas[_PeerArena]()

    @property
    def fd(self) -> int:
        return self._file.fd

    def handle(self) -> bytes:
        return msgspec.msgpack.encode(self._file.handle)

    def fits(self, tensor: Tensor) -> bool:
        return tensor.nbytes + 2 * ALIGN <= self._size

    def put(self, tensor: Tensor, to: Rank) -> Ticket | None:
        if tensor.nbytes + 2 * ALIGN > self._size:
            raise TooLarge(f"a tensor of {tensor.nbytes} bytes is over the arena's {self._size}; raise `arena_bytes`")
        name = dtype_name(tensor.dtype)
        block = self._ranges.take(ALIGN + tensor.nbytes)
        if block is None:
            return None
        number, start = next(self._numbers), block + ALIGN
        _HEADER.pack_into(self._memory, block, number, tensor.nbytes)
        if tensor.nbytes:
            from walkgraph.memory.tensors import copy_into

            copy_into(self._memory, start, tensor)
        self._out[number] = Out(to, block)
        return self._ticket(tensor, name, number, "shm", start)

    def get(self, ticket: Ticket) -> Tensor:
        return self._peers.read(ticket)

    def connect(self, rank: Rank, handle: bytes) -> None:
        self.disconnect(rank)
        self._peers.open[rank] = _PeerArena(read_handle(handle, FileHandle))

    def disconnect(self, rank: Rank) -> None:
        self._peers.drop(rank)

    @property
    def used(self) -> int:
        """Bytes of the arena in use."""
        return self._ranges.used

    def close(self) -> None:
        self._peers.close()
        self._file.close()

    def _give_back(self, ticket: int, held: int) -> None:
        _HEADER.pack_into(self._memory, held, 0, 0)
        self._ranges.give(held)


class _PeerArena:
    """Another worker's arena, mapped read-only."""

    def __init__(self, handle: FileHandle) -> None:
        self._memory = open_file(handle)
        self._size = handle.nbytes
        self._last = 0

    def read(self, ticket: Ticket) -> Tensor:
        from walkgraph.memory.tensors import tensor_of

        block = ticket.offset - ALIGN
        if block < ALIGN or block % ALIGN or ticket.offset + ticket.nbytes > self._size:
            raise BadTicket("a ticket reaches outside its arena")
        if ticket.id <= self._last or not self._names(ticket, block):
            raise BadTicket("a ticket is not, or no longer, that of its block")
        found = np.frombuffer(self._memory, np.uint8, ticket.nbytes, ticket.offset).copy()
        if not self._names(ticket, block):
            raise BadTicket("a ticket was freed while its tensor was read")
        self._last = ticket.id
        return tensor_of(found, ticket.dtype, ticket.shape)

    def close(self) -> None:
        self._memory.close()

    def _names(self, ticket: Ticket, block: int) -> bool:
        return _HEADER.unpack_from(self._memory, block) == (ticket.id, ticket.nbytes)
