"""The transfer of a tensor from one worker to another: one interface, one file per transport.

Ownership of a tensor on its way:

    put     the sender's transport holds the bytes and makes a ticket, addressed to one rank
    there   whether all bytes have arrived in its arena: the ticket may be sent
    get     the receiver copies them out; None while they are on their way over a network
    taken   whether that copy is over: the receiver owes the sender a `Freed`
    free    the sender gives the block back; once for every ticket
    sweep   all tickets addressed to a rank that died are freed at once

A transport never grows: without space `put` returns None, and the sender's loop queues until something is freed.

Plans are compiled from the `DECLARATION` in each transport's file, even where torch isn't installed, so these files
import torch only inside functions.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from walkgraph.errors import InvalidInput, WalkgraphError
from walkgraph.wire.messages import Ticket
from walkgraph.wire.tensors import ITEM_BYTES, check_header

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from walkgraph.ids import Rank

ALIGN = 64
TOKEN_BYTES = 16


class BadTicket(WalkgraphError):
    """A ticket is invalid: forged, torn, or used twice."""


class SenderLost(BadTicket):
    """A ticket is of a worker that is gone. Others may hear of it before the conductor does."""

    code = "worker_lost"
    retryable = True

    def __init__(self) -> None:
        super().__init__("the worker of a value was lost; it is being started again, send the request again shortly")


class TooLarge(WalkgraphError):
    """A tensor is too large even for an empty arena."""

    code = "out_of_memory"


@cache
def dtype_name(dtype: torch.dtype) -> Any:
    """The dtype's name in headers. Raises InvalidInput for a dtype that can't leave its rank."""
    name = str(dtype).removeprefix("torch.")
    if name not in ITEM_BYTES:
        raise InvalidInput(f"a tensor of {dtype} can't leave its rank; use one of {sorted(ITEM_BYTES)}")
    return name


class Transport(Protocol):
    """Created as `Transport(rank, nbytes, numbers=...)`; one declared `on_device` gets the GPU's `DeviceMemory` after
    `nbytes`. `numbers` of tickets rise and are never 0; a worker's transports share them, so a number names one
    ticket."""

    def handle(self) -> Any:
        """The handle that peers connect to: bytes, which are sent to them, or within a process the transport itself.
        None: it only reads."""
        ...

    def fits(self, tensor: Tensor) -> bool:
        """True if it accepts tensors from this one's device and its arena could hold it."""
        ...

    def put(self, tensor: Tensor, to: Rank) -> Ticket | None:
        """Hold `tensor` for rank `to`; None: no space now. Raises TooLarge."""
        ...

    def holds(self, ticket: int) -> bool:
        """True if it made this ticket and nobody has freed it."""
        ...

    def there(self, ticket: int) -> bool:
        """True once all bytes of an open ticket are in the arena; before that no peer may get it."""
        ...

    def get(self, ticket: Ticket) -> Tensor | None:
        """The tensor of a peer's ticket, the caller's own from here on; None: its bytes are on their way, ask again.
        Raises BadTicket; the peer is unharmed."""
        ...

    def taken(self, ticket: Ticket) -> bool:
        """True once the copy that `get` began is over, whether or not its tensor was returned. Raises BadTicket, once,
        if the peer has meanwhile freed the block, so that the copy is torn."""
        ...

    def free(self, ticket: int, by: Rank) -> None:
        """`by` has taken the ticket's tensor. Raises BadTicket for one that isn't out, or not addressed to `by`."""
        ...

    def sweep(self, rank: Rank) -> int:
        """Free all tickets addressed to a dead rank; returns how many."""
        ...

    def connect(self, rank: Rank, handle: Any) -> None:
        """Find tickets of `rank` by its `handle` from now on. Raises BadTicket if the handle is invalid, and
        Unavailable if this host or device doesn't allow it."""
        ...

    def disconnect(self, rank: Rank) -> None: ...

    @property
    def out(self) -> int:
        """Number of tickets whose blocks aren't free again."""
        ...

    @property
    def check_after(self) -> float | None:
        """Seconds after which to ask again, as `there`, `get`, `taken` or free space may change without a message;
        None: they don't."""
        ...

    def close(self) -> None: ...


class AddressableTransport(Transport, Protocol):
    """A transport that is declared `addressable`."""

    def reserve(self, nbytes: int) -> tuple[Tensor, int] | None:
        """Permanently reserve zeroed uint8 `[nbytes]` of the arena that peers write to directly; returns it with its
        offset. None: no space."""
        ...

    def address(self, rank: Rank) -> int | None:
        """Address of a peer's arena as this device reads and writes it; None if it is not open."""
        ...


# ── shared parts of several transports ─────────────────────────────────────────────────────────


