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
from walkgraph.engine.device.packed_tables import PackedNumbers, PackedTables, Shape
from walkgraph.engine.kv.pool import Pool

MOST_PAGES = 4096
"""The most pages of one sequence; longer ones are not served in device loops."""
_PAGES, _FRACTIONS = "pages", "fractions of "
"""Names of tables."""


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


def tables_of(
    pools: Mapping[str, Pool], widths: Mapping[str, int], table: int, fractions: Collection[str]
) -> dict[str, tuple[Shape, torch.dtype]]:
    """The tables that `SlotPages` takes, for so many slots."""
    sequences = sum(table * widths.get(name, 1) for name in pools)
    most = max(map(most_pages, pools.values()), default=0)
    return {_PAGES: ((sequences, most), torch.int32)} | {
        _FRACTIONS + name: ((table,), torch.float32) for name in pools if name in fractions
    }


class SlotPages:
    def __init__(
        self,
        pools: Mapping[str, Pool],
        widths: Mapping[str, int],
        tables: PackedTables,
        counters: Tensor,
        fractions: Collection[str] = (),
    ) -> None:
        """`pools`: that of each paged state. `tables`: with those of `tables_of`. `counters`: int32 `[2S, T]`: the
        lengths of all states, then their positions; the program updates them. `fractions`: states whose positions may
        be fractions."""
        self.pools, self._counters, device = dict(pools), counters, counters.device
        self.table = counters.shape[1]
        self.order = {name: index for index, name in enumerate(self.pools)}
        self._widths = [widths.get(name, 1) for name in self.pools]
        self._starts = [0, *accumulate(self.table * width for width in self._widths)]
        self._tables = tables
        self.pages = tables[_PAGES]
        """`[N, P]`"""
        shapes = [(self.table, width * self.pages.shape[1]) for width in self._widths]
        self._slots = {name: self._of(name).view(shape) for name, shape in zip(self.pools, shapes, strict=True)}
        """The pages of each state by slot, `[T, w * P]`."""
        for name, pool in self.pools.items():
            self._slots[name].fill_(pool.spare)
        self._fractions = {name: tables[_FRACTIONS + name] for name in self.order if name in fractions}
        """Fractions that are added to the positions, float32 `[T]`."""
        self._count = {width: torch.arange(width, dtype=torch.int32, device=device) for width in set(self._widths)}

    def put(
        self, packed: PackedNumbers, slot: int, held: Mapping[str, tuple[Sequence[Sequence[int]], int, float]]
    ) -> None:
        """Add the pages of a slot's states, in the form of `Entry.paged`, for a slot that is cleared before they are
        written."""
        for name, index in self.order.items():
            sequences, _, place = held[name]
            width = self._widths[index]
            first = self._starts[index] + slot * width
            for row, pages in zip(range(first, first + width), sequences, strict=True):
                self._tables.put(packed, _PAGES, row, pages)
            if name in self._fractions:
                self._tables.put(packed, _FRACTIONS + name, 0, (place % 1,), slot)

    def clear(self, slots: Tensor) -> None:
        """Fill the pages of these slots, int64 `[B]`, with spare ones, in stream order."""
        for name, pool in self.pools.items():
            self._slots[name].index_fill_(0, slots, pool.spare)

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
