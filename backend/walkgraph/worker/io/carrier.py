"""All transports of a worker: a tensor leaves by the cheapest that takes it and that the receiver can read.

A transport that is declared `confirmed` is used once the peer has said that it has opened this worker's arena
(`Opened`): what a container or a driver doesn't allow costs speed, not runs.
"""

import errno
import logging
import os
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from walkgraph import plugins
from walkgraph.ids import Rank
from walkgraph.memory.cuda import CudaMemory
from walkgraph.memory.device import DeviceMemory, Unavailable
from walkgraph.placement.transports import PACKAGE, TransportDeclaration
from walkgraph.transports.base import AddressableTransport, BadTicket, Transport
from walkgraph.wire import messages as m
from walkgraph.wire.fault_points import FaultPoints
from walkgraph.worker.io import values

_log = logging.getLogger(__name__)


class CarrierLike(Protocol):
    """What a worker's connections ask of `Carrier`."""

    def pack(self, value: Any, to: Rank, *, alone: bool = False) -> m.Value: ...

    def unpack(self, value: m.Value) -> Any: ...

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
    def copying(self) -> bool: ...

    def close(self) -> None: ...


class Carrier:
    """A `transports.base.Transport` of several. Their tickets are counted together, so that a number names one."""

    def __init__(
        self,
        rank: Rank,
        arenas: Mapping[str, int],
        memory: DeviceMemory | None = None,
        faults: FaultPoints | None = None,
    ) -> None:
        """`arenas`: transport -> bytes for what leaves by it; at least one needs no confirmation. `memory` of this
        worker's device, where peers' can be read; without it there are no transports on devices."""
        if faults is not None and faults.due("open.arena"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        numbers, self._faults = count(1), faults
        declared = {name: _declaration(name) for name in arenas}
        self._transports: dict[str, Transport] = {}
        """The cheapest first."""
        for name in sorted(arenas, key=lambda name: (declared[name].cost, name)):
            made = _transport(name, declared[name], rank, arenas[name], memory, numbers)
            if made is not None:
                self._transports[name] = made
        self._confirmed = frozenset(name for name in self._transports if declared[name].confirmed)
        last = [name for name in self._transports if name not in self._confirmed][-1]
        self._last = self._transports[last]
        """Any peer can read what is put here."""
        self._before_last = tuple((name, one) for name, one in self._transports.items() if name != last)
        addressable = [one for name, one in self._transports.items() if declared[name].addressable]
        self._addressable = cast("AddressableTransport", addressable[0]) if addressable else None
        self._accepted: set[tuple[str, Rank]] = set()
        """Transports and the peers that can read what this worker puts there."""
        self._opened: dict[Rank, list[str]] = {}
        """Peer -> the transports of its that can be read here, of those that it waits to hear of."""

    def peer(self, address: str, start: int) -> m.Peer:
        """What peers find this worker by."""
        handles = {name: one.handle() for name, one in self._transports.items()}
        return m.Peer(
            address=address,
            start=start,
            handles={name: handle for name, handle in handles.items() if handle is not None},
        )

    def put(self, tensor: Tensor, to: Rank, *, alone: bool = False) -> m.Ticket | None:
        """`alone`: nothing else is on its way, so that no space will come; what one arena can't hold goes by the
        next."""
        if self._faults is not None and self._faults.due("allocate.arena"):
            return None
        for name, one in self._before_last:
            if (name not in self._confirmed or (name, to) in self._accepted) and one.fits(tensor):
                ticket = one.put(tensor, to)
                if ticket is not None or not alone:
                    return ticket
        return self._last.put(tensor, to)

    def pack(self, value: Any, to: Rank, *, alone: bool = False) -> m.Value:
        """A value as it travels to a peer, its larger tensors put for it. Raises as `values.pack` does."""

        def take_back(ticket: m.Ticket) -> None:
            self.free(ticket.id, to)

        return values.pack(value, lambda one: self.put(one, to, alone=alone), take_back)

    def unpack(self, value: m.Value) -> Any:
        """What a peer has packed. Raises as `values.unpack` does."""
        return values.unpack(value, self.get)

    def there(self, ticket: int) -> bool:
        return self._of(ticket).there(ticket)

    def get(self, ticket: m.Ticket) -> Tensor:
        found = self._transports.get(ticket.transport)
        if found is None:
            raise BadTicket("a ticket is of a transport that this worker doesn't have")
        return found.get(ticket)

    def taken(self, ticket: m.Ticket) -> bool:
        found = self._transports.get(ticket.transport)
        return found is None or found.taken(ticket)

    def free(self, ticket: int, by: Rank) -> None:
        self._of(ticket).free(ticket, by)

    def sweep(self, rank: Rank) -> int:
        return sum(one.sweep(rank) for one in self._transports.values())

    def connect(self, rank: Rank, peer: m.Peer) -> None:
        for name, one in self._transports.items():
            if name not in peer.handles:
                continue
            try:
                if self._faults is not None and self._faults.due("open.peer"):
                    raise BadTicket("a peer's arena can't be opened; it has probably ended")
                one.connect(rank, peer.handles[name])
            except BadTicket:
                self.disconnect(rank)
                raise
            except Unavailable as error:
                _log.warning("tensors of rank %d come by the host's memory, not from GPU to GPU: %s", rank, error)
                continue
            if name in self._confirmed:
                self._opened.setdefault(rank, []).append(name)

    def disconnect(self, rank: Rank) -> None:
        self._accepted = {one for one in self._accepted if one[1] != rank}
        self._opened.pop(rank, None)
        for one in self._transports.values():
            one.disconnect(rank)

    def opened(self, rank: Rank) -> tuple[str, ...]:
        """The transports of `rank` that can be read here, which it waits to hear."""
        return tuple(self._opened.get(rank, ()))

    def accept(self, rank: Rank, transport: str) -> None:
        """`rank` has said so of this worker's."""
        self._accepted.add((transport, rank))

    def reserve(self, nbytes: int) -> tuple[Tensor, int] | None:
        """A part of the device's arena that peers write by themselves, zeros uint8 `[nbytes]`, and its offset in what
        they have opened; for good. None: there is no arena, or no space in it."""
        return self._addressable.reserve(nbytes) if self._addressable is not None else None

    def address(self, rank: Rank) -> int | None:
        """Where the device arena of a peer begins, as this worker's device sees it; None if it can't."""
        return self._addressable.address(rank) if self._addressable is not None else None

    @property
    def out(self) -> int:
        return self._last.out + sum(one.out for _, one in self._before_last)

    @property
    def copying(self) -> bool:
        return self._last.copying or any(one.copying for _, one in self._before_last)

    def close(self) -> None:
        for one in self._transports.values():
            one.close()

    def _of(self, ticket: int) -> Transport:
        for _, one in self._before_last:
            if one.holds(ticket):
                return one
        return self._last


def shared_memory(device: str) -> DeviceMemory | None:
    """Of a worker's device; None where there is none that peers could open, with a line in the log."""
    if device == "cpu":
        return None
    try:
        return CudaMemory(torch.device(device))
    except Unavailable as error:
        _log.warning("tensors leave `%s` by the host's memory: %s", device, error)
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
    """None where the device doesn't share its memory, with a line in the log."""
    make = plugins.load(PACKAGE, name, "Transport")
    if not declared.on_device:
        return make(rank, nbytes, numbers=numbers)
    if memory is None:
        return None
    try:
        return make(rank, nbytes, memory, numbers=numbers)
    except (Unavailable, torch.OutOfMemoryError) as error:
        _log.warning("tensors leave `%s` by the host's memory: %s", memory.device, error)
        return None
