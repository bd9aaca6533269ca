"""The streams of one device: work goes to its current stream, results come back on a stream of their own.

On a CPU everything is done at once, and the same calls do nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from walkgraph.engine.device.marks import Mark
from walkgraph.engine.device.packing import packed, unpacked

_SMALL = 1 << 18
"""The most bytes of a value that shares a copy with others: a larger one takes longer than its copy's launch."""


def sent(value: Tensor, device: torch.device) -> Tensor:
    """Copy a value to the device, in stream order and contiguous. Memory is pinned first, because a copy from unpinned
    memory makes the host wait for the work launched there."""
    if value.device.type != "cpu" or device.type != "cuda":
        return value.to(device, non_blocking=True)
    axes = memory_order(value)
    # Elements of an expanded tensor share memory, and such a tensor can't be pinned.
    copy = value.permute(axes).contiguous().pin_memory().to(device, non_blocking=True)
    return in_order(copy, axes).contiguous()


def memory_order(value: Tensor) -> tuple[int, ...]:
    """The axes of a tensor from the largest stride to the smallest. So permuted, a tensor without gaps is contiguous:
    the device turns it into the order of its axes far faster than the host."""
    strides = value.stride()
    return tuple(sorted(range(value.dim()), key=lambda axis: -strides[axis]))


def in_order(value: Tensor, axes: Sequence[int]) -> Tensor:
    """A view of a tensor that was permuted by these axes, as it was before."""
    return value.permute(sorted(range(len(axes)), key=axes.__getitem__))


