"""Captured forwards for short texts after any contexts.

Shape letters: R tokens of a graph, H query heads, D head dim, W model width.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, chain

from torch import Tensor

from walkgraph.abi.states import CausalRows, Placed
from walkgraph.architectures.captured_prompts import PromptForm, PromptInputs, padded
from walkgraph.layers.attention.few_attention import few_attention
from walkgraph.layers.attention.tiles import TILE_ROWS, Tiles, tiles_of

SIZES = (16, 32, 64, 128)
"""Tokens of a graph, summed over its texts."""
MOST = 8
"""The most texts of a graph."""
PAGES = 4096
"""The most pages of a graph's texts and their contexts."""

Read = Callable[[Tensor, Tensor, Tensor, Placed], Tensor]
"""ids and positions int64 `[R]`, asked rows int64 `[K]`, and `Placed` rows -> states `[K, W]`."""


class Texts(PromptForm):
    """Returns the states of each text's last token."""

    sizes, most, what = SIZES, MOST, "a text of {} tokens"

    def __init__(self, read: Read) -> None:
        self._read = read

    def fits(self, to: CausalRows) -> bool:
        return sum(map(len, to.pages)) <= PAGES

    def blank(self, size: int) -> Sequence[int]:
        return [0] * sum(_parts(size))

    def numbers(self, size: int, positions: Sequence[int], to: CausalRows) -> Sequence[int]:
        _, _, _, lines, _ = _parts(size)
        tiles = tiles_of(to.counts, to.before, [len(pages) for pages in to.pages])
        return [
            len(positions),
            *padded(positions, size),
            *padded([count - 1 for count in accumulate(to.counts)], MOST),
            *padded([*chain(*tiles)], lines),
            *chain(*to.pages),
        ]

    def read(self, inputs: PromptInputs, to: CausalRows) -> Sequence[Tensor]:
        rows, positions, ends, lines, pages = inputs.numbers.split(_parts(len(inputs.rows)))
        placed = PagedTexts(to, inputs.slots, Tiles(rows, lines.view(-1, 4), pages))
        return [self._read(inputs.rows, positions, ends, placed)]


class PagedTexts:
    """`Placed` rows whose keys and values go to `slots` and whose attention follows `tiles`."""

    def __init__(self, to: CausalRows, slots: Tensor, tiles: Tiles) -> None:
        self.k, self.v, self.slots, self._tiles = to.k, to.v, slots, tiles

    def __call__(self, layer: int, q: Tensor) -> Tensor:
        """q `[R, H, D]` -> `[R, H, D]`."""
        return few_attention(q, self.k[layer], self.v[layer], self._tiles)


def _parts(size: int) -> list[int]:
    """Lengths of the parts of a graph's numbers: the row count, positions, the last row of each text, four numbers per
    tile, pages."""
    return [1, size, MOST, 4 * (size // TILE_ROWS + MOST - 1), PAGES]
