"""Page tables of slots: on the device, the pages, lengths and positions of the cached sequences of the runs in slots.

A state has one or several sequences in each slot. The last slot is padding.

    | state 0: slot 0 | slot 1 | .. | pad | state 1: slot 0 ............. | pad | ..
      a slot:  | sequence 0 | sequence 1 | .. |                 all of a slot are equally long

Shape letters: T slots, B rows of a batch, w sequences of a state, P pages of a sequence, S states, N sequences of all
states and slots.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.step import PagedRows
from walkgraph.engine.device.cuda_streams import listed
from walkgraph.engine.kv.pool import Pool

MOST_PAGES = 4096
"""The most pages of one sequence; longer ones are not served in device loops."""


def most_pages(pool: Pool) -> int:
    """The most pages of a sequence in a table."""
    return min(MOST_PAGES, pool.pages.total)


def table_bytes(pools: Mapping[str, Pool], widths: Mapping[str, int]) -> int:
    """Bytes of the page tables of one slot's wide states (width above 1)."""
    return sum(4 * width * most_pages(pools[name]) for name, width in widths.items() if name in pools and width > 1)


class Grown(NamedTuple):
    """Tokens and positions appended to a cache."""

    tokens: int
    positions: int


NOTHING = Grown(0, 0)


class SlotPages:
    def __init__(
        self,
        pools: Mapping[str, Pool],
        widths: Mapping[str, int],
        counters: Tensor,
        fractions: Collection[str] = (),
    ) -> None:
        """`pools`: that of each paged state. `counters`: int32 `[2S, T]`: the lengths of all states, then their
        positions; the program updates them. `fractions`: states whose positions may be fractions."""
        self.pools, self._counters, device = dict(pools), counters, counters.device
        self.table = counters.shape[1]
        self.order = {name: index for index, name in enumerate(self.pools)}
        self._widths = [widths.get(name, 1) for name in self.pools]
        self._starts = [0, *accumulate(self.table * width for width in self._widths)]
        most = max(map(most_pages, self.pools.values()), default=0)
        self.pages = torch.zeros(self._starts[-1], most, dtype=torch.int32, device=device)
        """`[N, P]`"""
        for name, pool in self.pools.items():
            self._of(name).fill_(pool.spare)
        self._fractions = {name: torch.zeros(self.table, device=device) for name in self.order if name in fractions}
        """Fractions that are added to the positions, float32 `[T]`."""
        self._count = {width: torch.arange(width, dtype=torch.int32, device=device) for width in set(self._widths)}

    def enter(self, slot: int, held: Mapping[str, tuple[Sequence[Sequence[int]], int, float]]) -> None:
        """Fill in the pages of a slot's states, in the form of `Entry.paged`."""
        for name, index in self.order.items():
            sequences, width = held[name][0], self._widths[index]
            count, spare = max(map(len, sequences), default=0), self.pools[name].spare
            padded = [[*pages, *[spare] * (count - len(pages))] for pages in sequences]
            table = self._of(name)[slot * width : (slot + 1) * width]
            numbers = listed(padded, table.device, torch.int32).view(width, count)
            table[:, :count].copy_(numbers, non_blocking=True)
            table[:, count:].fill_(spare)
            if name in self._fractions:
                self._fractions[name][slot].fill_(held[name][2] % 1)

    def _of(self, name: str) -> Tensor:
        """The pages of a state, `[T * w, P]`."""
        index = self.order[name]
        return self.pages[self._starts[index] : self._starts[index + 1]]

    def rows_of(self, rows: Tensor, name: str) -> Tensor:
        """Indices of the rows' sequences among those of a state, int32 `[B * w]`."""
        width = self._widths[self.order[name]]
        return rows if width == 1 else (rows[:, None] * width + self._count[width]).flatten()

    def stood(self, name: str, grown: Grown) -> tuple[Tensor, Tensor]:
        """Lengths and positions `[T * w]`, with what was appended since they were last counted."""
        count, index = len(self.order), self.order[name]
        lengths, positions = self._counters[index], self._counters[count + index]
        if grown != NOTHING:
            lengths, positions = lengths + grown.tokens, positions + grown.positions
        if name in self._fractions:
            positions = positions + self._fractions[name]
        width = self._widths[index]
        if width > 1:
            lengths, positions = (one[:, None].expand(-1, width).flatten() for one in (lengths, positions))
        return lengths, positions

    def one(self, name: str, rows: Tensor, stood: tuple[Tensor, Tensor]) -> PagedRows:
        return PagedRows(rows, self._of(name), *stood)

    def several(
        self, rows: Sequence[tuple[str, Tensor]], stood: Mapping[str, tuple[Tensor, Tensor]] | None
    ) -> PagedRows:
        """Join the rows of several states into one. `stood`: lengths and positions of all states; None if they are as
        counted."""
        if stood is None and not self._fractions and all(width == 1 for width in self._widths):
            lengths, positions = self._counters.view(2, -1)
        else:
            at = {name: self.stood(name, NOTHING) for name in self.order} if stood is None else stood
            lengths, positions = (torch.cat([at[name][i] for name in self.order]) for i in range(2))
        shifted = [mine + self._starts[self.order[name]] for name, mine in rows]
        return PagedRows(torch.cat(shifted), self.pages, lengths, positions)


class IterationPages:
    """The page tables of a batch within one iteration. Tensors that several uses need are made once."""

    def __init__(self, pages: SlotPages, rows: Tensor) -> None:
        """`rows`: int32 `[B]`, the slots of the batch."""
        self._pages, self._narrow = pages, rows
        self._rows: dict[str, Tensor] = {}
        self._stood: dict[tuple[str, Grown], tuple[Tensor, Tensor]] = {}

    def rows(self, names: Sequence[str], grown: Mapping[str, Grown]) -> PagedRows:
        """The rows of these states, use by use. `grown`: what the iteration has appended to them so far."""
        if len(names) == 1:
            name = names[0]
            return self._pages.one(name, self._of(name), self._at(name, grown.get(name, NOTHING)))
        moved = any(one != NOTHING for one in grown.values())
        every = {name: self._at(name, grown.get(name, NOTHING)) for name in self._pages.order} if moved else None
        return self._pages.several([(name, self._of(name)) for name in names], every)

    def _of(self, name: str) -> Tensor:
        if name not in self._rows:
            self._rows[name] = self._pages.rows_of(self._narrow, name)
        return self._rows[name]

    def _at(self, name: str, grown: Grown) -> tuple[Tensor, Tensor]:
        if (name, grown) not in self._stood:
            self._stood[name, grown] = self._pages.stood(name, grown)
        return self._stood[name, grown]
