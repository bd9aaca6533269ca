"""A group of processes whose GPUs reach each other's memory: small parts go through it in one launch, which CUDA graphs
capture; larger ones by the library's collectives. See `peers.cu`."""

import ctypes
import math
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch import distributed as dist

from walkgraph.collectives.distributed import DistributedShard
from walkgraph.memory.cuda_source import CudaKernel
from walkgraph.memory.device import DeviceMemory

MOST_SHARDS = 8
PART_BYTES = 1 << 20
"""Bytes of the largest part that goes through peers' memory. Its packets are twice as large, so large parts cost too
much."""
_SOURCE = Path(__file__).with_name("peers.cu")
_THREADS = 128
_PAIR = 8
"""Bytes that a thread passes on."""
_PACKETS = 16
"""Bytes in which they travel."""
_KINDS = {torch.float32: 0, torch.bfloat16: 1}


class _Arguments(ctypes.Structure):
    _fields_ = [
        ("x", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("inboxes", ctypes.c_uint64 * MOST_SHARDS),
        ("turns", ctypes.c_void_p),
        ("places", ctypes.c_uint64),
        ("pairs", ctypes.c_uint64),
        ("row", ctypes.c_uint64),
        ("patience", ctypes.c_uint64),
    ]


class PeerShard:
    """A shard that never comes ends this process's work on its device after `patience`. Exchanges follow each other on
    one stream: two at the same time would write into the same places."""

    def __init__(self, group: DistributedShard, memory: DeviceMemory, *, patience: float) -> None:
        """`group`: takes what doesn't go through peers' memory, and is closed with this one. Raises Unavailable,
        torch.OutOfMemoryError."""
        self.index, self.count, self._group, self._memory = group.index, group.count, group, memory
        self._patience, self._places = int(patience * 1e9), PART_BYTES // _PAIR
        size = 2 * self.count * self._places * _PACKETS
        self._inbox = memory.allocate(size)
        self._opened: list[Tensor] = []
        addresses: list[int] = []
        for shard, handle in enumerate(self._handles(memory.share(self._inbox))):
            inbox = self._inbox if shard == self.index else memory.open(handle, size)
            if shard != self.index:
                self._opened.append(inbox)
            addresses.append(inbox.data_ptr())
        self._inboxes = (ctypes.c_uint64 * MOST_SHARDS)(*addresses)
        self._turns = torch.zeros(self._places // _THREADS, dtype=torch.int32, device=memory.device)
        for dtype in _KINDS:
            for gathers in (False, True):
                _kernel(dtype, gathers, self.index, self.count)

    def sum(self, x: Tensor) -> Tensor:
        return self._exchanged(x, torch.empty_like(x), x.numel()) if _passes(x) else self._group.sum(x)

    def gather(self, x: Tensor, dim: int = -1) -> Tensor:
        at = dim % x.dim()
        row = math.prod(x.shape[at:])
        if not _passes(x) or row * x.itemsize % _PAIR:
            return self._group.gather(x, dim)
        shape = *x.shape[:at], self.count * x.shape[at], *x.shape[at + 1 :]
        return self._exchanged(x, x.new_empty(shape), row, gathers=True)

    def agrees(self) -> bool:
        """True if random numbers give the bits here that they give by the library. All shards ask at the same time."""
        for dtype in _KINDS:
            drawn = torch.randn(33, 130, generator=torch.Generator().manual_seed(self.index))
            x = drawn.to(self._memory.device, dtype)
            pairs = (self.sum(x), self._group.sum(x)), (self.gather(x, 0), self._group.gather(x, 0))
            if not all(torch.equal(mine, naive) for mine, naive in pairs):
                return False
        return True

    def close(self) -> None:
        self._shut()
        self._group.close()
        self._memory.release(self._inbox)

    def leave(self) -> None:
        """Give up the memory together with the others. The library's group goes on."""
        self._shut()
        self._group.all(here=True)
        self._memory.release(self._inbox)

    def _shut(self) -> None:
        torch.cuda.synchronize(self._memory.device)
        for inbox in self._opened:
            self._memory.shut(inbox)

    def _exchanged(self, x: Tensor, out: Tensor, row: int, *, gathers: bool = False) -> Tensor:
        part = x.contiguous()
        if part.data_ptr() % _PAIR:
            part = part.clone()
        pairs = part.nbytes // _PAIR
        arguments = _Arguments(
            x=part.data_ptr(), out=out.data_ptr(), inboxes=self._inboxes, turns=self._turns.data_ptr(),
            places=self._places, pairs=pairs, row=row * x.itemsize // _PAIR, patience=self._patience,
        )  # fmt: skip
        _kernel(x.dtype, gathers, self.index, self.count).launch(-(-pairs // _THREADS), _THREADS, arguments)
        return out

    def _handles(self, own: bytes) -> list[bytes]:
        """All shards' handles, in their order."""
        mine = torch.frombuffer(bytearray(own), dtype=torch.uint8).to(self._memory.device)
        found = mine.new_empty(self.count, len(own))
        dist.all_gather_into_tensor(found, mine)
        return [bytes(row) for row in found.cpu().numpy()]


def _passes(x: Tensor) -> bool:
    """True if the tensor goes through peers' memory: every shard decides the same."""
    return x.dtype in _KINDS and 0 < x.nbytes <= PART_BYTES and x.nbytes % _PAIR == 0


@cache
def _kernel(dtype: torch.dtype, gathers: bool, index: int, count: int) -> CudaKernel:
    defined = {"KIND": _KINDS[dtype], "GATHER": int(gathers), "SHARD": index, "COUNT": count, "THREADS": _THREADS}
    return CudaKernel(_SOURCE, "exchanged", defined, 0)
