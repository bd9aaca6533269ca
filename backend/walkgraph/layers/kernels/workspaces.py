"""Memory shared by the launches of one stream; launches of another stream may run at the same time."""

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


class Workspaces(Generic[T]):
    """One workspace per stream that asks, created at its first launch outside a capture."""

    def __init__(self, make: Callable[[torch.device], T], what: str) -> None:
        """`what`: the operation to run once before capturing, for the error message."""
        self._make, self._what = make, what
        self._made: dict[tuple[torch.device, int], T] = {}

    def __call__(self, device: torch.device) -> T:
        """The workspace of the current stream. A stream that has only captured borrows another's, as its graphs are
        replayed on that one.

        Raises RuntimeError when the device's first one is asked for while a graph is captured: zeros would be a part
        of that graph.
        """
        key = device, torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
        found = self._made.get(key)
        if found is None and device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            found = next((made for (on, _), made in self._made.items() if on == device), None)
            if found is None:
                raise RuntimeError(f"{self._what} once before capturing it, so that its workspace exists")
            return found
        if found is None:
            found = self._made[key] = self._make(device)
        return found
