"""Short texts, behind any contexts, read by a captured forward: hundreds of small launches become one.

Texts of several sequences are packed into one row of tokens. Where they stand, and what they see, lies in tensors that
are filled before a replay, so that a graph for each number of tokens serves all.

Shape letters: R tokens of a graph, H query heads, D head dim, W model width.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.operator import Capture
from walkgraph.abi.states import CausalRows, Placed
from walkgraph.layers.few_attention import ROWS, Tiles, few_attention, tiles_of

SIZES = (16, 32, 64, 128)
"""Tokens of a graph, all texts together."""
MOST = 8
"""Texts of a graph."""
PAGES = 4096
"""Of all texts and their contexts."""

Read = Callable[[Tensor, Tensor, Tensor, Placed], Tensor]
"""ids and positions int64 `[R]`, asked rows int64 `[K]` and what places and attends rows -> states `[K, W]`."""


class _Numbers(NamedTuple):
    """What a replay reads beside ids and slots: views of one int64 tensor, so that one copy fills them."""

    whole: Tensor
    rows: Tensor
    positions: Tensor
    ends: Tensor
    lines: Tensor
    pages: Tensor

    @classmethod
    def of(cls, size: int, device: torch.device) -> "_Numbers":
        tiles = size // ROWS + MOST - 1
        sizes = (1, size, MOST, tiles * 4, PAGES)
        whole = torch.zeros(sum(sizes), dtype=torch.int64, device=device)
        rows, positions, ends, lines, pages = whole.split(sizes)
        return cls(whole, rows, positions, ends, lines.view(tiles, 4), pages)

    def fill(self, positions: Sequence[int], to: CausalRows) -> None:
        tiles = tiles_of(to.counts, to.before, [len(pages) for pages in to.pages])
        ends = torch.tensor(to.counts).cumsum(0) - 1
        numbers = [
            len(positions),
            *_padded(positions, self.positions),
            *_padded(ends.tolist(), self.ends),
            *_padded([*chain(*tiles)], self.lines),
            *chain(*to.pages),
        ]
        # From pinned memory, the copy doesn't wait for the work before it.
        sent = torch.tensor(numbers, dtype=torch.int64, pin_memory=self.whole.is_cuda)
        self.whole[: len(numbers)].copy_(sent, non_blocking=True)


class _Graph(NamedTuple):
    ids: Tensor
    slots: Tensor
    numbers: _Numbers
    states: list[Tensor]
    replay: Callable[[], None]


class Texts:
    """The captured forwards of one model over the caches of one pool."""

    def __init__(self, read: Read, capture: Capture | None) -> None:
        self._read, self._capture = read, capture
        self._graphs: dict[int, _Graph] = {}

    def read(self, ids: Tensor, positions: Sequence[int], to: CausalRows | None) -> Tensor | None:
        """States `[texts, W]` of the last token of each; None where a plain forward must serve them. ids int64 `[R]`
        and positions, text by text."""
        count = len(ids)
        if self._capture is None or to is None or count > SIZES[-1] or len(to.counts) > MOST:
            return None
        if sum(map(len, to.pages)) > PAGES:
            return None
        if not self._graphs:
            # All at the first text, which is the warm-up's: no request waits for it.
            self._graphs = {size: self._captured(size, to, self._capture) for size in reversed(SIZES)}
        graph = self._graphs[next(size for size in SIZES if size >= count)]
        graph.ids[:count].copy_(ids)
        graph.slots[:count].copy_(to.slots)
        graph.slots[count:].fill_(to.spare)
        graph.numbers.fill(positions, to)
        graph.replay()
        # The next replay writes over what this one gave.
        return graph.states[-1][: len(to.counts)].clone()

    def _captured(self, size: int, to: CausalRows, capture: Capture) -> _Graph:
        device = to.slots.device
        ids, numbers = torch.zeros(size, dtype=torch.int64, device=device), _Numbers.of(size, device)
        slots = torch.full_like(ids, to.spare)
        placed = PagedTexts(to, slots, Tiles(numbers.rows, numbers.lines, numbers.pages))
        states: list[Tensor] = []

        def work() -> None:
            states[:] = [self._read(ids, numbers.positions, numbers.ends, placed)]

        return _Graph(ids, slots, numbers, states, capture(work, f"a text of {size} tokens"))


class PagedTexts:
    """`Placed` of rows whose keys and values go to `slots`, and which see what `tiles` say."""

    def __init__(self, to: CausalRows, slots: Tensor, tiles: Tiles) -> None:
        self.k, self.v, self.slots, self._tiles = to.k, to.v, slots, tiles

    def __call__(self, layer: int, q: Tensor) -> Tensor:
        """q `[R, H, D]` -> `[R, H, D]`."""
        return few_attention(q, self.k[layer], self.v[layer], self._tiles)


def _padded(numbers: Sequence[int], like: Tensor) -> list[int]:
    return [*numbers, *[0] * (like.numel() - len(numbers))]
