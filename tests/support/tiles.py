"""Few rows of any sequences over pages in random order, for tests of what attends them."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.layers.attention.tiles import TILE_ROWS, Tiles, tiles_of

PAGE = 16


class Case(NamedTuple):
    q: Tensor
    """`[R, H, D]`, the padding's rows among them."""
    k: Tensor
    """`[S, G, D]`, NaN where no token is; `v` likewise."""
    v: Tensor
    tiles: Tiles
    counts: list[int]
    before: list[int]
    slots: list[Tensor]
    """Slots of every sequence's tokens, including the new ones."""


def case(
    counts: list[int],
    before: list[int],
    *,
    padding: int,
    heads: tuple[int, int, int],
    dtype: torch.dtype,
    height: int = TILE_ROWS,
) -> Case:
    """Sequences of `counts` rows behind `before` tokens; heads: query heads, key heads, width; height: of tiles."""
    torch.manual_seed(sum(counts) + sum(heads))
    (queries, groups, width), rows = heads, sum(counts)
    held = [-(-(n + m) // PAGE) for n, m in zip(counts, before, strict=True)]
    pages = [part.tolist() for part in (torch.randperm(sum(held)) + 1).split(held)]
    k, v = (torch.full(((sum(held) + 1) * PAGE, groups, width), torch.nan, dtype=dtype) for _ in range(2))
    slots: list[Tensor] = []
    for mine, count, length in zip(pages, counts, before, strict=True):
        at = torch.arange(count + length)
        slots.append(torch.tensor(mine)[at // PAGE] * PAGE + at % PAGE)
        for cache in (k, v):
            cache[slots[-1]] = torch.randn(count + length, groups, width).to(dtype)
    lines = torch.zeros(rows // TILE_ROWS + len(counts) + 1, 4, dtype=torch.int64)
    tiles = torch.tensor(tiles_of(counts, before, held, height))
    lines[: len(tiles)] = tiles
    q = torch.randn(rows + padding, queries, width).to(dtype)
    made = Tiles(torch.tensor([rows]), lines, torch.tensor([*chain(*pages)]), height)
    return Case(q, k, v, made, counts, before, slots)
