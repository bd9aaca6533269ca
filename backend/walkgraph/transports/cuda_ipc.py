"""Between workers of one host whose devices are GPUs: each has one arena of device memory, and peers copy from it.

    sender    tensor ──copy──> arena | block | gap | block | ..        beside its current stream
    receiver  tensor of its own <──copy── (over the link)              beside its current stream, which waits for it

Nobody waits on the host: `there` tells when the first copy is over, `taken` when the second is. A ticket is told only
once its bytes are there, so that no device ever waits for one of another worker, which may end at any time.

What lies where is said by a table in a `MemoryFile` of the sender's, which nobody else can write:

    | token .. | row 0 | row 1 | ..      row [id % ROWS]:  id, offset, nbytes, addressee + 1; zeros where none is out

A reader compares its ticket with the row, before the copy and after it. Tickets of one sender to one reader rise, so
that none is taken twice.
"""

import struct
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.ids import Rank
from walkgraph.memory.device import DeviceMemory, Mark, Unavailable
from walkgraph.transports.base import ALIGN, DTYPES, BadTicket, MemoryFile, Ranges, TooLarge, dtype_name, open_file
from walkgraph.wire.messages import DeviceArena, Peer, Ticket
from walkgraph.wire.tensors import check_header

ROWS = 1024
"""Tickets that may be out at a time."""
_ROW = struct.Struct("<QQQQ")
_TABLE_BYTES = ALIGN + ROWS * _ROW.size
_FREE = (0, 0, 0, 0)


class _Out(NamedTuple):
    to: Rank
    block: int


class _Copy(NamedTuple):
    mark: Mark
    source: Tensor
    """Lives until the mark is reached."""


