"""Training data as integer tables, made by worker processes from seeds; pictures are drawn from them on the device.

Shape letters: n examples, K items, T tokens of a text (padded with -1).
"""

import itertools
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from walkgraph.starters.shapes import language
from walkgraph.starters.shapes.render import ABSENT, JITTER
from walkgraph.starters.shapes.scenes import MOST_ITEMS, Scene, draw_scenes, generator, held_out
from walkgraph.starters.shapes.tokens import FILE

CAPTION, PROMPT, EDIT = 24, 28, 14
"""The most tokens of each kind of text, bos and eos included."""
_CHUNK = 5_000

Table = NDArray[np.int16]


class Draws(NamedTuple):
    """Scenes with their caption and a prompt."""

    items: Tensor
    """int64 `[n, K, 4]`"""
    background: Tensor
    """int64 `[n]`"""
    caption: Tensor
    """int64 `[n, CAPTION]`"""
    prompt: Tensor
    """int64 `[n, PROMPT]`"""


class Edits(NamedTuple):
    before: Tensor
    background: Tensor
    after: Tensor
    background_after: Tensor
    moved: Tensor
    """int64 `[n, K]`: index in `before` of each item of `after`; -1 if it is new or moved."""
    text: Tensor
    """int64 `[n, EDIT]`"""


def draws(count: int, seed: int, workers: int) -> Draws:
    return Draws(*_tables(_draw_chunk, count, seed, workers))


def edits(count: int, seed: int, workers: int) -> Edits:
    return Edits(*_tables(_edit_chunk, count, seed, workers))


def shifts(count: int, device: torch.device) -> Tensor:
    """float32 `[count, K, 2]`: offsets of items from the middles of their cells."""
    return (torch.rand(count, MOST_ITEMS, 2, device=device) * 2 - 1) * JITTER


def kept_shifts(before: Tensor, fresh: Tensor, moved: Tensor) -> Tensor:
    """Offsets of the items after an edit, all `[n, K, 2]`: items that stay keep theirs exactly."""
    old = before.gather(1, moved.clamp(min=0)[..., None].expand(-1, -1, 2))
    return torch.where((moved >= 0)[..., None], old, fresh)


def edit_stream(seed: int, *, reserved: bool) -> Iterator[language.Edit]:
    """Endless edits; in training neither of the two scenes is a reserved one."""
    rng = generator(seed)
    for before in draw_scenes(seed + 1, reserved=reserved):
        edit = language.edit(rng, before)
        if edit is not None and (reserved or not held_out(edit.after)):
            yield edit


def encode(tokenizer: Tokenizer, texts: list[str], length: int) -> Table:
    """int16 `[n, length]`: bos, ids, eos, then -1."""
    bos, eos = tokenizer.token_to_id("<|im_start|>"), tokenizer.token_to_id("<|im_end|>")
    table = np.full((len(texts), length), -1, np.int16)
    for row, encoding in zip(table, tokenizer.encode_batch(texts), strict=True):
        ids = [bos, *encoding.ids, eos]
        row[: len(ids)] = ids
    return table


def _tables(make: Callable[[tuple[int, int]], tuple[Table, ...]], count: int, seed: int, workers: int) -> list[Tensor]:
    jobs = [(seed + 10 * i, min(_CHUNK, count - i * _CHUNK)) for i in range(-(-count // _CHUNK))]
    if workers < 2:
        chunks = [make(job) for job in jobs]
    else:
        with get_context("spawn").Pool(workers) as pool:
            chunks = pool.map(make, jobs)
    return [torch.from_numpy(np.concatenate(parts)).long() for parts in zip(*chunks, strict=True)]


def _draw_chunk(job: tuple[int, int]) -> tuple[Table, ...]:
    seed, count = job
    rng, tokenizer = generator(seed), Tokenizer.from_file(str(FILE))
    scenes = list(itertools.islice(draw_scenes(seed + 1, reserved=False), count))
    captions = [language.caption(scene) for scene in scenes]
    prompts = [language.prompt(rng, scene).text for scene in scenes]
    return (*_scenes(scenes), encode(tokenizer, captions, CAPTION), encode(tokenizer, prompts, PROMPT))


def _edit_chunk(job: tuple[int, int]) -> tuple[Table, ...]:
    seed, count = job
    tokenizer = Tokenizer.from_file(str(FILE))
    chosen = list(itertools.islice(edit_stream(seed, reserved=False), count))
    moved = np.array([moved_row(edit) for edit in chosen], np.int16)
    before, after = _scenes([e.before for e in chosen]), _scenes([e.after for e in chosen])
    return (*before, *after, moved, encode(tokenizer, [e.text for e in chosen], EDIT))


def moved_row(edit: language.Edit) -> list[int]:
    known = [-1 if index is None else index for index in edit.moved]
    return known + [-1] * (MOST_ITEMS - len(known))


def _scenes(scenes: list[Scene]) -> tuple[Table, Table]:
    items = [[*scene.items, *[ABSENT] * (MOST_ITEMS - len(scene.items))] for scene in scenes]
    return np.array(items, np.int16), np.array([scene.background for scene in scenes], np.int16)
