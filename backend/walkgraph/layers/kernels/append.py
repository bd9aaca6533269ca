"""Write new keys and values into their slots, in one launch."""

import triton
import triton.language as tl
from torch import Tensor


def append(k: Tensor, v: Tensor, rows: Tensor, slot_k: Tensor, slot_v: Tensor, slots: Tensor) -> None:
    """`slot_k[slots[i]] = k[rows[i]]`, and v likewise. k, v `[R, G, D]` and slot_k, slot_v `[S, G, D]` of one dtype,
    rows and slots int64 `[n]`."""
    k, v = k.flatten(1), v.flatten(1)
    width = k.shape[1]
    append_kernel[(rows.shape[0],)](
        k, v, rows, slot_k, slot_v, slots, k.stride(0), v.stride(0), slot_k.stride(0), width,
        BLOCK=1 << (width - 1).bit_length(),  # pyright: ignore[reportArgumentType]
    )  # fmt: skip


@triton.jit
def append_kernel(k, v, rows, slot_k, slot_v, slots, k_stride, v_stride, slot_stride, width, BLOCK: tl.constexpr):
    i, at = tl.program_id(0), tl.arange(0, BLOCK)
    row, slot = tl.load(rows + i), tl.load(slots + i)
    new_k = tl.load(k + row * k_stride + at, mask=at < width)
    new_v = tl.load(v + row * v_stride + at, mask=at < width)
    tl.store(slot_k + slot * slot_stride + at, new_k, mask=at < width)
    tl.store(slot_v + slot * slot_stride + at, new_v, mask=at < width)
