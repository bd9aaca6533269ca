"""Attention of one new token per sequence over a paged cache: rotation, append and softmax in one call.

CPUs, and shapes that the kernel doesn't support, use the plain form below; CUDA uses one kernel.

Shape letters: B rows of a batch, T rows of the tables, P pages of a row, S slots (pages * page size), H query heads,
G key/value heads, D head dim, L tokens of a context (padded).
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.attention.paged_rows import StepArguments, StepRows
from walkgraph.layers.invariance import is_batch_invariant
from walkgraph.layers.rope import Rotation, rotate

_HEAD_DIMS = (64, 128, 256)
_GROUPS = 16
"""The most query heads per key head; they fill the kernel's smallest product."""
MOST_NUMBERS = 1 << 24
"""The most numbers of keys that the plain form expands at once: 64 MiB in float32, as much for the values."""


class _SomeRows(NamedTuple):
    """`StepRows` of a part of a batch."""

    rows: Tensor
    pages: Tensor
    lengths: Tensor
    positions: Tensor


def step_attention(  # noqa: PLR0913 - a layer's call, whose tensors belong to four owners
    qkv: Tensor,
    slot_k: Tensor,
    slot_v: Tensor,
    rows: StepRows,
    frequencies: Tensor,
    heads: int,
    *,
    q_norm: Tensor | None = None,
    k_norm: Tensor | None = None,
    eps: float = 1e-6,
    page: int = 16,
) -> Tensor:
    """Append each row's new key and value at its `lengths`, and attend over what it then holds -> `[B, H * D]`.

    qkv `[B, (H + 2G) * D]`: queries, keys, values, head-major, before the rotation. slot_k and slot_v `[S, G, D]`: one
    layer of the pool, written in place. frequencies float32 `[D / 2]`: radians per position (NeoX pairing). q_norm and
    k_norm `[D]`, both or neither: weights of an RMS norm of every query and key head before the rotation. page: slots
    of a page. Scale D^-0.5.

    The rows of one batch belong to different sequences, except for the table's last row, which may pad a batch: its
    result and the content of its pages are meaningless.

    On CUDA, data of earlier calls may be read while the previous launch still runs. So between two calls over one
    layer, or between a change of `rows` and a call, there must be a launch that does not overlap (any torch operation,
    or the end of a captured graph).
    """
    step = StepArguments(qkv, slot_k, slot_v, rows, frequencies, heads, q_norm, k_norm, eps, page)
    if not qkv.is_cuda or not supported(qkv.dtype, slot_k, heads):
        together = parted_rows(step) if qkv.is_cuda else len(qkv)
        return in_parts(step, 1 if is_batch_invariant() else together)
    from walkgraph.layers.kernels.step_attention import launch

    return launch(step)


def supported(dtype: torch.dtype, slot_k: Tensor, heads: int) -> bool:
    """True if the kernel supports these shapes."""
    groups, width = slot_k.shape[1:]
    return (
        dtype in (torch.bfloat16, torch.float16)
        and slot_k.dtype == dtype
        and width in _HEAD_DIMS
        and heads % groups == 0
        and heads // groups <= _GROUPS
    )


def parted_rows(step: StepArguments, most: int = MOST_NUMBERS) -> int:
    """The rows that `plain` may serve at once, so that it expands at most so many numbers of keys: on a device it reads
    all that a row's pages could hold, which for a whole batch would be gigabytes beside a tiny model."""
    _, width = step.slot_k.shape[1:]
    return max(1, most // (step.rows.pages.shape[1] * step.page * step.heads * width))


def in_parts(step: StepArguments, count: int) -> Tensor:
    """`plain` for so many rows at a time. With one, a row's sums depend on its own length and not on the batch."""
    total, tables = step.qkv.shape[0], step.rows
    if total <= count:
        return plain(step)

    def part(at: int) -> StepArguments:
        rows = _SomeRows(tables.rows[at : at + count], tables.pages, tables.lengths, tables.positions)
        return step._replace(qkv=step.qkv[at : at + count], rows=rows)

    return torch.cat([plain(part(at)) for at in range(0, total, count)])


def plain(step: StepArguments) -> Tensor:
    """`step_attention` in torch operations, softmax and products in float32."""
    qkv, slot_k, slot_v, rows, frequencies, heads, q_norm, k_norm, eps, page = step
    groups, width = slot_k.shape[1:]
    q, k, v = qkv.unflatten(1, (-1, width)).split((heads, groups, groups), 1)
    q = q if q_norm is None else F.rms_norm(q, (width,), q_norm, eps)
    k = k if k_norm is None else F.rms_norm(k, (width,), k_norm, eps)
    index = rows.rows.long()
    rotation = _rotation(rows.positions[index], frequencies)
    lengths = rows.lengths[index].long()
    slots_BL = _slots(rows.pages[index], lengths, page)
    last = slots_BL.gather(1, lengths[:, None])[:, 0]
    slot_k[last] = rotate(k, rotation).to(slot_k.dtype)
    slot_v[last] = v.to(slot_v.dtype)
    seen = torch.arange(slots_BL.shape[1], device=qkv.device) <= lengths[:, None]
    slots_BL = torch.where(seen, slots_BL, last[:, None])
    out = F.scaled_dot_product_attention(
        rotate(q, rotation).float()[:, :, None],
        slot_k[slots_BL].float().transpose(1, 2),
        slot_v[slots_BL].float().transpose(1, 2),
        attn_mask=seen[:, None, None],
        enable_gqa=heads != groups,
    )
    return out.flatten(1).to(qkv.dtype)


def _rotation(positions: Tensor, frequencies: Tensor) -> Rotation:
    angles = positions[:, None, None].float() * frequencies
    cos, sin = angles.cos(), angles.sin()
    return Rotation(torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1))


def _slots(pages_BP: Tensor, lengths: Tensor, page: int) -> Tensor:
    """int64 `[B, L]`, the slots of each row's tokens. L is the capacity of the pages, or on a CPU, where values can be
    read, the need of the longest row."""
    if not lengths.is_cuda:
        pages_BP = pages_BP[:, : int(lengths.max()) // page + 1]
    return (pages_BP.long()[:, :, None] * page + torch.arange(page, device=lengths.device)).flatten(1)
