"""Memory of a device that other processes of the host may open: what transports ask of it.

Memory is a tensor uint8 `[n]` of the device, on both sides. The one that opens it sees it as memory of its own device,
wherever it lies: reads and writes go there by the link between the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from walkgraph.errors import WalkgraphError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Unavailable(WalkgraphError):
    """Memory of this device can't be shared, or that of a peer not opened: there is no such device, its driver doesn't
    do it here (some containers), or the peer is gone."""


class Mark(Protocol):
    """A point of a device's work, as torch's events are."""

    def query(self) -> bool:
        """Whether it was reached."""
        ...

    def synchronize(self) -> None: ...


class DeviceMemory(Protocol):
    device: torch.device

    def allocate(self, nbytes: int) -> Tensor:
        """Zeros; nothing is taken for no bytes. Raises torch.OutOfMemoryError; Unavailable."""
        ...

    def release(self, memory: Tensor) -> None:
        """Of `allocate`; nobody uses it any more."""
        ...

    def share(self, memory: Tensor) -> bytes:
        """What another process opens all of `memory` by. Raises Unavailable."""
        ...

    def open(self, handle: bytes, nbytes: int) -> Tensor:
        """A peer's memory; not one of this process's own. Raises Unavailable."""
        ...

    def shut(self, memory: Tensor) -> None:
        """Of `open`; nothing that reads or writes it is under way."""
        ...

    def copy_out(self, source: Tensor, target: Tensor) -> Mark:
        """Copy beside the current stream, behind what it was given so far. Both live until the mark is reached."""
        ...

    def copy_in(self, source: Tensor) -> tuple[Tensor, Mark]:
        """A copy of what lies in `source` now, made beside the current stream, which waits for it."""
        ...
