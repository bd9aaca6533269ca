"""Device memory that other processes of the host may open; the interface for transports.

On both sides, memory is a uint8 `[n]` tensor. The process that opens it sees it as memory of its own device, wherever
it is: reads and writes use the link between the two devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from walkgraph.errors import WalkgraphError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Unavailable(WalkgraphError):
    """Memory of this device can't be shared, or a peer's can't be opened: the device doesn't exist, its driver doesn't
    support it here (as in some containers), or the peer is gone."""


class Mark(Protocol):
    """A point in a device's work, like torch's events."""

    def query(self) -> bool:
        """True once it has been reached."""
        ...

    def synchronize(self) -> None: ...


class DeviceMemory(Protocol):
    device: torch.device

    def allocate(self, nbytes: int) -> Tensor:
        """Allocate zeroed memory; zero bytes take none. Raises torch.OutOfMemoryError; Unavailable."""
        ...

    def release(self, memory: Tensor) -> None:
        """Free memory from `allocate`; nobody may use it any more."""
        ...

    def share(self, memory: Tensor) -> bytes:
        """A handle by which another process opens all of `memory`. Raises Unavailable."""
        ...

    def open(self, handle: bytes, nbytes: int) -> Tensor:
        """Open a peer's memory; not one of this process's own. Raises Unavailable."""
        ...

    def shut(self, memory: Tensor) -> None:
        """Close memory from `open`; no read or write of it may be in flight."""
        ...

    def copy_out(self, source: Tensor, target: Tensor) -> Mark:
        """Copy beside the current stream, after its work so far. Both tensors must live until the mark is reached."""
        ...

    def copy_in(self, source: Tensor) -> tuple[Tensor, Mark]:
        """A copy of the present content of `source`, made beside the current stream, which waits for it."""
        ...
