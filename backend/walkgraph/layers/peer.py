"""Loops that span workers of one host: each runs its part, and they keep step through flags in each other's memory.

    one worker                                  its peer
    send(part, there, flag there, count)  ───>  wait(flag, count, halt), then reads what was sent
    wait(flag, count, halt)               <───  send(answer, ...)
    count += 1                                  count += 1

All of it is device work in stream order, and can be captured: `count` is a tensor of the device, so that a replayed
graph waits for the next number. A flag only rises. A value may be sent again once it is known to have been read, which
an answer that depends on it tells; a one-way flow needs a flag back, or as many places as it may be ahead.

Numbers must not be used twice: a loop that is entered anew begins above all that were sent before it, so that what a
loop that was given up still sends is less than any number waited for.
"""

import os

import torch
from torch import Tensor

from walkgraph.memory.device import DeviceMemory

FLAG_BYTES = 128
"""A flag has a line of memory of its own."""


class Halt:
    """What a worker's waits look at while they wait: set, they give up, and from then on no signal is sent.

    So a device never waits for a peer that is gone; and a captured loop can be warmed up without its peers.
    """

    def __init__(self, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self.word = torch.zeros(1, dtype=torch.int32, pin_memory=on_gpu)
        """In the host's memory, where the device reads it; the host alone writes it."""
        self.given_up = torch.zeros(1, dtype=torch.int32, device=device)
        """1 once a wait has given up: what came after it is worth nothing. Signals look here, which is near."""

    def set(self) -> None:
        self.word.fill_(1)
        # Behind what is waiting now, and before what is launched next: a signal of that would be seen by a peer.
        self.given_up.fill_(1)

    def clear(self) -> None:
        """Nothing that looks at it is under way."""
        self.word.fill_(0)
        self.given_up.zero_()

    @property
    def is_set(self) -> bool:
        return bool(self.word.item())


class PeerBuffer:
    """Device memory of one worker that others write: the owner allocates it and tells `handle`, the others open that.

    It is carved by offset, in the same way on both sides: `tensor` for values, `flag` for flags.
    """

    def __init__(self, memory: DeviceMemory, nbytes: int, handle: bytes | None = None) -> None:
        """`handle`: of a peer's; None makes memory of one's own, zeros. Raises `memory.device.Unavailable`, and
        torch.OutOfMemoryError."""
        self._memory, self._own = memory, handle is None
        self.raw = memory.allocate(nbytes) if handle is None else memory.open(handle, nbytes)
        """uint8 `[nbytes]`"""
        self.handle = memory.share(self.raw) if handle is None else handle

    def tensor(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """What lies at `offset`, a multiple of 16 bytes."""
        count = torch.Size(shape).numel() * dtype.itemsize
        if offset % 16 or offset < 0 or offset + count > self.raw.nbytes:
            raise ValueError(f"{count} bytes at {offset} don't lie within {self.raw.nbytes}, or not on 16 bytes")
        return self.raw[offset : offset + count].view(dtype).view(shape)

    def flag(self, offset: int) -> Tensor:
        """int64 `[1]` at `offset`, a multiple of `FLAG_BYTES`; 0 at first."""
        if offset % FLAG_BYTES:
            raise ValueError(f"a flag lies on a multiple of {FLAG_BYTES} bytes")
        return self.tensor(offset, (1,), torch.int64)

    def close(self) -> None:
        """Nothing that touches it is under way; the owner's goes last."""
        (self._memory.release if self._own else self._memory.shut)(self.raw)


def signal(flag: Tensor, count: Tensor, halt: Halt) -> None:
    """Set a flag, own or a peer's, to `count` int64 `[1]`, behind all that was written before. Not if a wait before it
    has given up."""
    if count.is_cuda:
        from walkgraph.layers.kernels import flags as kernels

        kernels.signal(flag, count, halt.given_up)
    elif not halt.given_up.item():
        flag.copy_(count)


def wait(flag: Tensor, count: Tensor, halt: Halt) -> None:
    """Let nothing that follows begin before `flag`, one's own, is `count` int64 `[1]` or more; or `halt` is set."""
    if count.is_cuda:
        from walkgraph.layers.kernels import flags as kernels

        kernels.wait(flag, count, halt.word, halt.given_up)
        return
    while flag.item() < count.item():
        if halt.word.item():
            halt.given_up.fill_(1)
            return
        os.sched_yield()


def send(value: Tensor, there: Tensor, flag: Tensor, count: Tensor, halt: Halt) -> None:
    """Write `value` to a peer's memory `there`, of one shape and dtype and both contiguous, then `signal`."""
    if value.shape != there.shape or value.dtype != there.dtype:
        raise ValueError(
            f"{tuple(value.shape)} {value.dtype} is not what lies there: {tuple(there.shape)} {there.dtype}"
        )
    if value.is_cuda:
        from walkgraph.layers.kernels import flags as kernels

        kernels.copy(value, there)
    else:
        there.copy_(value)
    signal(flag, count, halt)
