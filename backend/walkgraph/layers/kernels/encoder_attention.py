"""Full attention within each of consecutive pictures by FlashInfer's kernel for Hopper, which lacks heads of 72
numbers: zeros pad them to 128. This is faster than kernels for narrower heads, and one plan serves all picture sizes,
where other kernels are compiled for each.

Shape letters: R rows of all pictures, B pictures, H heads, D head dim.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false, reportGeneralTypeIssues=false

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from walkgraph.layers.attention.flashinfer import GAP, installed, on_hopper

WIDTH = 128
"""Width of a padded head."""


@triton.jit
def fill_kernel(q, k, v, to_q, to_k, to_v, rows, stride, HEADS: tl.constexpr, D: tl.constexpr, W: tl.constexpr,
                BLOCK: tl.constexpr):  # fmt: skip
    """One program per row of queries, keys and values, in words of 8 bytes. `rows`: targets of the keys."""
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = at < HEADS * D
    source, target = row * stride + at, (at // D) * W + at % D
    query = tl.load(q + source, mask=inside)
    key, value = tl.load(k + source, mask=inside), tl.load(v + source, mask=inside)
    tl.store(to_q + row * (HEADS * W) + target, query, mask=inside)
    place = tl.load(rows + row) * (HEADS * W) + target
    tl.store(to_k + place, key, mask=inside)
    tl.store(to_v + place, value, mask=inside)


def fill(parts: Sequence[Tensor], to: Sequence[Tensor], rows: Tensor) -> None:
    """Copy q, k and v `[R, H, D]`, of equal row stride, to the first numbers of the heads of `[R, H, W]` and twice `[S,
    H, W]`, where the rows are `rows` int64 `[R]`."""
    sources, targets = ([tensor.view(torch.int64) for tensor in tensors] for tensors in (parts, to))
    count, heads, width = sources[0].shape
    fill_kernel[(count,)](
        *sources, *targets, rows, sources[0].stride(0), HEADS=heads, D=width, W=targets[0].shape[2],
        BLOCK=triton.next_power_of_2(heads * width),
    )  # fmt: skip


def supported(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """True if heads `[R, H, D]` can be padded and the kernel is available."""
    width, words = q.shape[2], 8 // q.itemsize
    alike = all(t.shape == q.shape and t.stride() == q.stride() and t.stride()[1:] == (width, 1) for t in (q, k, v))
    whole = all(n % words == 0 for t in (q, k, v) for n in (width, t.stride(0), t.storage_offset()))
    fits = alike and whole and WIDTH // 2 < width <= WIDTH and q.dtype in (torch.bfloat16, torch.float16)
    return fits and on_hopper(q.device) and installed()


class _Wrapper:
    """One FlashInfer wrapper per device: the layers of a forward are launched before the next one is planned."""

    def __init__(self, device: torch.device) -> None:
        import flashinfer  # pyright: ignore[reportMissingImports]

        # This kernel doesn't split keys, so it keeps no partial results.
        space = torch.empty(16, dtype=torch.uint8, device=device)
        self.attention: Any = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(space, "NHD", backend="fa3")
        self.plans = 0
        self._copied = torch.cuda.Event()
        """After this event the device has read the plan that the wrapper keeps in pinned memory."""

    def plan(self, queries: Tensor, keys: Tensor, heads: int, width: int, dtype: torch.dtype) -> int:
        self._copied.synchronize()
        self.attention.plan(queries, keys, heads, heads, WIDTH, sm_scale=width**-0.5, q_data_type=dtype)
        self._copied.record()
        self.plans += 1
        return self.plans


_wrapper = cache(_Wrapper)


class Pictures:
    """Attention of one forward; `lengths`: rows of each picture."""

    def __init__(self, lengths: Sequence[int], like: Tensor) -> None:
        """`like`: queries `[R, H, D]` that `supported` accepts."""
        count, heads, width = like.shape
        starts = [0, *accumulate(length + GAP for length in lengths)]
        on: dict[str, Any] = {"dtype": like.dtype, "device": like.device}
        self._q = torch.zeros(count, heads, WIDTH, **on)
        self._k, self._v = (torch.zeros(starts[-1], heads, WIDTH, **on) for _ in range(2))
        spans = list(zip(starts, lengths, strict=False))
        self._rows = torch.cat([torch.arange(at, at + n, device=like.device) for at, n in spans])
        # The gaps between pictures are passed as sequences without queries.
        queries = [0, *(end for end in accumulate(lengths) for _ in range(2))]
        keys = [*(bound for at, n in spans for bound in (at, at + n)), starts[-1]]
        bounds = torch.tensor([queries, keys], dtype=torch.int32)
        self._wrapper = _wrapper(like.device)
        self._plan = self._wrapper.plan(bounds[0], bounds[1], heads, width, like.dtype)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q, k and v `[R, H, D]` -> `[R, H, D]`; scaled by D^-0.5. The layers of one forward only."""
        if self._wrapper.plans != self._plan:
            raise RuntimeError("another forward of pictures was begun before this one's layers were through")
        fill((q, k, v), (self._q, self._k, self._v), self._rows)
        return self._wrapper.attention.run(self._q, self._k, self._v)[..., : q.shape[2]]