def sent_together(values: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Like `sent` for each value, with one copy for all small ones of the host."""
    small = [i for i, value in enumerate(values) if value.device.type == "cpu" and value.nbytes <= _SMALL]
    if device.type != "cuda" or len(small) < 2:
        return [sent(value, device) for value in values]
    together = [values[i] for i in small]
    copies = dict(zip(small, unpacked(sent(packed(together, pin=True), device), together), strict=True))
    return [copies[i] if i in copies else sent(value, device) for i, value in enumerate(values)]


def listed(numbers: Sequence[Any], device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Make a tensor of numbers on the host, pinned so that its copy to the device waits for nothing."""
    return torch.tensor(numbers, dtype=dtype, pin_memory=device.type == "cuda")


def stacked(values: Sequence[Tensor], device: torch.device) -> Tensor:
    """Stack tensors of one shape and type; on the host, pinned so that the copy to the device waits for nothing, and in
    the memory order of the first one."""
    first = values[0]
    if first.device.type != "cpu" or device.type != "cuda":
        return torch.stack(list(values))
    return stacked_in_order(values, pin=True)


def stacked_in_order(values: Sequence[Tensor], *, pin: bool) -> Tensor:
    """Stack tensors of the host in the memory order of the first one, in pinned memory if `pin`."""
    axes = memory_order(values[0])
    turned = [value.permute(axes) for value in values]
    rows = torch.empty((len(values), *turned[0].shape), dtype=values[0].dtype, pin_memory=pin)
    torch.stack(turned, out=rows)
    return in_order(rows, (0, *(axis + 1 for axis in axes)))


def put_rows(target: Tensor, values: Sequence[Tensor]) -> None:
    """Copy tensors of one shape and type into the first rows of a tensor on a device, in stream order."""
    rows = stacked(values, target.device)
    if not rows.is_contiguous():
        rows = sent(rows, target.device)
    target[: len(values)].copy_(rows, non_blocking=True)


class HostCopies:
    def __init__(self, device: torch.device, marks: "Marks | None" = None) -> None:
        """`marks`: makes its marks."""
        self.device, self._marks = device, marks or _marked
        self.asynchronous = device.type == "cuda"
        self._back = torch.cuda.Stream(device) if self.asynchronous else None

    def to_host(self, value: Any, dtype: str | None = None) -> Any:
        """Copy a tensor of this device to pinned memory; the copy is complete at the next `mark`. Other values are
        returned as they are. `dtype`: that of the copy, if they are floats."""
        if self._back is None or not isinstance(value, Tensor) or value.device.type == "cpu":
            return value
        value = _in_dtype(value, dtype)
        self._back.wait_stream(torch.cuda.current_stream(self.device))
        target = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
        with torch.cuda.stream(self._back):
            target.copy_(value, non_blocking=True)
        # The allocator must not reuse the memory before the copy has read it.
        value.record_stream(self._back)
        return target

    def all_to_host(self, values: Sequence[tuple[Any, str | None]]) -> list[Any]:
        """`to_host` for each value and dtype, with one copy for all small ones of a type."""
        if self._back is None:
            return [value for value, _ in values]
        found, alike = [value for value, _ in values], dict[torch.dtype, list[int]]()
        for i, (value, dtype) in enumerate(values):
            if isinstance(value, Tensor) and value.device.type != "cpu":
                found[i] = value = _in_dtype(value, dtype)
                alike.setdefault(value.dtype, []).append(i)
        for places in alike.values():
            small = [i for i in places if found[i].nbytes <= _SMALL]
            for i in places if len(small) < 2 else set(places).difference(small):
                found[i] = self.to_host(found[i])
            if len(small) > 1:
                parts = [found[i] for i in small]
                together = self.to_host(torch.cat([part.reshape(-1) for part in parts]))
                for i, part in zip(small, together.split([part.numel() for part in parts]), strict=True):
                    found[i] = part.view(found[i].shape)
        return found

    def mark(self) -> Mark | None:
        """Mark the end of everything launched and copied so far; None if it is done already."""
        if self._back is None:
            return None
        self._back.wait_stream(torch.cuda.current_stream(self.device))
        return self._marks(self.device, self._back)


class SettledCopies:
    """Copies to the host of values that are complete, and that nothing launched so far writes. They don't wait for what
    is queued on the device; later work waits for them."""

    def __init__(self, device: torch.device, marks: "Marks | None" = None) -> None:
        """`marks`: makes its marks."""
        self.device, self._marks = device, marks or _marked
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._nbytes = 0
        """Of copies since the last mark."""

    def to_host(self, value: Tensor, dtype: str | None = None) -> Tensor:
        """Copy a tensor to pinned memory, or elsewhere on a CPU; the copy is complete at the next `mark`. `dtype`: that
        of the copy, if they are floats."""
        if self._stream is None:
            return value.clone()
        with torch.cuda.stream(self._stream):
            value = _in_dtype(value, dtype)
            target = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
            target.copy_(value, non_blocking=True)
        torch.cuda.current_stream(self.device).wait_stream(self._stream)
        self._nbytes += target.nbytes
        return target

    def mark(self) -> Mark | None:
        """Mark the end of all copies so far; None if they are done, as few bytes are when this returns: a later look at
        a mark would take longer."""
        nbytes, self._nbytes = self._nbytes, 0
        if self._stream is None or not nbytes:
            return None
        if nbytes <= _SMALL:
            self._stream.synchronize()
            return None
        return self._marks(self.device, self._stream)


class SideStream:
    """A stream beside the current one. Neither waits for the other, unless work here reads tensors from there."""

    def __init__(self, device: torch.device, marks: "Marks | None" = None) -> None:
        """`marks`: makes the marks of its stream."""
        self.device, self._marks = device, marks or _marked
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def opened(self, read: Iterable[Tensor]) -> Iterator[None]:
        """Launch work inside on the side stream, behind whatever made the device tensors among `read`."""
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
            # Work launched inside may still read them.
            for one in here:
                one.record_stream(self._stream)

    def to_host(self, rows: Tensor, dtype: str | None = None) -> Tensor:
        """Inside `opened`: copy rows to memory of their own on the host; complete at the next `mark`. `dtype`: that of
        the copy, if they are floats."""
        rows = _in_dtype(rows, dtype)
        if self._stream is None:
            return rows.clone()
        target = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
        return target.copy_(rows, non_blocking=True)

    def kept(self, rows: Tensor) -> Tensor:
        """Inside `opened`: copy rows on the device, for readers on the default stream after the next `mark`."""
        copy = rows.clone()
        if self._stream is not None:
            # Readers may still need it when the last reference here is gone.
            copy.record_stream(torch.cuda.default_stream(self.device))
        return copy

    def mark(self) -> Mark | None:
        """Mark the end of everything launched on the side stream so far; None if it is done already."""
        return None if self._stream is None else self._marks(self.device, self._stream)


def _in_dtype(value: Tensor, dtype: str | None) -> Tensor:
    return value if dtype is None or not value.is_floating_point() else value.to(getattr(torch, dtype))


Marks = Callable[[torch.device, torch.cuda.Stream], Mark]


def _marked(device: torch.device, stream: torch.cuda.Stream) -> Mark:
    # `blocking`: a wait must leave the core to others.
    event = torch.cuda.Event(blocking=True)
    event.record(stream)
    return event
