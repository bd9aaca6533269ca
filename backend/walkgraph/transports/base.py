"""How a tensor gets from one worker to another: one interface, one file per transport.

Ownership of a tensor under way:

    put     the sender's transport holds the bytes and makes a ticket, addressed to one rank
    there   whether all of them have arrived in its room: the ticket may be sent
    get     the receiver copies them out
    taken   whether that copy is over: it owes the sender a `Freed`
    free    the sender gives the room back; once for every ticket
    sweep   all tickets addressed to a rank that died are freed at once

A transport never grows: without room `put` answers None, and the sender's loop queues until something is freed.
"""

import fcntl
import mmap
import os
import secrets
from bisect import bisect_left, insort
from typing import Any, Protocol

import torch
from torch import Tensor

from walkgraph.errors import InvalidInput, WalkgraphError
from walkgraph.ids import Rank
from walkgraph.wire.messages import Ticket
from walkgraph.wire.tensors import ITEM_BYTES

ALIGN = 64
TOKEN_BYTES = 16
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ITEM_BYTES}
"""Those that can leave a rank, by the names that headers have for them."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class BadTicket(WalkgraphError):
    """A ticket that names nothing: forged, torn, used twice, or of a worker that is gone."""


class TooLarge(WalkgraphError):
    """A tensor that wouldn't fit even if nothing else were under way."""

    code = "out_of_memory"


def dtype_name(dtype: torch.dtype) -> Any:
    """As a header has it. Raises InvalidInput for one that can't leave its rank."""
    name = _NAMES.get(dtype)
    if name is None:
        raise InvalidInput(f"a tensor of {dtype} can't leave its rank; have {sorted(ITEM_BYTES)}")
    return name


class Transport(Protocol):
    def put(self, tensor: Tensor, to: Rank) -> Ticket | None:
        """Hold `tensor` for rank `to`; None: no room now. Raises TooLarge."""
        ...

    def there(self, ticket: int) -> bool:
        """Whether the bytes of a ticket that is out are all held: before that nobody may be told of it."""
        ...

    def get(self, ticket: Ticket) -> Tensor:
        """The tensor of a peer's ticket, the caller's own from here on. Raises BadTicket; the peer is unharmed."""
        ...

    def taken(self, ticket: Ticket) -> bool:
        """Whether the copy that `get` began is over. Raises BadTicket, once, if the peer has given its room away
        meanwhile: what was read is torn."""
        ...

    def free(self, ticket: int, by: Rank) -> None:
        """`by` has taken the ticket's tensor. Raises BadTicket for one that isn't out, or not addressed to `by`."""
        ...

    def sweep(self, rank: Rank) -> int:
        """Free all tickets addressed to a dead rank; how many they were."""
        ...

    def connect(self, rank: Rank, peer: Any) -> None:
        """From now on tickets of `rank` are found at `peer`: a `Peer` message; in one process the transport itself."""
        ...

    def disconnect(self, rank: Rank) -> None: ...

    @property
    def out(self) -> int:
        """Tickets whose room isn't free again."""
        ...

    @property
    def copying(self) -> bool:
        """Whether `there`, `taken` or room may come by itself, without a message: ask again soon."""
        ...

    def close(self) -> None: ...


class Ranges:
    """Which ranges of an arena are taken: first fit over a sorted list of gaps, neighbours joined when freed.

    | block | gap | block | block | gap ............ |
    start                                         stop      all offsets are multiples of ALIGN
    """

    def __init__(self, start: int, stop: int) -> None:
        self._gaps: list[tuple[int, int]] = [(start, stop)]
        """(start, stop), sorted, never touching each other."""
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

    An anonymous file (`memfd_create`): it has no name, so nothing can be left behind in /dev/shm, and it is gone with
    the last process that maps it, however that one ends. Peers open it as `/proc/<pid>/fd/<n>` of its owner, which the
    kernel allows to the same user only; its size is sealed, so that no peer can shrink it. A process number that was
    given away anew is noticed by the token in the first `ALIGN` bytes.
    """

    def __init__(self, nbytes: int, name: str) -> None:
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.fchmod(self.fd, 0o600)
        os.ftruncate(self.fd, nbytes)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self.memory = mmap.mmap(self.fd, nbytes)
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self.memory[:TOKEN_BYTES] = self.token

    def close(self) -> None:
        self.memory.close()
        os.close(self.fd)


def open_file(pid: int, fd: int, nbytes: int, token: bytes) -> mmap.mmap:
    """A peer's `MemoryFile`, mapped read-only. Raises BadTicket for one that isn't there, or isn't the one told."""
    try:
        found = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise BadTicket("a peer's arena can't be opened; it has probably ended") from error
    try:
        if os.fstat(found).st_size != nbytes:
            raise BadTicket("a peer's arena is not the one that was told")
        memory = mmap.mmap(found, nbytes, prot=mmap.PROT_READ)
    finally:
        os.close(found)
    if memory[:TOKEN_BYTES] != token:
        memory.close()
        raise BadTicket("a peer's arena is not the one that was told")
    return memory
