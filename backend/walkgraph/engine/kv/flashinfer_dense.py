"""Attention over a dense context with FlashInfer's kernel for Hopper, in CUDA graphs that stay valid when lengths
change.

A plan is in memory of its own, at offsets that follow only from the largest number of query rows and sequences. A
captured kernel reads the plan when it is replayed, so a new plan changes the lengths of an existing graph.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from walkgraph.abi.states import CacheShape
from walkgraph.engine.kv.allocator import PageFault
from walkgraph.layers.attention.flashinfer import installed, on_hopper

SPACE = 8 << 20
"""Bytes that FlashInfer keeps for the plan of a dense context."""


def unfit(shape: CacheShape, device: torch.device) -> str | None:
    """Why `Ragged` can't serve dense contexts of such caches; None if it can."""
    if not on_hopper(device):
        return "the kernel needs a Hopper GPU"
    if not installed():
        return "FlashInfer is not installed"
    if shape.dtype not in (torch.bfloat16, torch.float16):
        return f"FlashInfer does not support caches in {shape.dtype}"
    if shape.head_dim not in (64, 128, 256):
        return f"FlashInfer does not support heads of {shape.head_dim} numbers"
    return None


class Ragged:
    """Attends `batch` blocks of so many queries, each over a span of keys.

    The gaps between spans are passed as sequences without queries, because FlashInfer takes the end of a sequence as
    the start of the next.
    """

    def __init__(self, batch: int, queries: int, shape: CacheShape, device: torch.device) -> None:
        import flashinfer  # pyright: ignore[reportMissingImports]

        self._shape = shape
        ends = [row * queries for row in range(batch + 1)]
        self._queries = _pinned([0, *(end for end in ends[1:] for _ in range(2))])
        self._keys = torch.zeros_like(self._queries)
        buffers = [torch.zeros(2 * batch + 1, dtype=torch.int32, device=device) for _ in range(2)]
        # This kernel doesn't divide keys, so it has no partial results to keep.
        space = torch.empty(16, dtype=torch.uint8, device=device)
        self._wrapper: Any = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(
            space, "NHD", use_cuda_graph=True, qo_indptr_buf=buffers[0], kv_indptr_buf=buffers[1], backend="fa3"
        )
        self._heads = 0
        self._copied = torch.cuda.Event()
        """Reached when the device has read the plan that the wrapper keeps in pinned memory."""

    def place(self, bounds: Sequence[int]) -> None:
        """Set start and stop of each row's keys, row by row in rising order."""
        self._keys = _pinned([*bounds, bounds[-1]])
        if self._heads:
            self._plan()

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q `[B * n, H, D]`, k and v `[S, G, D]` -> `[B * n, H, D]`. The first call sets the number of heads and
        plans, so it must not be captured."""
        if not self._heads:
            self._heads = q.shape[1]
            self._plan()
        if q.shape[1] != self._heads:
            raise PageFault(f"a dense context planned for {self._heads} heads got {q.shape[1]}")
        return self._wrapper.run(q, k, v)

    def _plan(self) -> None:
        # The previous plan may still be in the pinned memory that this one is written to.
        self._copied.synchronize()
        shape = self._shape
        sizes = self._heads, shape.kv_heads, shape.head_dim
        self._wrapper.plan(self._queries, self._keys, *sizes, q_data_type=shape.dtype)
        self._copied.record()


def _pinned(numbers: Sequence[int]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32, pin_memory=True)
