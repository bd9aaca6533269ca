"""The rows of a frame as a predictor takes them: conditions, then patches, with their sums and rotary angles.

Shape letters: B frames, C conditions of a frame, m numbers of a condition, n patches, W width, D head dim, T rows of
the tables.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.layers.norm.layer_norm import SUMMED, row_sums


class ConditionMaps(NamedTuple):
    """A linear map for each condition, in float32: a difference of a few thousandths would be lost in 16 bits."""

    weight: Tensor
    """float32 `[C, m, W]`"""
    bias: Tensor
    """float32 `[C, W]`"""


class FrameAngles(NamedTuple):
    """Radians of a token: `position * frame + places[token]`."""

    frame: Tensor
    """float32 `[D]`"""
    places: Tensor
    """float32 `[C + n, D]`"""


class FrameRows(NamedTuple):
    x: Tensor
    """`[B * (C + n), W]`"""
    sums: Tensor | None
    """`walkgraph.layers.norm.layer_norm.row_sums` of x; None for a width that their parts don't divide."""
    cos: Tensor
    """float32 `[B, C + n, D]`; `sin` likewise."""
    sin: Tensor


def frame_rows(
    seen: Tensor,
    conditions: Sequence[Tensor],
    maps: ConditionMaps,
    angles: FrameAngles,
    rows: Tensor,
    positions: Tensor,
) -> FrameRows:
    """seen `[B * n, W]`, conditions float32 `[B, m]`, C of them, rows int32 `[B]` of positions int32 `[T]`. On CUDA one
    launch."""
    sizes = seen.shape[1] % SUMMED == 0 and _is_power(len(angles.frame))
    if sizes and seen.is_cuda and seen.is_contiguous() and not torch.is_grad_enabled():
        from walkgraph.layers.kernels.frames import enter

        return FrameRows(*enter(seen, conditions, maps, angles, rows, positions))
    return plain_frame_rows(seen, conditions, maps, angles, rows, positions)


def plain_frame_rows(
    seen: Tensor,
    conditions: Sequence[Tensor],
    maps: ConditionMaps,
    angles: FrameAngles,
    rows: Tensor,
    positions: Tensor,
) -> FrameRows:
    """`frame_rows` in torch operations."""
    given = torch.baddbmm(maps.bias[:, None], torch.stack(list(conditions)), maps.weight).transpose(0, 1)
    x = torch.cat([given.to(seen.dtype), seen.unflatten(0, (len(rows), -1))], 1).flatten(0, 1)
    at = positions.index_select(0, rows).float()
    radians = at[:, None, None] * angles.frame + angles.places
    return FrameRows(x, row_sums(x) if x.shape[1] % SUMMED == 0 else None, radians.cos(), radians.sin())


def _is_power(n: int) -> bool:
    return n & (n - 1) == 0
