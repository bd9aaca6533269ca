"""The streams of one device: work goes to its current stream, results come back by a stream of their own.

On a CPU everything is done at once, and the same calls do nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from walkgraph.engine.device.marks import Mark


def sent(value: Tensor, device: torch.device) -> Tensor:
    """On the device, in its turn: from memory that isn't pinned, a copy would make the host wait for what is launched
    there."""
    if value.device.type == "cpu" and device.type == "cuda":
        value = value.pin_memory()
    return value.to(device, non_blocking=True)


def listed(numbers: Sequence[Any], device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Numbers on the host, for a copy to the device that waits for nothing."""
    return torch.tensor(numbers, dtype=dtype, pin_memory=device.type == "cuda")


def stacked(values: Sequence[Tensor], device: torch.device) -> Tensor:
    """Tensors of one kind as rows of one, for a copy to the device that waits for nothing."""
    first = values[0]
    if first.device.type != "cpu" or device.type != "cuda":
        return torch.stack(list(values))
    rows = torch.empty((len(values), *first.shape), dtype=first.dtype, pin_memory=True)
    return torch.stack(list(values), out=rows)


class HostCopies:
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

    def mark(self) -> Mark | None:
        """Of all that was launched and copied so far; None where it is done already."""
        if self._back is None:
            return None
        self._back.wait_stream(torch.cuda.current_stream(self.device))
        return _marked(self.device, self._back)


class SideStream:
    """A stream beside the current one, which neither waits for the other unless it reads from there."""

    def __init__(self, device: torch.device, marks: "Marks | None" = None) -> None:
        """`marks`: makes the marks of its stream."""
        self.device, self._marks = device, marks or _marked
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def opened(self, read: Iterable[Tensor]) -> Iterator[None]:
        """Work within goes to the side, behind what made those of the tensors that lie on the device."""
        if self._stream is None:
            yield
            return
        here = [one for one in read if one.is_cuda]
        if here:
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            # Whatever was launched within may still read them.
            for one in here:
                one.record_stream(self._stream)

    def to_host(self, rows: Tensor) -> Tensor:
        """Within `opened`: a copy in memory of its own, there after the next `mark`."""
        if self._stream is None:
            return rows.clone()
        target = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
        return target.copy_(rows, non_blocking=True)

    def kept(self, rows: Tensor) -> Tensor:
        """Within `opened`: a copy on the device, for readers on its ordinary stream after the next `mark`."""
        copy = rows.clone()
        if self._stream is not None:
            # They may still read when the last of it is let go here.
            copy.record_stream(torch.cuda.default_stream(self.device))
        return copy

    def mark(self) -> Mark | None:
        """Of all that was launched on the side so far; None where it is done already."""
        return None if self._stream is None else self._marks(self.device, self._stream)


Marks = Callable[[torch.device, torch.cuda.Stream], Mark]


def _marked(device: torch.device, stream: torch.cuda.Stream) -> Mark:
    # Waiting for it must leave the core to others.
    event = torch.cuda.Event(blocking=True)
    event.record(stream)
    return event