class Transport:
    def __init__(self, rank: Rank, nbytes: int, memory: DeviceMemory, numbers: Iterator[int] | None = None) -> None:
        """No bytes: it only reads what peers have. `numbers` of tickets: rising, never 0, and shared with whoever's
        tickets must differ from these. Raises Unavailable, torch.OutOfMemoryError."""
        self._rank, self.size, self._memory = rank, nbytes, memory
        self._arena = memory.allocate(nbytes)
        try:
            self._handle = memory.share(self._arena) if nbytes else b""
        except Unavailable:
            memory.release(self._arena)
            raise
        self._table = MemoryFile(_TABLE_BYTES, "walkgraph-device-arena")
        self._ranges = Ranges(0, nbytes // ALIGN * ALIGN)
        self._numbers = numbers or count(1)
        self._out: dict[int, _Out] = {}
        self._rows: dict[int, int] = {}
        """Row -> its ticket."""
        self._copies: dict[int, _Copy] = {}
        """Into the arena, of tickets that are not known to be there."""
        self._ending: list[tuple[_Copy, int]] = []
        """Freed before the copy was over, with their blocks."""
        self._peers: dict[Rank, _PeerArena] = {}

    def told(self) -> DeviceArena | None:
        """What peers find it by."""
        if not self.size:
            return None
        return DeviceArena(
            handle=self._handle, nbytes=self.size, table_fd=self._table.fd, table_token=self._table.token
        )

    def reserve(self, nbytes: int) -> tuple[Tensor, int] | None:
        """Zeros uint8 `[nbytes]` of the arena, for what peers write there by themselves, and their offset in it; for
        good. None: no room."""
        block = self._ranges.take(nbytes)
        return None if block is None else (self._arena[block : block + nbytes].zero_(), block)

    def address(self, rank: Rank) -> int | None:
        """Where the arena of a peer begins, as this device reads and writes it; None if it is not opened."""
        peer = self._peers.get(rank)
        return None if peer is None else peer.address

    def fits(self, tensor: Tensor) -> bool:
        """Whether it is one of this device and there may be room for it."""
        return tensor.device == self._memory.device and tensor.nbytes <= self.size

    def put(self, tensor: Tensor, to: Rank) -> Ticket | None:
        self._settle()
        if tensor.nbytes > self.size:
            raise TooLarge(f"a tensor of {tensor.nbytes} bytes is over the device arena's {self.size}")
        name = dtype_name(tensor.dtype)
        number = next(self._numbers)
        block = None if number % ROWS in self._rows else self._ranges.take(tensor.nbytes)
        if block is None:
            return None
        if tensor.nbytes:
            room = self._arena[block : block + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            self._copies[number] = _Copy(self._memory.copy_out(tensor, room), tensor)
        self._out[number] = _Out(to, block)
        self._rows[number % ROWS] = number
        self._write(number, (number, block, tensor.nbytes, to + 1))
        return Ticket(
            dtype=name,
            shape=tuple(tensor.shape),
            id=number,
            owner=self._rank,
            transport="cuda_ipc",
            offset=block,
            nbytes=tensor.nbytes,
        )

    def holds(self, ticket: int) -> bool:
        """Whether it is out."""
        return ticket in self._out

    def there(self, ticket: int) -> bool:
        copy = self._copies.get(ticket)
        if copy is not None and copy.mark.query():
            del self._copies[ticket]
            copy = None
        return copy is None and ticket in self._out

    def get(self, ticket: Ticket) -> Tensor:
        check_header(ticket, ticket.nbytes)
        peer = self._peers.get(ticket.owner)
        if peer is None:
            raise BadTicket("a ticket is of a worker that is gone")
        return peer.read(ticket)

    def taken(self, ticket: Ticket) -> bool:
        peer = self._peers.get(ticket.owner)
        return peer is None or peer.taken(ticket)

    def free(self, ticket: int, by: Rank) -> None:
        out = self._out.get(ticket)
        if out is None or out.to != by:
            raise BadTicket("a ticket was freed that is not out")
        del self._out[ticket], self._rows[ticket % ROWS]
        self._write(ticket, _FREE)
        copy = self._copies.pop(ticket, None)
        if copy is None:
            self._ranges.give(out.block)
        else:
            self._ending.append((copy, out.block))

    def sweep(self, rank: Rank) -> int:
        lost = [number for number, out in self._out.items() if out.to == rank]
        for number in lost:
            self.free(number, rank)
        return len(lost)

    def connect(self, rank: Rank, peer: Peer) -> None:
        """Raises Unavailable, too, where the peer's memory can't be opened here."""
        self.disconnect(rank)
        if peer.device is None:
            raise Unavailable("a peer shares no device memory")
        self._peers[rank] = _PeerArena(peer.pid, peer.device, self._rank, self._memory)

    def disconnect(self, rank: Rank) -> None:
        peer = self._peers.pop(rank, None)
        if peer is not None:
            peer.close()

    @property
    def out(self) -> int:
        self._settle()
        return len(self._out) + len(self._ending)

    @property
    def copying(self) -> bool:
        reading = any(peer.reading for peer in self._peers.values())
        return bool(self._copies) or bool(self._ending) or reading

    def close(self) -> None:
        for rank in list(self._peers):
            self.disconnect(rank)
        for copy in (*self._copies.values(), *(copy for copy, _ in self._ending)):
            copy.mark.synchronize()
        self._table.close()
        self._memory.release(self._arena)

    def _settle(self) -> None:
        """Give back the room of what nobody writes any more."""
        ending, self._ending = self._ending, []
        for copy, block in ending:
            if copy.mark.query():
                self._ranges.give(block)
            else:
                self._ending.append((copy, block))

    def _write(self, ticket: int, row: tuple[int, int, int, int]) -> None:
        _ROW.pack_into(self._table.memory, ALIGN + ticket % ROWS * _ROW.size, *row)


class _PeerArena:
    """Another worker's arena, opened."""

    def __init__(self, pid: int, told: DeviceArena, here: Rank, memory: DeviceMemory) -> None:
        self._table = open_file(pid, told.table_fd, _TABLE_BYTES, told.table_token)
        try:
            self._arena = memory.open(told.handle, told.nbytes)
        except Unavailable:
            self._table.close()
            raise
        self._here, self._memory, self._last = here, memory, 0
        self.reading: dict[int, Mark] = {}

    @property
    def address(self) -> int:
        return self._arena.data_ptr()

    def read(self, ticket: Ticket) -> Tensor:
        if ticket.id <= self._last or not self._names(ticket):
            raise BadTicket("a ticket is not, or no longer, in its worker's table")
        if ticket.offset + ticket.nbytes > self._arena.nbytes:
            raise BadTicket("a ticket reaches outside its arena")
        self._last = ticket.id
        dtype = DTYPES[ticket.dtype]
        if not ticket.nbytes:
            return torch.empty(ticket.shape, dtype=dtype, device=self._arena.device)
        source = self._arena[ticket.offset : ticket.offset + ticket.nbytes]
        copy, self.reading[ticket.id] = self._memory.copy_in(source)
        return copy.view(dtype).view(ticket.shape)

    def taken(self, ticket: Ticket) -> bool:
        mark = self.reading.get(ticket.id)
        if mark is None:
            return True
        if not mark.query():
            return False
        del self.reading[ticket.id]
        if not self._names(ticket):
            raise BadTicket("a ticket was freed while its tensor was read")
        return True

    def close(self) -> None:
        for mark in self.reading.values():
            mark.synchronize()
        self._table.close()
        self._memory.shut(self._arena)

    def _names(self, ticket: Ticket) -> bool:
        row = _ROW.unpack_from(self._table, ALIGN + ticket.id % ROWS * _ROW.size)
        return row == (ticket.id, ticket.offset, ticket.nbytes, self._here + 1)
