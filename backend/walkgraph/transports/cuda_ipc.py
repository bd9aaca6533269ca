"""Between workers of one host with GPUs: each has one arena of device memory, and peers copy from it.

    sender    tensor ──copy──> arena | block | gap | block | ..        beside its current stream
    receiver  tensor of its own <──copy── (over the link)              beside its current stream, which waits for it

Nothing waits on the host: `there` reports the end of the first copy, `taken` that of the second. A ticket is sent only
once its bytes have arrived, so no device ever waits for another worker's, which may end at any time.

A table in the sender's `MemoryFile`, which nobody else can write, lists the content:

    | token .. | row 0 | row 1 | ..      row [id % ROWS]:  id, offset, nbytes, addressee + 1; zeros where none is out

A reader compares its ticket with the row before the copy and after it. Tickets of one sender to one reader rise, so
none is taken twice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from walkgraph.ids import Rank
from walkgraph.memory.device import DeviceMemory, Mark, Unavailable
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

DECLARATION = TransportDeclaration(
    reach="host", cost=200, on_device=True, arena_bytes=256 << 20, confirmed=True, addressable=True
)
ROWS = 1024
"""The most open tickets at a time."""
_ROW = struct.Struct("<QQQQ")
_TABLE_BYTES = ALIGN + ROWS * _ROW.size
_FREE = (0, 0, 0, 0)


class ArenaHandle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The location of a worker's arena, and of the table of its content."""

    memory: bytes
    """The handle by which another process opens the GPU's memory: CUDA's, 64 bytes."""
    nbytes: int
    table: FileHandle


class _Copy(NamedTuple):
    mark: Mark
    source: Tensor
    """Must live until the mark is reached."""


class Transport(Tickets[int]):
    def __init__(self, rank: Rank, nbytes: int, memory: DeviceMemory, numbers: Iterator[int] | None = None) -> None:
        """Without bytes it only reads from peers. Raises Unavailable, torch.OutOfMemoryError."""
        super().__init__(rank, numbers)
        self.size, self._memory = nbytes, memory
        self._arena = memory.allocate(nbytes)
        try:
            self._handle = memory.share(self._arena) if nbytes else b""
        except Unavailable:
            memory.release(self._arena)
            raise
        self._table = MemoryFile(_TABLE_BYTES, "walkgraph-device-arena")
        self._ranges = Ranges(0, nbytes // ALIGN * ALIGN)
        self._rows: dict[int, int] = {}
        """Row -> its ticket."""
        self._copies: dict[int, _Copy] = {}
        """Copies into the arena for tickets that are not known to have arrived."""
        self._ending: list[tuple[_Copy, int]] = []
        """Copies of tickets freed before the copy was over, with their blocks."""
        self._peers = PeerArenas[_PeerArena]()

    def handle(self) -> bytes | None:
        if not self.size:
            return None
        found = ArenaHandle(memory=self._handle, nbytes=self.size, table=self._table.handle)
        return msgspec.msgpack.encode(found)

    def reserve(self, nbytes: int) -> tuple[Tensor, int] | None:
        block = self._ranges.take(nbytes)
        return None if block is None else (self._arena[block : block + nbytes].zero_(), block)

    def address(self, rank: Rank) -> int | None:
        peer = self._peers.open.get(rank)
        return None if peer is None else peer.address

    def fits(self, tensor: Tensor) -> bool:
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
            target = self._arena[block : block + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            self._copies[number] = _Copy(self._memory.copy_out(tensor, target), tensor)
        self._out[number] = Out(to, block)
        self._rows[number % ROWS] = number
        self._write(number, (number, block, tensor.nbytes, to + 1))
        return self._ticket(tensor, name, number, "cuda_ipc", block)

    def there(self, ticket: int) -> bool:
        copy = self._copies.get(ticket)
        if copy is not None and copy.mark.query():
            del self._copies[ticket]
            copy = None
        return copy is None and ticket in self._out

    def get(self, ticket: Ticket) -> Tensor:
        return self._peers.read(ticket)

    def taken(self, ticket: Ticket) -> bool:
        peer = self._peers.open.get(ticket.owner)
        return peer is None or peer.taken(ticket)

    def connect(self, rank: Rank, handle: bytes) -> None:
        self.disconnect(rank)
        self._peers.open[rank] = _PeerArena(read_handle(handle, ArenaHandle), self._rank, self._memory)

    def disconnect(self, rank: Rank) -> None:
        self._peers.drop(rank)

    @property
    def out(self) -> int:
        self._settle()
        return len(self._out) + len(self._ending)

    @property
    def check_after(self) -> float | None:
        reading = any(peer.reading for peer in self._peers.open.values())
        return 0.0 if self._copies or self._ending or reading else None

    def close(self) -> None:
        self._peers.close()
        for copy in (*self._copies.values(), *(copy for copy, _ in self._ending)):
            copy.mark.synchronize()
        self._table.close()
        self._memory.release(self._arena)

    def _give_back(self, ticket: int, held: int) -> None:
        del self._rows[ticket % ROWS]
        self._write(ticket, _FREE)
        copy = self._copies.pop(ticket, None)
        if copy is None:
            self._ranges.give(held)
        else:
            self._ending.append((copy, held))

    def _settle(self) -> None:
        """Free the blocks that nobody writes any more."""
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

    def __init__(self, handle: ArenaHandle, here: Rank, memory: DeviceMemory) -> None:
        if handle.table.nbytes != _TABLE_BYTES:
            raise BadTicket("a peer's table is of another size")
        self._table = open_file(handle.table)
        try:
            self._arena = memory.open(handle.memory, handle.nbytes)
        except Unavailable:
            self._table.close()
            raise
        self._here, self._memory, self._last = here, memory, 0
        self.reading: dict[int, Mark] = {}

    @property
    def address(self) -> int:
        return self._arena.data_ptr()

    def read(self, ticket: Ticket) -> Tensor:
        from walkgraph.memory.tensors import DTYPES

        if ticket.id <= self._last or not self._names(ticket):
            raise BadTicket("a ticket is not, or no longer, in its worker's table")
        if ticket.offset + ticket.nbytes > self._arena.nbytes:
            raise BadTicket("a ticket reaches outside its arena")
        self._last = ticket.id
        dtype = DTYPES[ticket.dtype]
        source = self._arena[ticket.offset : ticket.offset + ticket.nbytes]
        if not ticket.nbytes:
            return source.view(dtype).view(ticket.shape)
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
