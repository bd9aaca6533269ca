"""Captured forwards for short prompts behind any contexts: each row attends its sequence's pages up to itself.

Shape letters: R rows of a graph, P prompts of a graph, A axes of a position, H query heads, D head dim.
"""

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from walkgraph.abi.states import CausalRows, Placed
from walkgraph.architectures.prompts.captured_prompts import (
    Numbers,
    PromptAnswers,
    PromptForm,
    PromptInputs,
    padded,
)
from walkgraph.layers.attention.few_attention import few_attention
from walkgraph.layers.attention.tiles import TILE_ROWS, Tiles, height_of, tiles_of

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
"""Rows of a graph, summed over its prompts."""
MOST = 32
"""The most prompts of a graph."""
PAGES = 4096
"""The most pages of a graph's prompts and their contexts."""
_LONG = 2048
"""With more rows, the GPU works for longer than the launches of a plain forward take."""
_ATTENDED = 4 << 20
"""The most pairs of a row and a token that it attends, twice, of more than `_LONG` rows: with more of them, a plain
forward's attention is faster."""
_MANY = 512
"""From so many rows on, tiles are as high as they share reads best; below, there would be too few of them."""

Read = Callable[[Tensor, Tensor, Tensor, Placed], PromptAnswers]
"""Rows `[R, ...]`, possibly changed in place, positions float32 `[R]` or `[R, A]`, the last row of each prompt int64
`[P]`, and where keys and values go."""


class PagedPrompts(PromptForm):
    def __init__(
        self,
        read: Read,
        *,
        group: int,
        axes: int = 1,
        sizes: Sequence[int] = SIZES,
        most: int = MOST,
        what: str = "a prompt",
    ) -> None:
        """`group`: query heads of a key head; `axes`: positions of a row, given row by row."""
        self._read, self._group, self._axes = read, group, axes
        self.sizes, self.most, self.what = sizes, most, f"{what} of {{}} rows"

    def fits(self, to: CausalRows) -> bool:
        attended = sum(count * (2 * before + count) for count, before in zip(to.counts, to.before, strict=True))
        return (sum(to.counts) <= _LONG or attended <= _ATTENDED) and sum(map(len, to.pages)) <= PAGES

    def blank(self, size: int) -> Numbers:
        return np.zeros(sum(self._parts(size)), np.int64)

    def numbers(self, size: int, positions: Sequence[float], to: CausalRows) -> Numbers:
        _, places, _, lines, _ = self._parts(size)
        tiles = tiles_of(to.counts, to.before, [len(pages) for pages in to.pages], self._height(size))
        return np.concatenate(
            (
                [sum(to.counts)],
                padded(np.array(positions, np.float32).view(np.int32), places),
                padded(np.cumsum(to.counts) - 1, self.most),
                padded(np.array(tiles, np.int64).ravel(), lines),
                np.array([*chain(*to.pages)], np.int64),
            )
        )

    def read(self, inputs: PromptInputs, to: CausalRows) -> PromptAnswers:
        rows, places, ends, lines, pages = inputs.numbers.split(self._parts(len(inputs.rows)))
        positions = places.int().view(torch.float32)
        if self._axes > 1:
            positions = positions.view(-1, self._axes)
        placed = TiledRows(to, inputs.slots, Tiles(rows, lines.view(-1, 4), pages, self._height(len(inputs.rows))))
        # A copy: what the layers do to rows must not be read by the next replay as padding.
        return self._read(inputs.rows.clone(), positions, ends, placed)

    def _parts(self, size: int) -> list[int]:
        """Lengths of the parts of a graph's numbers: the row count, the bits of positions, the last row of each prompt,
        four numbers per tile, pages."""
        return [1, self._axes * size, self.most, 4 * (-(-size // self._height(size)) + self.most - 1), PAGES]

    def _height(self, size: int) -> int:
        """The most rows of a tile."""
        return height_of(self._group) if size >= _MANY else TILE_ROWS


class TiledRows:
    """`Placed` rows whose keys and values go to `slots` and whose attention follows `tiles`."""

    def __init__(self, to: CausalRows, slots: Tensor, tiles: Tiles) -> None:
        self.k, self.v, self.slots, self._tiles = to.k, to.v, slots, tiles

    def __call__(self, layer: int, q: Tensor) -> Tensor:
        """q `[R, H, D]` -> `[R, H, D]`."""
        return few_attention(q, self.k[layer], self.v[layer], self._tiles)
