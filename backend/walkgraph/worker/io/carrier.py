"""The one way of tensors out of a worker and into it: from GPU to GPU where both ends can, else by the host's memory.

A peer is sent device memory only after it said that it has opened this worker's (`Opened`): what a container or a
driver doesn't allow costs speed, not runs.
"""

import logging
from itertools import count

import torch
from torch import Tensor

from walkgraph.ids import Rank
from walkgraph.memory.cuda import CudaMemory
from walkgraph.memory.device import DeviceMemory, Unavailable
from walkgraph.transports import cuda_ipc, shm
from walkgraph.transports.base import BadTicket
from walkgraph.wire import messages as m

_log = logging.getLogger(__name__)


class Carrier:
    """A `transports.base.Transport` of two. Tickets of both are counted together, so that a number names one."""

    def __init__(self, rank: Rank, host_bytes: int, memory: DeviceMemory | None = None, device_bytes: int = 0) -> None:
        """`memory` of this worker's device, where peers' can be read; `device_bytes` of it are for what leaves."""
        numbers = count(1)
        self._host_bytes = host_bytes
        self._host = shm.Transport(rank, host_bytes, numbers)
        self._device = _arena(rank, device_bytes, memory, numbers) if memory is not None else None
        self._accepted: set[Rank] = set()
        """Who can read the device arena."""
        self._opened: set[Rank] = set()
        """Whose device arena can be read."""

    def told(self, address: str, start: int, pid: int) -> m.Peer:
        """What peers find this worker by."""
        return m.Peer(
            address=address,
            start=start,
            pid=pid,
            arena_fd=self._host.fd,
            arena_bytes=self._host_bytes,
            arena_token=self._host.token,
            device=self._device.told() if self._device is not None else None,
        )

    def put(self, tensor: Tensor, to: Rank, *, alone: bool = False) -> m.Ticket | None:
        """`alone`: nothing else is under way, so that no room will come; what the device's arena can't hold goes by
        the host's."""
        device = self._device if to in self._accepted else None
        if device is not None and device.fits(tensor):
            ticket = device.put(tensor, to)
            if ticket is not None or not alone:
                return ticket
        return self._host.put(tensor, to)

    def there(self, ticket: int) -> bool:
        return self._of(ticket).there(ticket)

    def get(self, ticket: m.Ticket) -> Tensor:
        if ticket.transport == "shm":
            return self._host.get(ticket)
        if self._device is None or ticket.transport != "cuda_ipc":
            raise BadTicket("a ticket is of a transport that this worker doesn't have")
        return self._device.get(ticket)

    def taken(self, ticket: m.Ticket) -> bool:
        return ticket.transport != "cuda_ipc" or self._device is None or self._device.taken(ticket)

    def free(self, ticket: int, by: Rank) -> None:
        self._of(ticket).free(ticket, by)

    def sweep(self, rank: Rank) -> int:
        return self._host.sweep(rank) + (self._device.sweep(rank) if self._device is not None else 0)

    def connect(self, rank: Rank, peer: m.Peer) -> None:
        self._host.connect(rank, peer)
        if self._device is None or peer.device is None:
            return
        try:
            self._device.connect(rank, peer)
            self._opened.add(rank)
        except BadTicket:
            self._host.disconnect(rank)
            raise
        except Unavailable as error:
            _log.warning("tensors of rank %d come by the host's memory, not from GPU to GPU: %s", rank, error)

    def disconnect(self, rank: Rank) -> None:
        self._accepted.discard(rank)
        self._opened.discard(rank)
        self._host.disconnect(rank)
        if self._device is not None:
            self._device.disconnect(rank)

    def opens(self, rank: Rank) -> bool:
        """Whether `rank` should be told that its device arena can be read here."""
        return rank in self._opened

    def accept(self, rank: Rank) -> None:
        """`rank` has said so of this worker's."""
        self._accepted.add(rank)

    def reserve(self, nbytes: int) -> tuple[Tensor, int] | None:
        """A part of the device's arena that peers write by themselves, zeros uint8 `[nbytes]`, and its offset in what
        they have opened; for good. None: there is no arena, or no room in it."""
        return self._device.reserve(nbytes) if self._device is not None else None

    def address(self, rank: Rank) -> int | None:
        """Where the device arena of a peer begins, as this worker's device sees it; None if it can't."""
        return self._device.address(rank) if self._device is not None else None

    @property
    def out(self) -> int:
        return self._host.out + (self._device.out if self._device is not None else 0)

    @property
    def copying(self) -> bool:
        return self._device is not None and self._device.copying

    def close(self) -> None:
        self._host.close()
        if self._device is not None:
            self._device.close()

    def _of(self, ticket: int) -> "shm.Transport | cuda_ipc.Transport":
        return self._device if self._device is not None and self._device.holds(ticket) else self._host


def shared_memory(device: str) -> DeviceMemory | None:
    """Of a worker's device; None where there is none that peers could open, with a line in the log."""
    if device == "cpu":
        return None
    try:
        return CudaMemory(torch.device(device))
    except Unavailable as error:
        _log.warning("tensors leave `%s` by the host's memory: %s", device, error)
        return None


def _arena(rank: Rank, nbytes: int, memory: DeviceMemory, numbers: "count[int]") -> cuda_ipc.Transport | None:
    try:
        return cuda_ipc.Transport(rank, nbytes, memory, numbers)
    except (Unavailable, torch.OutOfMemoryError) as error:
        _log.warning("tensors leave `%s` by the host's memory: %s", memory.device, error)
        return None
