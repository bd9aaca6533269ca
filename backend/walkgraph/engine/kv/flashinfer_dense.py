"""Attention over a dense room by FlashInfer's kernel for Hopper, within CUDA graphs that outlive their lengths.

A plan lies in memory of its own, at offsets that follow from the most query rows and sequences alone; a captured kernel
reads it when it is replayed, so that planning anew changes the lengths of a graph that is there.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from walkgraph.abi.states import CacheShape
from walkgraph.engine.kv.allocator import PageFault
from walkgraph.layers.attention.flashinfer import installed, on_hopper

SPACE = 8 << 20
"""Bytes that FlashInfer keeps for the plan of a room."""


def unfit(shape: CacheShape, device: torch.device) -> str | None:
    """Why `Ragged` can't serve rooms of such caches; None where it does."""
    if not on_hopper(device):
        return "the kernel is one for Hopper"
    if not installed():
        return "FlashInfer is not installed"
    if shape.dtype not in (torch.bfloat16, torch.float16):
        return f"FlashInfer has no form for caches in {shape.dtype}"
    if shape.head_dim not in (64, 128, 256):
        return f"FlashInfer has no form for heads of {shape.head_dim} numbers"
    return None


class Ragged:
    """`batch` blocks of `tokens` queries, each of which sees a span of keys.

    What lies between the spans is told as sequences without queries: FlashInfer knows a sequence by where it ends and
    the next one starts.
    """

    def __init__(self, batch: int, tokens: int, shape: CacheShape, device: torch.device) -> None:
        import flashinfer  # pyright: ignore[reportMissingImports]

        self._shape = shape
        ends = [row * tokens for row in range(batch + 1)]
        self._queries = _pinned([0, *(end for end in ends[1:] for _ in range(2))])
        self._keys = torch.zeros_like(self._queries)
        buffers = [torch.zeros(2 * batch + 1, dtype=torch.int32, device=device) for _ in range(2)]
        # This kernel divides no keys, so it has no partial results to keep.
        space = torch.empty(16, dtype=torch.uint8, device=device)
        self._wrapper: Any = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(
            space, "NHD", use_cuda_graph=True, qo_indptr_buf=buffers[0], kv_indptr_buf=buffers[1], backend="fa3"
        )
        self._heads = 0
        self._copied = torch.cuda.Event()
        """After it, the device has read the plan that the wrapper keeps in pinned memory."""

    def place(self, bounds: Sequence[int]) -> None:
        """Start and stop of every row's keys, one row after the other, rising."""
        self._keys = _pinned([*bounds, bounds[-1]])
        if self._heads:
            self._plan()

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q `[B * n, H, D]`, k and v `[S, G, D]` -> `[B * n, H, D]`. The first call tells how many heads there are, so
        it is never a captured one."""
        if not self._heads:
            self._heads = q.shape[1]
            self._plan()
        if q.shape[1] != self._heads:
            raise PageFault(f"a room that was planned for {self._heads} heads got {q.shape[1]}")
        return self._wrapper.run(q, k, v)

    def _plan(self) -> None:
        # The plan before may not have left the pinned memory that this one is written to.
        self._copied.synchronize()
        shape = self._shape
        sizes = self._heads, shape.kv_heads, shape.head_dim
        self._wrapper.plan(self._queries, self._keys, *sizes, q_data_type=shape.dtype)
        self._copied.record()


def _pinned(numbers: Sequence[int]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32, pin_memory=True)
