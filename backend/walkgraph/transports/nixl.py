"""Between workers of different hosts: each has one arena that is registered with NIXL, and peers read from it over the
network (UCX: RDMA or TCP).

    arena:  | block | block | ...          block:  | header | the tensor's bytes |
                                                   0        64
    header: | token | id | nbytes | addressee + 1 |        zeros where no ticket is out

A receiver reads the bytes into memory of its own, and after that the header, which the sender clears before it uses a
block again: if the header is that of the ticket, the bytes are too. Tickets of one sender to one reader rise, so none
is taken twice.

Nothing waits for the network: `get` begins a read, and returns None until both reads are over. NIXL can't stop a read,
which writes its memory until it ends, so memory of a read from a peer that is gone is kept until then.

What arrives lands in memory that stays registered, and is used again once its tensors are gone: registering and
touching new memory for each tensor would take as long as a fast network.
"""

from __future__ import annotations

import importlib
import mmap
import secrets
import struct
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import finalize

import msgspec
import numpy as np

from walkgraph.ids import Rank
from walkgraph.memory.device import Unavailable
from walkgraph.placement.transports import TransportDeclaration
from walkgraph.transports.base import (
    ALIGN,
    TOKEN_BYTES,
    BadTicket,
    Out,
    Ranges,
    SenderLost,
    Tickets,
    TooLarge,
    dtype_name,
    read_handle,
)
from walkgraph.wire.messages import Ticket
from walkgraph.wire.tensors import check_header

if TYPE_CHECKING:
    from torch import Tensor

_PACKAGE = "nixl_cu13"
DECLARATION = TransportDeclaration(
    reach="cluster", cost=1500, extra="cluster", installed=find_spec(_PACKAGE) is not None
)

_Memory = np.ndarray[Any, np.dtype[np.uint8]]
_HEADER = struct.Struct(f"<{TOKEN_BYTES}sQQQ")
_THREAD_MICROSECONDS = 1_000_000
"""NIXL's thread waits this long for the network; with 0 it would never rest."""
_SHORT = 300e-6
"""Seconds in which most reads of small tensors are over."""
_PAUSE = 1e-3
"""Seconds between looks at a read that takes longer."""


class ArenaHandle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The location of a worker's arena."""

    agent: bytes
    """NIXL's description of the worker and its registered memory."""
    address: int
    """The arena's address in the worker's process."""
    nbytes: int
    token: bytes
    """In the header of every block; it proves the arena's identity."""


