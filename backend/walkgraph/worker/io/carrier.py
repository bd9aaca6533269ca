"""All transports of a worker. A tensor leaves by the cheapest one that takes it and that the receiver can read: to a
rank on another host by one that reaches over a network.

A transport declared `confirmed` is used only after the peer has reported (`Opened`) that it can read this worker's
arena. If a container or a driver doesn't allow it, transfers are slower, but runs don't fail.
"""

import errno
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from walkgraph import plugins
from walkgraph.ids import Rank
from walkgraph.memory.cuda import CudaMemory
from walkgraph.memory.device import DeviceMemory, Unavailable
from walkgraph.placement.transports import PACKAGE, TransportDeclaration, Transports, reaching
from walkgraph.transports.base import AddressableTransport, BadTicket, SenderLost, Transport
from walkgraph.wire import messages as m
from walkgraph.wire.fault_points import FaultPoints
from walkgraph.worker.io import values

_log = logging.getLogger(__name__)


class CarrierLike(Protocol):
    """`Carrier`, as far as a worker's connections need it."""

    def pack(self, value: Any, to: Rank, *, alone: bool = False) -> m.Value: ...

    def get(self, ticket: m.Ticket) -> Tensor | None: ...

    def there(self, ticket: int) -> bool: ...

    def taken(self, ticket: m.Ticket) -> bool: ...

    def free(self, ticket: int, by: Rank) -> None: ...

    def sweep(self, rank: Rank) -> int: ...

    def connect(self, rank: Rank, peer: m.Peer) -> None: ...

    def disconnect(self, rank: Rank) -> None: ...

    def opened(self, rank: Rank) -> tuple[str, ...]: ...

    def accept(self, rank: Rank, transport: str) -> None: ...

    @property
    def out(self) -> int: ...

    @property
    def check_after(self) -> float | None: ...

    def close(self) -> None: ...


class _Exits(NamedTuple):
    """The transports to peers on this host, or on others, the cheapest first."""

    before: tuple[tuple[str, Transport], ...]
    last: Transport
    """Every one of these peers can read it."""
    names: frozenset[str]


