"""The talker's prompt: the user's turns, and the eight positions of the answer before its first word.

Only ids of the user's turns come from the thinker, and projected rows where a turn has sound or pictures. A turn's
positions are the thinker's, moved to where the turn before ended, because what lies between the user's turns (the
system's and earlier answers) is not read.

Shape letters: M rows of the user's turns, W width.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.models.qwen3_omni.talker.config import TalkerConfig


class Prefix(NamedTuple):
    """The ids of the answer's positions before its first word."""

    words: tuple[int, ...]
    """Of the thinker's vocabulary."""
    codes: tuple[int, ...]
    """Of the talker's own, added at the last of these positions."""


def prefix_of(config: TalkerConfig, speaker: int) -> Prefix:
    said, codec = config.spoken, config.codec
    codes = (codec.nothink, codec.think_bos, codec.think_eos, speaker, codec.pad)
    return Prefix((*said.opening, *[said.pad] * (len(codes) - 1), said.bos), codes)


class Placement(NamedTuple):
    """Where the rows of a prompt are."""

    positions: Tensor
    """float32 `[M + 8, 3]`, less a fraction below 1 so that `next` is whole: only differences between positions
    count."""
    next: int
    """The position of the answer's first word."""


def placed(positions: Tensor, extra: int) -> Placement:
    """positions `[M, 3]` on the host: those of pieces that follow each other, each counted from its own start, where
    they are 0 on all axes. `extra`: rows of text behind them."""
    rows = positions.double()
    starts = [at for at, zero in enumerate((rows == 0).all(1).tolist()) if zero]
    moved, base = rows.clone(), 0.0
    for at, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        moved[at:end] += base
        base = float(moved[end - 1].max()) + 1
    behind = base + torch.arange(extra, dtype=torch.float64)[:, None].expand(-1, 3)
    fraction = base % 1
    return Placement((torch.cat([moved, behind]) - fraction).float(), round(base - fraction) + extra)
