"""Between workers of one host: each has one arena of shared memory, and peers read from it.

The arena is a `MemoryFile`; peers map it read-only, so that none can harm it.

    arena:  | token .. | block | block | ...          block:  | id, nbytes .. | the tensor's bytes |
            0          64                                     0               64

A block's header names its ticket: a reader that finds another one, before or after it has copied, has a stale ticket.
Tickets of one sender to one reader rise, so that none is taken twice.
"""

import struct
from collections.abc import Iterator
from itertools import count

import numpy as np
import torch
from torch import Tensor

from walkgraph.ids import Rank
from walkgraph.transports.base import ALIGN, DTYPES, BadTicket, MemoryFile, Ranges, TooLarge, dtype_name, open_file
from walkgraph.wire.messages import Peer, Ticket
from walkgraph.wire.tensors import check_header

_HEADER = struct.Struct("<QQ")


class Transport:
    def __init__(self, rank: Rank, nbytes: int, numbers: Iterator[int] | None = None) -> None:
        """`numbers` of tickets: rising, never 0, and shared with whoever's tickets must differ from these."""
        self._rank = rank
        self._size = nbytes
        self._file = MemoryFile(nbytes, "walkgraph-arena")
        self._memory = self._file.memory
        self._ranges = Ranges(ALIGN, nbytes // ALIGN * ALIGN)
        self._out: dict[int, tuple[Rank, int]] = {}
        """Ticket -> (addressee, offset of its block)."""
        self._numbers = numbers or count(1)
        self._peers: dict[Rank, _PeerArena] = {}

    @property
    def fd(self) -> int:
        return self._file.fd

    @property
    def token(self) -> bytes:
        return self._file.token

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
            room = torch.frombuffer(self._memory, dtype=tensor.dtype, count=tensor.numel(), offset=start)
            room.view(tensor.shape).copy_(tensor)
        self._out[number] = (to, block)
        return Ticket(
            dtype=name,
            shape=tuple(tensor.shape),
            id=number,
            owner=self._rank,
            transport="shm",
            offset=start,
            nbytes=tensor.nbytes,
        )

    def there(self, ticket: int) -> bool:
        return True

    def get(self, ticket: Ticket) -> Tensor:
        check_header(ticket, ticket.nbytes)
        peer = self._peers.get(ticket.owner)
        if peer is None:
            raise BadTicket("a ticket is of a worker that is gone")
        return peer.read(ticket)

    def taken(self, ticket: Ticket) -> bool:
        return True

    def free(self, ticket: int, by: Rank) -> None:
        to, block = self._out.get(ticket, (None, 0))
        if to != by:
            raise BadTicket("a ticket was freed that is not out")
        del self._out[ticket]
        _HEADER.pack_into(self._memory, block, 0, 0)
        self._ranges.give(block)

    def sweep(self, rank: Rank) -> int:
        lost = [number for number, (to, _) in self._out.items() if to == rank]
        for number in lost:
            self.free(number, rank)
        return len(lost)

    def connect(self, rank: Rank, peer: Peer) -> None:
        self.disconnect(rank)
        self._peers[rank] = _PeerArena(peer)

    def disconnect(self, rank: Rank) -> None:
        peer = self._peers.pop(rank, None)
        if peer is not None:
            peer.close()

    @property
    def out(self) -> int:
        return len(self._out)

    @property
    def copying(self) -> bool:
        return False

    @property
    def used(self) -> int:
        """Bytes of the arena that are taken."""
        return self._ranges.used

    def close(self) -> None:
        for rank in list(self._peers):
            self.disconnect(rank)
        self._file.close()


class _PeerArena:
    """Another worker's arena, mapped read-only."""

    def __init__(self, peer: Peer) -> None:
        self._memory = open_file(peer.pid, peer.arena_fd, peer.arena_bytes, peer.arena_token)
        self._size = peer.arena_bytes
        self._last = 0

    def read(self, ticket: Ticket) -> Tensor:
        block = ticket.offset - ALIGN
        if block < ALIGN or block % ALIGN or ticket.offset + ticket.nbytes > self._size:
            raise BadTicket("a ticket reaches outside its arena")
        if ticket.id <= self._last or not self._names(ticket, block):
            raise BadTicket("a ticket is not, or no longer, that of its block")
        found = np.frombuffer(self._memory, np.uint8, ticket.nbytes, ticket.offset).copy()
        if not self._names(ticket, block):
            raise BadTicket("a ticket was freed while its tensor was read")
        self._last = ticket.id
        if not ticket.nbytes:
            return torch.empty(ticket.shape, dtype=DTYPES[ticket.dtype])
        return torch.from_numpy(found).view(DTYPES[ticket.dtype]).view(ticket.shape)

    def close(self) -> None:
        self._memory.close()

    def _names(self, ticket: Ticket, block: int) -> bool:
        return _HEADER.unpack_from(self._memory, block) == (ticket.id, ticket.nbytes)
