"""The codec's table: k-means over the frames of recordings.

Shape letters: F frames, K codes, M bands.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from walkgraph.models.voice.codec import Codec
from walkgraph.models.voice.config import CodecSizes
from walkgraph.starters.voice.frames import FLOOR, Frames

_ROUNDS = 40
_VOICED = 12.0
"""Decibels that a wholly voiced band and one without voice differ by."""
_SEMITONE = 8.0
"""Decibels, over all bands, that frames a semitone apart differ by."""


def codebook(sizes: CodecSizes, recorded: list[Frames]) -> tuple[Codec, list[NDArray[np.int64]]]:
    """The codec, and the codes of each recording. The first code is silence."""
    rows = torch.from_numpy(np.concatenate([_features(one) for one in recorded])).float()
    centres = torch.cat([torch.full((1, rows.shape[1]), FLOOR), _begin(rows, sizes.codes - 1)])
    centres[0, sizes.bands :] = 0
    for _ in range(_ROUNDS):
        nearest = torch.cdist(rows, centres).argmin(1)
        counts = torch.bincount(nearest, minlength=sizes.codes)
        sums = torch.zeros_like(centres).index_add_(0, nearest, rows)
        moved = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], centres)
        centres[1:] = moved[1:]
    return _codec(sizes, centres), [
        torch.cdist(torch.from_numpy(_features(one)).float(), centres).argmin(1).numpy() for one in recorded
    ]


def _features(one: Frames) -> NDArray[np.floating]:
    semitones = 12 * np.log2(one.pitch / 100)
    heard = one.voiced.max(1) > 0
    # Where nothing is voiced, the pitch is only what lies between its neighbours, and counts less.
    pitch = _SEMITONE * semitones * np.where(heard, 1.0, 0.1)
    return np.concatenate([one.level, _VOICED * one.voiced, pitch[:, None]], 1)


def _codec(sizes: CodecSizes, centres: Tensor) -> Codec:
    codec = Codec(sizes)
    level, voiced, pitch = centres.split([sizes.bands, sizes.bands, 1], 1)
    heard = voiced.amax(1) > 0.05 * _VOICED
    codec.level = level.half().float()
    codec.voiced = (voiced / _VOICED).clamp(0, 1).half().float()
    codec.pitch = (100 * 2 ** (pitch[:, 0] / torch.where(heard, 12 * _SEMITONE, 1.2 * _SEMITONE))).half().float()
    return codec


def _begin(rows: Tensor, count: int) -> Tensor:
    """The first centres: each the row that is farthest from those before it."""
    chosen = [0]
    apart = torch.cdist(rows, rows[:1])[:, 0]
    while len(chosen) < count:
        chosen.append(int(apart.argmax()))
        apart = torch.minimum(apart, torch.cdist(rows, rows[chosen[-1] :][:1])[:, 0])
    return rows[chosen].clone()