class Carrier:
    """A `transports.base.Transport` made of several. They number their tickets together, so that a number names one
    ticket."""

    def __init__(
        self,
        rank: Rank,
        arenas: Mapping[str, int],
        memory: DeviceMemory | None = None,
        faults: FaultPoints | None = None,
        apart: Collection[Rank] = (),
    ) -> None:
        """`arenas`: transport -> bytes of its arena for outgoing tensors; at least one transport to each kind of peer
        must need no confirmation. `memory`: that of this worker's device, if peers can read it; without it there are no
        device transports. `apart`: the peers on other hosts."""
        if faults is not None and faults.due("open.arena"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        numbers, self._faults = count(1), faults
        declared = {name: _declaration(name) for name in arenas}
        self._transports: dict[str, Transport] = {}
        """Transports, the cheapest first."""
        for name in sorted(arenas, key=lambda name: (declared[name].cost, name)):
            made = _transport(name, declared[name], rank, arenas[name], memory, numbers)
            if made is not None:
                self._transports[name] = made
        self._confirmed = frozenset(name for name in self._transports if declared[name].confirmed)
        self._apart = frozenset(apart)
        self._near = _exits(self._transports, declared)
        self._far = _exits(self._transports, reaching(declared, apart=True)) if apart else self._near
        addressable = [one for name, one in self._transports.items() if declared[name].addressable]
        self._addressable = cast("AddressableTransport", addressable[0]) if addressable else None
        self._accepted: set[tuple[str, Rank]] = set()
        """(transport, peer that has confirmed that it can read this worker's arena)."""
        self._opened: dict[Rank, list[str]] = {}
        """Peer -> its transports that can be read here and need confirmation."""

    def peer(self, address: str, start: int, port: int = 0) -> m.Peer:
        """The address and handles that peers connect to. `port`: for those on other hosts."""
        handles = {name: one.handle() for name, one in self._transports.items()}
        return m.Peer(
            address=address,
            start=start,
            handles={name: handle for name, handle in handles.items() if handle is not None},
            port=port,
        )

    def put(self, tensor: Tensor, to: Rank, *, alone: bool = False) -> m.Ticket | None:
        """Put a tensor into an arena for a peer; None if there is no space now. `alone`: nothing else is in flight, so
        no space will become free; a tensor that one arena can't hold then goes by the next."""
        if self._faults is not None and self._faults.due("allocate.arena"):
            return None
        before, last, _ = self._far if to in self._apart else self._near
        for name, one in before:
            if (name not in self._confirmed or (name, to) in self._accepted) and one.fits(tensor):
                ticket = one.put(tensor, to)
                if ticket is not None or not alone:
                    return ticket
        return last.put(tensor, to)

    def pack(self, value: Any, to: Rank, *, alone: bool = False) -> m.Value:
        """Pack a value for a peer, with its larger tensors put into arenas. Raises as `values.pack` does."""

        def take_back(ticket: m.Ticket) -> None:
            self.free(ticket.id, to)

        return values.pack(value, lambda one: self.put(one, to, alone=alone), take_back)

    def there(self, ticket: int) -> bool:
        return self._of(ticket).there(ticket)

    def get(self, ticket: m.Ticket) -> Tensor | None:
        """The tensor of a peer's ticket; None while it is on its way. Raises BadTicket."""
        found = self._transports.get(ticket.transport)
        if found is None:
            raise BadTicket("a ticket names a transport that this worker doesn't have")
        return found.get(ticket)

    def taken(self, ticket: m.Ticket) -> bool:
        found = self._transports.get(ticket.transport)
        return found is None or found.taken(ticket)

    def free(self, ticket: int, by: Rank) -> None:
        self._of(ticket).free(ticket, by)

    def sweep(self, rank: Rank) -> int:
        return sum(one.sweep(rank) for one in self._transports.values())

    def connect(self, rank: Rank, peer: m.Peer) -> None:
        reached = (self._far if rank in self._apart else self._near).names
        for name, one in self._transports.items():
            if name not in peer.handles or name not in reached:
                continue
            try:
                if self._faults is not None and self._faults.due("open.peer"):
                    raise SenderLost
                one.connect(rank, peer.handles[name])
            except BadTicket:
                self.disconnect(rank)
                raise
            except Unavailable as error:
                _log.warning("tensors from rank %d come through host memory, not from GPU to GPU: %s", rank, error)
                continue
            if name in self._confirmed:
                self._opened.setdefault(rank, []).append(name)

    def disconnect(self, rank: Rank) -> None:
        self._accepted = {one for one in self._accepted if one[1] != rank}
        self._opened.pop(rank, None)
        for one in self._transports.values():
            one.disconnect(rank)

    def opened(self, rank: Rank) -> tuple[str, ...]:
        """The transports of `rank` that can be read here, to be confirmed to it."""
        return tuple(self._opened.get(rank, ()))

    def accept(self, rank: Rank, transport: str) -> None:
        """Note that `rank` can read this worker's arena of a transport."""
        self._accepted.add((transport, rank))

    def reserve(self, nbytes: int) -> tuple[Tensor, int] | None:
        """Reserve, for good, a part of the device's arena that peers write directly. Returns zeros uint8 `[nbytes]`,
        and its offset in the memory that peers have opened; None if there is no arena, or no space in it."""
        return self._addressable.reserve(nbytes) if self._addressable is not None else None

    def address(self, rank: Rank) -> int | None:
        """The address of a peer's device arena on this worker's device; None if it can't be reached."""
        return self._addressable.address(rank) if self._addressable is not None else None

    @property
    def out(self) -> int:
        return sum(one.out for one in self._transports.values())

    @property
    def check_after(self) -> float | None:
        """Seconds after which to ask the transports again; None: a message will come before anything changes."""
        asked = (one.check_after for one in self._transports.values())
        return min((seconds for seconds in asked if seconds is not None), default=None)

    def close(self) -> None:
        for one in self._transports.values():
            one.close()

    def _of(self, ticket: int) -> Transport:
        for one in self._transports.values():
            if one.holds(ticket):
                return one
        return self._near.last


def _exits(transports: Mapping[str, Transport], reaching: Transports) -> _Exits:
    """`reaching`: those transports that reach the peers."""
    usable = {name: one for name, one in transports.items() if name in reaching}
    last = [name for name in usable if not reaching[name].confirmed][-1]
    before = tuple((name, one) for name, one in usable.items() if name != last)
    return _Exits(before, usable[last], frozenset(usable))


def shared_memory(device: str) -> DeviceMemory | None:
    """The memory of a worker's device; None, with a warning in the log, if peers can't open it."""
    if device == "cpu":
        return None
    try:
        return CudaMemory(torch.device(device))
    except Unavailable as error:
        _log.warning("tensors leave `%s` through host memory: %s", device, error)
        return None


def _declaration(name: str) -> TransportDeclaration:
    return plugins.load(PACKAGE, name, "DECLARATION")


def _transport(
    name: str,
    declared: TransportDeclaration,
    rank: Rank,
    nbytes: int,
    memory: DeviceMemory | None,
    numbers: Iterator[int],
) -> Transport | None:
    """Make a transport; None, with a warning in the log, if the device doesn't share its memory."""
    make = plugins.load(PACKAGE, name, "Transport")
    if not declared.on_device:
        return make(rank, nbytes, numbers=numbers)
    if memory is None:
        return None
    try:
        return make(rank, nbytes, memory, numbers=numbers)
    except (Unavailable, torch.OutOfMemoryError) as error:
        _log.warning("tensors leave `%s` through host memory: %s", memory.device, error)
        return None