class Transport(Tickets[int]):
    def __init__(self, rank: Rank, nbytes: int, numbers: Iterator[int] | None = None) -> None:
        super().__init__(rank, numbers)
        self._size = nbytes
        self._network = _Network(f"rank{rank}-{secrets.token_hex(8)}")
        self._memory = mmap.mmap(-1, max(nbytes, ALIGN))
        self._arena = np.frombuffer(self._memory, np.uint8)
        self._registered = self._network.register(self._arena)
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._ranges = Ranges(0, nbytes // ALIGN * ALIGN)
        self._landing = _Landing(nbytes, self._network)
        self._peers: dict[Rank, _PeerArena] = {}
        self._parted: list[_PeerArena] = []
        """Peers that are gone, from which reads may not be over."""

    def handle(self) -> bytes:
        agent, address = self._network.description(self._registered), self._arena.ctypes.data
        return msgspec.msgpack.encode(ArenaHandle(agent=agent, address=address, nbytes=self._size, token=self._token))

    def fits(self, tensor: Tensor) -> bool:
        return tensor.nbytes + ALIGN <= self._size

    def put(self, tensor: Tensor, to: Rank) -> Ticket | None:
        if not self.fits(tensor):
            raise TooLarge(f"a tensor of {tensor.nbytes} bytes is over the arena's {self._size}; raise `arena_bytes`")
        name = dtype_name(tensor.dtype)
        block = self._ranges.take(ALIGN + tensor.nbytes)
        if block is None:
            return None
        number, start = next(self._numbers), block + ALIGN
        _HEADER.pack_into(self._memory, block, self._token, number, tensor.nbytes, to + 1)
        if tensor.nbytes:
            from walkgraph.memory.tensors import copy_into

            copy_into(self._memory, start, tensor)
        self._out[number] = Out(to, block)
        return self._ticket(tensor, name, number, "nixl", start)

    def get(self, ticket: Ticket) -> Tensor | None:
        check_header(ticket, ticket.nbytes)
        peer = self._peers.get(ticket.owner)
        if peer is None:
            raise SenderLost
        return peer.get(ticket)

    def taken(self, ticket: Ticket) -> bool:
        peer = self._peers.get(ticket.owner)
        return peer is None or peer.taken(ticket)

    def connect(self, rank: Rank, handle: bytes) -> None:
        self.disconnect(rank)
        self._peers[rank] = _PeerArena(read_handle(handle, ArenaHandle), self._rank, self._network, self._landing)

    def disconnect(self, rank: Rank) -> None:
        peer = self._peers.pop(rank, None)
        if peer is not None:
            self._parted.append(peer)
        self._parted = [one for one in self._parted if not one.left()]

    @property
    def check_after(self) -> float | None:
        latest = max((read.began for peer in self._peers.values() for read in peer.reads.values()), default=None)
        if latest is None:
            return None
        return 0.0 if time.monotonic() - latest < _SHORT else _PAUSE

    @property
    def used(self) -> int:
        """Bytes of the arena in use."""
        return self._ranges.used

    def close(self) -> None:
        # Reads write their memory until this is closed.
        self._network.close()
        self._peers.clear()
        self._parted.clear()
        del self._arena
        self._memory.close()

    def _give_back(self, ticket: int, held: int) -> None:
        self._memory[held : held + _HEADER.size] = bytes(_HEADER.size)
        self._ranges.give(held)


class _PeerArena:
    """Another worker's arena, and the reads from it that are not over."""

    def __init__(self, handle: ArenaHandle, here: Rank, network: _Network, landing: _Landing) -> None:
        self._network, self._landing, self._handle, self._here = network, landing, handle, here
        self._agent = network.meet(handle.agent)
        self._last = 0
        self.reads: dict[int, _Read] = {}
        """Ticket -> its read."""

    def get(self, ticket: Ticket) -> Tensor | None:
        read = self.reads.get(ticket.id) or self._begun(ticket)
        if read.ticket != ticket:
            raise BadTicket("a ticket differs from the one that is being read")
        if not self._over(read):
            return None
        expected = self._handle.token, ticket.id, ticket.nbytes, self._here + 1
        if read.header() != expected:
            raise BadTicket("a ticket is not, or no longer, that of its block")
        self._last = max(self._last, ticket.id)
        return read.tensor()

    def taken(self, ticket: Ticket) -> bool:
        read = self.reads.get(ticket.id)
        try:
            return read is None or self._over(read)
        except SenderLost:
            return True

    def left(self) -> bool:
        """True once all reads are over and the peer is forgotten. None of them is continued."""
        self.reads = {number: read for number, read in self.reads.items() if not _ended(read)}
        if not self.reads:
            self._network.forget(self._agent)
        return not self.reads

    def _begun(self, ticket: Ticket) -> _Read:
        block = ticket.offset - ALIGN
        if block < 0 or block % ALIGN or ticket.offset + ticket.nbytes > self._handle.nbytes:
            raise BadTicket("a ticket reaches outside its arena")
        if ticket.id <= self._last:
            raise BadTicket("a ticket is not, or no longer, that of its block")
        read = self.reads[ticket.id] = _Read(
            ticket, self._landing.place(ticket.nbytes), self._network, self._agent, self._handle.address
        )
        return read

    def _over(self, read: _Read) -> bool:
        """True once a read is over, which is then forgotten. Raises SenderLost."""
        try:
            over = read.over()
        except SenderLost:
            del self.reads[read.ticket.id]
            raise
        if over:
            del self.reads[read.ticket.id]
        return over


def _ended(read: _Read) -> bool:
    """True once nothing is written to a read's place any more."""
    try:
        return read.stopped()
    except SenderLost:
        return True


class _Read:
    """A tensor on its way here: first its bytes are read, then the header of its block."""

    def __init__(self, ticket: Ticket, place: _Place, network: _Network, agent: str, address: int) -> None:
        """`address`: that of the arena."""
        self.ticket, self.began = ticket, time.monotonic()
        self._place, self._network, self._agent = place, network, agent
        self._source = address + ticket.offset
        self._bytes_are_here = not ticket.nbytes
        self._request = self._header_asked() if self._bytes_are_here else self._asked(self._source, place.bytes)

    def over(self) -> bool:
        """True once the bytes and then the header are here. Raises SenderLost."""
        if not self.stopped():
            return False
        if self._bytes_are_here:
            return True
        self._bytes_are_here = True
        self._request = self._header_asked()
        return self.over()

    def stopped(self) -> bool:
        """True once what was asked for is here, and nothing more is written. Raises SenderLost."""
        try:
            done = self._network.done(self._request)
        except SenderLost:
            self._network.end(self._request)
            raise
        if done:
            self._network.end(self._request)
        return done

    def header(self) -> tuple[Any, ...]:
        return _HEADER.unpack_from(self._place.header.data)

    def tensor(self) -> Tensor:
        from walkgraph.memory.tensors import tensor_of

        return tensor_of(self._place.bytes, self.ticket.dtype, self.ticket.shape)

    def _header_asked(self) -> int:
        return self._asked(self._source - ALIGN, self._place.header)

    def _asked(self, source: int, target: _Memory) -> int:
        return self._network.read(self._agent, source, target.ctypes.data, target.nbytes)


class _Place(NamedTuple):
    """Registered memory for what arrives."""

    header: _Memory
    bytes: _Memory
    """The memory is used again once nothing refers to this array, as the tensor made of it does."""


class _Landing:
    """Registered memory that is used again and again for what arrives."""

    def __init__(self, nbytes: int, network: _Network) -> None:
        self._network, self._ranges = network, Ranges(0, nbytes // ALIGN * ALIGN)
        # Pages are used only as they are written.
        self._memory = np.frombuffer(mmap.mmap(-1, max(nbytes, ALIGN)), np.uint8)
        network.register(self._memory)
        self._left: deque[int] = deque()
        """Blocks that nothing refers to any more; any thread may have been the last to."""

    def place(self, nbytes: int) -> _Place:
        """A place for so many bytes; memory of its own where there is no room."""
        while self._left:
            self._ranges.give(self._left.popleft())
        start = self._ranges.take(ALIGN + nbytes)
        if start is not None:
            block = self._memory[start : start + ALIGN + nbytes]
            give_back = partial(self._left.append, start)
        else:
            block = np.empty(ALIGN + nbytes, np.uint8)
            give_back = partial(self._network.release, self._network.register(block))
        place = _Place(block[: _HEADER.size], block[ALIGN:])
        finalize(place.bytes, give_back)
        return place


class _Network:
    """A NIXL agent with one backend, UCX, whose thread answers peers while this process computes."""

    def __init__(self, name: str) -> None:
        """`name`: no other agent has it. Raises Unavailable if UCX finds no network that it may use."""
        # NIXL's own wrapper has no setting for its thread's delay.
        self._nixl: Any = importlib.import_module(f"{_PACKAGE}._bindings")
        config = self._nixl.nixlAgentConfig()
        config.useProgThread, config.pthrDelay = True, _THREAD_MICROSECONDS
        config.syncMode = self._nixl.NIXL_THREAD_SYNC_NONE
        self._agent: Any = self._nixl.nixlAgent(name, config)
        try:
            self._backends = [self._agent.createBackend("UCX", {})]
        except self._nixl.nixlBackendError as error:
            raise Unavailable(
                "UCX, by which NIXL sends, finds no network here that it may use; see what `UCX_NET_DEVICES` and "
                "`UCX_TLS` leave it, and what it logs with `UCX_LOG_LEVEL=info`"
            ) from error
        self._met = Counter[str]()
        """Agent of a peer -> how often it was met and not forgotten."""
        kinds = ("RemoteDisconnect", "Backend", "Cancelled", "NotFound", "Unknown")
        self._failures = tuple(getattr(self._nixl, f"nixl{kind}Error") for kind in kinds)

    def register(self, memory: _Memory) -> Any:
        """Let the network read and write `memory`; returns what `release` takes."""
        listed = self._nixl.nixlRegDList(self._nixl.DRAM_SEG, [(memory.ctypes.data, memory.nbytes, 0, "")])
        self._agent.registerMem(listed, self._backends)
        return listed

    def release(self, registered: Any) -> None:
        if self._agent is not None:
            self._agent.deregisterMem(registered, self._backends)

    def description(self, registered: Any) -> bytes:
        """The data that a peer needs to `meet` this agent and to read this memory, and no other."""
        return self._agent.getLocalPartialMD(registered, True, self._backends)

    def meet(self, description: bytes) -> str:
        """The name of the agent of a peer, which it begins to connect to. Raises BadTicket for any other bytes, and
        SenderLost if nobody is there."""
        try:
            name = self._agent.loadRemoteMD(description)
        except self._nixl.nixlBackendError as error:
            raise SenderLost from error
        except (self._nixl.nixlMismatchError, self._nixl.nixlInvalidParamError) as error:
            raise BadTicket("a peer's handle can't be read") from error
        self._met[name.decode()] += 1
        return name.decode()

    def forget(self, agent: str) -> None:
        """End what one `meet` began."""
        self._met[agent] -= 1
        if not self._met[agent]:
            del self._met[agent]
            self._agent.invalidateRemoteMD(agent)

    def read(self, agent: str, source: int, target: int, nbytes: int) -> int:
        """Begin to read a peer's registered memory into this process's. Raises SenderLost."""
        here = self._nixl.nixlXferDList(self._nixl.DRAM_SEG, [(target, nbytes, 0)])
        there = self._nixl.nixlXferDList(self._nixl.DRAM_SEG, [(source, nbytes, 0)])
        with self._losing():
            request = self._agent.createXferReq(self._nixl.NIXL_READ, here, there, agent, b"", self._backends)
            self._agent.postXferReq(request, b"")
        return request

    def done(self, request: int) -> bool:
        """True once a read is over. Raises SenderLost if it has failed."""
        with self._losing():
            return self._agent.getXferStatus(request) != self._nixl.NIXL_IN_PROG

    def end(self, request: int) -> None:
        """Forget a read that is over or has failed."""
        self._agent.releaseXferReq(request)

    def close(self) -> None:
        """End what is under way: nobody reads or writes this process's memory any more."""
        self._agent = None

    @contextmanager
    def _losing(self) -> Generator[None]:
        """A failure in here means that the peer is gone."""
        try:
            yield
        except self._failures as error:
            raise SenderLost from error
