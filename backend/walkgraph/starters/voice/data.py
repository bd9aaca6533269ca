"""Training data of the speaker: texts as units, and the frames of each.

Shape letters: B texts, T frames.
"""

import random
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from walkgraph.models.voice.config import PAUSE
from walkgraph.models.voice.words import units_of
from walkgraph.starters.shapes.language import caption
from walkgraph.starters.shapes.scenes import Scene, draw_scenes
from walkgraph.starters.shapes.tokens import WORDS
from walkgraph.starters.voice.units import UNITS

Codes = Mapping[tuple[int, bool], NDArray[np.int64]]
"""(unit, before a pause) -> the codes of its frames."""
_ID = {unit: at for at, unit in enumerate(UNITS)}
IGNORED = -1


class Rows(NamedTuple):
    """Each int64 `[B, T]`: what the speaker reads for a frame, and the token that it should give, `IGNORED` behind the
    end."""

    token: Tensor
    unit: Tensor
    following: Tensor
    age: Tensor
    wanted: Tensor


def texts(seed: int) -> Iterator[list[int]]:
    """Endless texts as units: descriptions of scenes that are not reserved, words in any order, and words to be
    spelled; or only what follows some unit of them."""
    rng, scenes = random.Random(seed), draw_scenes(seed, reserved=False)  # noqa: S311 (training data, not secrets)
    while True:
        ids = ids_of(_text(rng, scenes))
        yield ids[rng.randrange(len(ids)) if rng.random() < 0.5 else 0 :]


def _text(rng: random.Random, scenes: Iterator[Scene]) -> str:
    kind = rng.random()
    if kind < 0.4:
        return caption(next(scenes))
    if kind < 0.85:
        return _sentence(rng, [rng.choice(WORDS) for _ in range(rng.randint(1, 14))])
    pool = string.ascii_lowercase if kind < 0.93 else string.digits
    return _sentence(rng, ["".join(rng.choice(pool) for _ in range(rng.randint(2, 6))) for _ in range(2)])


def _sentence(rng: random.Random, words: Sequence[str]) -> str:
    return " ".join(word + ("," if rng.random() < 0.1 else "") for word in words)


def ids_of(text: str) -> list[int]:
    return [_ID[unit] for unit in units_of(text, _ID)]


def frames_of(ids: Sequence[int], codes: Codes) -> list[NDArray[np.int64]]:
    """The codes of each unit of a text."""
    pause = _ID[PAUSE]
    after = [*ids[1:], pause]
    return [codes[unit, pause in (unit, follows)] for unit, follows in zip(ids, after, strict=True)]


def rows(all_ids: Sequence[Sequence[int]], codes: Codes, count: int, length: int) -> Rows:
    """Texts cut to so many frames; `count`: codes of the codec."""
    made = torch.zeros(5, len(all_ids), length, dtype=torch.int64)
    made[4] = IGNORED
    for at, ids in enumerate(all_ids):
        parts = frames_of(ids, codes)
        after = [*ids[1:], _ID[PAUSE]]
        wanted = np.concatenate([np.append(part[:-1], part[-1] + count) for part in parts])[:length]
        sizes = [len(part) for part in parts]
        columns = [
            np.append(2 * count, wanted[:-1]),
            np.repeat(ids, sizes)[:length],
            np.repeat(after, sizes)[:length],
            np.concatenate([np.arange(size) for size in sizes])[:length],
            wanted,
        ]
        made[:, at, : len(wanted)] = torch.from_numpy(np.stack(columns))
    return Rows(*made.unbind(0))
