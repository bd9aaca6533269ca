"""One launch for one new token per sequence: the division of the work, and the launch itself.

The kernels are in `walkgraph.layers.kernels.step_attention_kernels`; shape letters as in
`walkgraph.layers.attention.step_attention`.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from walkgraph.layers.attention.paged_rows import StepArguments
from walkgraph.layers.invariance import is_batch_invariant
from walkgraph.layers.kernels.gpu import can_overlap, is_compiled, present
from walkgraph.layers.kernels.step_attention_kernels import streams_kernel, tiles_kernel

_COUNTERS = 1 << 16
_SHARED = 160 << 10
"""Bytes of shared memory for a program's blocks, at most."""
_SPARE = 10 << 10
"""Bytes of shared memory beside them."""
_LANE = 8
"""Numbers of a key that a thread of a stream holds: 16 bytes."""
STREAMED = 4
"""Query heads per key head up to which products don't need the tensor cores."""

_counters: dict[torch.device, Tensor] = {}
"""int32, zero between launches. The launches of a device run in one stream, one after the other."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How the work is split; `tuning` decides from shapes alone, so a captured launch serves every length."""

    splits: int
    """Programs of a row and key head."""
    block: int
    """Tokens of a block."""
    warps: int
    stages: int
    """Blocks in flight in shared memory, one of them in use; 0: streams, whose next block is in flight in registers."""
    overlap: int = 1
    """On devices of compute capability 9. 0: starts after the previous launch's end; 1: starts while it ends, and lets
    the next one start once its own wait is over; 2: lets the next one start at once."""
    least: int = 1
    """The least tokens of a split: shorter rows use fewer splits."""


CUTS: dict[int, Tuning] = {
    8: Tuning(splits=16, block=32, warps=4, stages=4, overlap=0),
    64: Tuning(splits=6, block=64, warps=4, stages=3),
    128: Tuning(splits=3, block=64, warps=4, stages=3, least=512),
    512: Tuning(splits=1, block=32, warps=4, stages=4),
}
"""Largest number of rows times key heads -> the fastest tuning on an H200, for heads of width 128, 330 and 2200 tokens
per row."""


ALIKE = Tuning(splits=8, block=32, warps=4, stages=4, least=256)
"""The tuning of every batch under `batch_invariant`: the order of a row's sums depends only on its length."""


def tuning(batch: int, groups: int, group: int, width: int, context: int, shared: int) -> Tuning:
    """`group`: query heads per key head. `context`: the most tokens that a row's pages hold. `shared`: bytes of shared
    memory that the GPU gives a program."""
    if is_batch_invariant():
        return replace(
            _within_memory(ALIKE, width, shared), splits=max(1, min(ALIKE.splits, -(-context // ALIKE.block)))
        )
    rows = batch * groups
    most = min((n for n in CUTS if n >= rows), default=max(CUTS))
    cut = _within_memory(CUTS[most], width, shared)
    if not cut.stages and group > STREAMED:
        cut = _within_memory(replace(cut, block=32, warps=4, stages=5), width, shared)
    if not cut.stages:
        cut = replace(cut, block=max(cut.block * 128 // width, streams(cut.warps, width)))
    # As many programs as the measured tuning had at its own row count, in powers of two.
    splits = cut.splits * _power(most // rows) if cut.splits > 1 else 1
    return replace(cut, splits=max(1, min(splits, 32, -(-context // cut.block))))


def _within_memory(cut: Tuning, width: int, shared: int) -> Tuning:
    """The cut with as many stages as fit; one of them needs no memory."""
    if not cut.stages:
        return cut
    block = 4 * cut.block * width
    stages = min(cut.stages, 1 + (shared - _SPARE) // block)
    return replace(cut, stages=max(2, stages if width <= 128 else min(stages, _SHARED // block)))


def streams(warps: int, width: int) -> int:
    """Tokens that the threads of a program hold at once, one vector each."""
    return 32 * warps * _LANE // width


def _power(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << (n - 1).bit_length()


def launch(step: StepArguments, tuned: Tuning | None = None) -> Tensor:
    """`walkgraph.layers.attention.step_attention.step_attention`, split by `tuned`, or by `tuning` if None."""
    qkv, slot_k, slot_v, rows, frequencies, heads, q_norm, k_norm, eps, page = step
    batch, (groups, width), reach = qkv.shape[0], slot_k.shape[1:], rows.pages.shape[1]
    group = heads // groups
    tuned = tuned or tuning(batch, groups, group, width, reach * page, present().shared)
    out = torch.empty((batch, heads * width), dtype=qkv.dtype, device=qkv.device)
    parts = torch.empty((batch, groups, tuned.splits, group * width), dtype=torch.float32, device=qkv.device)
    weights = torch.empty((batch, groups, tuned.splits, group), dtype=torch.float32, device=qkv.device)
    kernel: Any = tiles_kernel if tuned.stages else streams_kernel
    kernel[(groups, tuned.splits, batch)](
        qkv, slot_k, slot_v, rows.rows, rows.pages, rows.lengths, rows.positions, frequencies, q_norm, k_norm,
        out, parts, weights, _zeros(qkv.device, batch * groups), qkv.stride(0), slot_k.stride(0), reach, eps,
        tuned.splits, **constants(tuned, groups, group, width, page), NORM=q_norm is not None,
    )  # fmt: skip
    return out


def constants(tuned: Tuning, groups: int, group: int, width: int, page: int) -> dict[str, Any]:
    """The compile-time arguments of a kernel and its options, without those that depend on the tensors."""
    padded = _power(group)
    overlap = tuned.overlap if can_overlap() else 0
    return {
        "GROUPS": groups, "GROUP": group, "WIDTH": width, "PAGE": page, "BLOCK": tuned.block,
        "HEADS": padded, "STREAMS": streams(tuned.warps, width), "TILE": _tile(tuned.warps, padded, width),
        "OVERLAP": overlap, "ON_GPU": is_compiled(), "LEAST": tuned.least,
        "num_warps": tuned.warps, "num_stages": max(1, tuned.stages), "launch_pdl": overlap > 0,
    }  # fmt: skip


def _tile(warps: int, padded: int, width: int) -> int:
    """Parts combined at once: as many as 64 registers per thread hold. One binary serves every number of splits."""
    return max(1, min(16, 64 * 32 * warps // (padded * width)))


def _zeros(device: torch.device, wanted: int) -> Tensor:
    """Counters that outlive every captured launch; created before the first capture."""
    if wanted > _COUNTERS:
        raise ValueError(f"a step serves at most {_COUNTERS} pairs of row and key head, not {wanted}")
    if device not in _counters:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("call step_attention once on this device before it is captured")
        _counters[device] = torch.zeros(_COUNTERS, dtype=torch.int32, device=device)
    return _counters[device]
