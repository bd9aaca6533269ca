"""The streams of one device: work goes to its current stream, results come back by a stream of their own.

On a CPU everything is done at once, and the same calls do nothing.
"""

from typing import Any

import torch
from torch import Tensor


class Lines:
    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.asynchronous = device.type == "cuda"
        self._back = torch.cuda.Stream(device) if self.asynchronous else None

    def to_host(self, value: Any) -> Any:
        """A copy in pinned memory, there after the next `mark`; anything but a tensor of this device as it is."""
        if self._back is None or not isinstance(value, Tensor) or value.device.type == "cpu":
            return value
        self._back.wait_stream(torch.cuda.current_stream(self.device))
        target = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
        with torch.cuda.stream(self._back):
            target.copy_(value, non_blocking=True)
        # The allocator must not give its memory to others before the copy has read it.
        value.record_stream(self._back)
        return target

    def mark(self) -> torch.cuda.Event | None:
        """Of all that was launched and copied so far; None where it is done already."""
        if self._back is None:
            return None
        self._back.wait_stream(torch.cuda.current_stream(self.device))
        # Waiting for it must leave the core to others.
        event = torch.cuda.Event(blocking=True)
        event.record(self._back)
        return event