class Ranges:
    """The used ranges of an arena: first fit over a sorted list of gaps, joined with neighbours when freed."""

    def __init__(self, start: int, stop: int) -> None:
        self._gaps: list[tuple[int, int]] = [(start, stop)]
        """(start, stop) pairs, sorted, never adjacent."""
        self._taken: dict[int, int] = {}

    @property
    def used(self) -> int:
        return sum(stop - start for start, stop in self._taken.items())

    def take(self, nbytes: int) -> int | None:
        """Offset of a block of at least `nbytes`; None if no gap is wide enough."""
        size = max(1, -(-nbytes // ALIGN)) * ALIGN
        for index, (start, stop) in enumerate(self._gaps):
            if stop - start >= size:
                if stop - start == size:
                    del self._gaps[index]
                else:
                    self._gaps[index] = (start + size, stop)
                self._taken[start] = start + size
                return start
        return None

    def give(self, start: int) -> None:
        """Free the block at `start`; KeyError if there is none."""
        stop = self._taken.pop(start)
        at = bisect_left(self._gaps, (start, stop))
        if at < len(self._gaps) and self._gaps[at][0] == stop:
            stop = self._gaps.pop(at)[1]
        if at and self._gaps[at - 1][1] == start:
            start = self._gaps.pop(at - 1)[0]
        insort(self._gaps, (start, stop))


class MemoryFile:
    """Shared memory of one process, which peers map read-only.

    An anonymous file (`memfd_create`): it has no name, so nothing can be left behind in /dev/shm, and it disappears
    with the last process that maps it, however that ends. Peers open it as `/proc/<pid>/fd/<n>` of its owner, which the
    kernel allows only to the same user; its size is sealed, so no peer can shrink it. The token in the first `ALIGN`
    bytes reveals a reused process id.
    """

    def __init__(self, nbytes: int, name: str) -> None:
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.fchmod(self.fd, 0o600)
        os.ftruncate(self.fd, nbytes)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self.memory = mmap.mmap(self.fd, nbytes)
        token = secrets.token_bytes(TOKEN_BYTES)
        self.memory[:TOKEN_BYTES] = token
        self.handle = FileHandle(pid=os.getpid(), fd=self.fd, nbytes=nbytes, token=token)

    def close(self) -> None:
        self.memory.close()
        os.close(self.fd)


class FileHandle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The place where peers find a `MemoryFile`: `/proc/<pid>/fd/<fd>`."""

    pid: int
    fd: int
    nbytes: int
    token: bytes
    """The file's first bytes, which prove its identity."""


def open_file(handle: FileHandle) -> mmap.mmap:
    """Map a peer's `MemoryFile` read-only. Raises SenderLost if it is missing, BadTicket if it is another file."""
    try:
        found = os.open(f"/proc/{handle.pid}/fd/{handle.fd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise SenderLost from error
    try:
        if os.fstat(found).st_size != handle.nbytes:
            raise BadTicket("a peer's arena is not the one that its handle names")
        memory = mmap.mmap(found, handle.nbytes, prot=mmap.PROT_READ)
    finally:
        os.close(found)
    if memory[:TOKEN_BYTES] != handle.token:
        memory.close()
        raise BadTicket("a peer's arena is not the one that its handle names")
    return memory


H = TypeVar("H")


def read_handle(handle: bytes, kind: type[H]) -> H:
    """Decode a handle. Raises BadTicket for any other bytes."""
    try:
        return msgspec.msgpack.decode(handle, type=kind)
    except msgspec.MsgspecError as error:
        raise BadTicket("a peer's handle can't be read") from error


class PeerArenaProtocol(Protocol):
    """An opened arena of another worker."""

    def read(self, ticket: Ticket) -> Tensor: ...

    def close(self) -> None: ...


A = TypeVar("A", bound=PeerArenaProtocol)


class PeerArenas(Generic[A]):
    """The open arenas of peers, by rank."""

    def __init__(self) -> None:
        self.open: dict[Rank, A] = {}

    def read(self, ticket: Ticket) -> Tensor:
        """The tensor of a ticket. Raises InvalidInput for an impossible header, BadTicket."""
        check_header(ticket, ticket.nbytes)
        peer = self.open.get(ticket.owner)
        if peer is None:
            raise SenderLost
        return peer.read(ticket)

    def drop(self, rank: Rank) -> None:
        peer = self.open.pop(rank, None)
        if peer is not None:
            peer.close()

    def close(self) -> None:
        for rank in list(self.open):
            self.drop(rank)


class TicketOwner(Protocol):
    def free(self, ticket: int, by: Rank) -> None: ...


def sweep(transport: TicketOwner, rank: Rank, addressees: Mapping[int, Rank]) -> int:
    """Free all tickets addressed to `rank`; returns how many."""
    lost = [number for number, to in addressees.items() if to == rank]
    for number in lost:
        transport.free(number, rank)
    return len(lost)


V = TypeVar("V")


class Out(NamedTuple, Generic[V]):
    """An open ticket."""

    to: Rank
    held: V
    """The block or tensor that its sender holds for it."""


class Tickets(ABC, Generic[V]):
    """The sender's side of a transport whose copies complete at once."""

    def __init__(self, rank: Rank, numbers: Iterator[int] | None) -> None:
        self._rank, self._numbers = rank, numbers or count(1)
        self._out: dict[int, Out[V]] = {}

    def holds(self, ticket: int) -> bool:
        return ticket in self._out

    def there(self, ticket: int) -> bool:
        return True

    def taken(self, ticket: Ticket) -> bool:
        return True

    def free(self, ticket: int, by: Rank) -> None:
        out = self._out.get(ticket)
        if out is None or out.to != by:
            raise BadTicket("a ticket was freed that is not out")
        del self._out[ticket]
        self._give_back(ticket, out.held)

    def sweep(self, rank: Rank) -> int:
        return sweep(self, rank, {number: out.to for number, out in self._out.items()})

    @property
    def out(self) -> int:
        return len(self._out)

    @property
    def check_after(self) -> float | None:
        return None

    def _ticket(self, tensor: Tensor, dtype: Any, number: int, transport: str, offset: int) -> Ticket:
        """`dtype`: its name, which was asked before memory was taken."""
        return Ticket(
            dtype=dtype,
            shape=tuple(tensor.shape),
            id=number,
            owner=self._rank,
            transport=transport,
            offset=offset,
            nbytes=tensor.nbytes,
        )

    @abstractmethod
    def _give_back(self, ticket: int, held: V) -> None:
        """Called once the ticket is no longer open."""
