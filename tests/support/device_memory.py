"""Device memory without a device: shared memory that other processes open, and copies that take time."""

import mmap
import os
import struct
from collections.abc import Callable

import torch
from torch import Tensor

from walkgraph.memory.device import Unavailable

_HANDLE = struct.Struct("<QQQ")


class Done:
    """A mark that a copy reaches once it is done."""

    reached = False

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def query(self) -> bool:
        return self.reached

    def synchronize(self) -> None:
        if not self.reached:
            self._work()
            self.reached = True


class SharedMemory:
    """`slow`: copies are made in `work`, not when they are asked for. `closed`: a driver that shares nothing."""

    def __init__(self, *, slow: bool = False, closed: bool = False) -> None:
        self.device = torch.device("cpu")
        self.slow, self.closed = slow, closed
        self.under_way: list[Done] = []
        self.opened = 0
        self._files: dict[int, int] = {}

    def allocate(self, nbytes: int) -> Tensor:
        if not nbytes:
            return torch.empty(0, dtype=torch.uint8)
        fd = os.memfd_create("walkgraph-double")
        os.ftruncate(fd, nbytes)
        memory = torch.frombuffer(mmap.mmap(fd, nbytes), dtype=torch.uint8)
        self._files[memory.data_ptr()] = fd
        return memory

    def release(self, memory: Tensor) -> None:
        if memory.nbytes:
            os.close(self._files.pop(memory.data_ptr()))

    def share(self, memory: Tensor) -> bytes:
        if self.closed:
            raise Unavailable("nothing is shared")
        return _HANDLE.pack(os.getpid(), self._files[memory.data_ptr()], memory.nbytes)

    def open(self, handle: bytes, nbytes: int) -> Tensor:
        if self.closed or len(handle) != _HANDLE.size:
            raise Unavailable("nothing is opened")
        pid, fd, size = _HANDLE.unpack(handle)
        if size != nbytes:
            raise Unavailable("not what was shared")
        opened = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR)
        try:
            memory = torch.frombuffer(mmap.mmap(opened, nbytes), dtype=torch.uint8)
        finally:
            os.close(opened)
        self.opened += 1
        return memory

    def shut(self, memory: Tensor) -> None:
        self.opened -= 1

    def copy_out(self, source: Tensor, target: Tensor) -> Done:
        return self._later(lambda: target.copy_(source))

    def copy_in(self, source: Tensor) -> tuple[Tensor, Done]:
        copy = torch.empty_like(source)
        return copy, self._later(lambda: copy.copy_(source))

    def work(self) -> None:
        """Do what is under way."""
        for one in self.under_way:
            one.synchronize()
        self.under_way.clear()

    def _later(self, work: Callable[[], object]) -> Done:
        done = Done(work)
        if self.slow:
            self.under_way.append(done)
        else:
            done.synchronize()
        return done
