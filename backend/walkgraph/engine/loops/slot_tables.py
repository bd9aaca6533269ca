"""What the device keeps of runs in slots: counters, parameters, page tables, the values that iterations hand on.

A *slot* is a row of these tables. The last row pads: slots of runs that have ended are turned into it on the device.
The cached sequences of the paged states stand in a table of their own:

    | state 0: slot 0 | slot 1 | .. | pad | state 1: slot 0 ............. | pad | ..
      a slot:  | sequence 0 | sequence 1 | .. |                 all of a slot are equally long

Shape letters: T rows of the tables, B rows of a batch, w sequences of a state, P pages of a sequence, S states, N
sequences of all states and slots.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.step import PagedRows, Row
from walkgraph.engine.device.cuda_streams import listed, sent
from walkgraph.engine.kv.pool import Pool
from walkgraph.engine.loops.body import NOTHING, Body, Grown, UseStep
from walkgraph.engine.loops.spec import Place
from walkgraph.layers import channels
from walkgraph.layers.rows import Tables

MOST_PAGES = 4096
"""Of one sequence; longer ones are not served in a loop on the device."""


def most_pages(pool: Pool) -> int:
    """Of a sequence in a table."""
    return min(MOST_PAGES, pool.pages.total)


def table_bytes(pools: Mapping[str, Pool], widths: Mapping[str, int]) -> int:
    """Of the pages of one row's wide states."""
    return sum(4 * width * most_pages(pools[name]) for name, width in widths.items() if name in pools and width > 1)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What a row begins with."""

    times: int
    first: int
    """The iteration that comes next: 0, but for a loop that goes on after it had left its row."""
    ints: Sequence[int]
    """For each use its seed, then its `ints`."""
    floats: Sequence[float]
    """In the order of the uses and their `floats`; series likewise."""
    series: Sequence[Sequence[float]]
    cells: Mapping[Place, Tensor]
    """Entering values, by the use and port that read them; or all that `cells_of` gave."""
    paged: Mapping[str, tuple[Sequence[Sequence[int]], int, int]]
    """State -> the pages of its sequences, and what all of these have: their length, their position."""
    tensors: Mapping[str, Tensor | None]


class Columns(NamedTuple):
    """Where a use's parameters begin in the tables."""

    ints: int
    """Its seed, then those of its `ints`."""
    floats: int
    series: int


def columns_of(uses: Sequence[UseStep]) -> list[Columns]:
    found = [Columns(0, 0, 0)]
    for use in uses:
        at = found[-1]
        found.append(Columns(at.ints + 1 + len(use.ints), at.floats + len(use.floats), at.series + len(use.series)))
    return found


class SlotTables:
    """The slots of one batch group, on one device."""

    def __init__(self, body: Body, pools: Mapping[str, Pool], slots: int, device: torch.device) -> None:
        """`pools`: paged state -> its pool."""
        self.body, self.device, self.slots = body, device, slots
        self.pad = slots
        states = dict.fromkeys(use.states[slot] for use in body.uses for slot in use.paged)
        table, count = slots + 1, len(states)
        self.counters = torch.zeros(1 + 2 * count, table, dtype=torch.int32, device=device)
        """Iteration, then the lengths of all paged states, then their positions."""
        self.pages = SlotPages({name: pools[name] for name in states}, body.widths, self.counters[1:])
        self.times = torch.zeros(table, dtype=torch.int32, device=device)
        self.live = torch.zeros(table, dtype=torch.bool, device=device)
        self.columns = columns_of(body.uses)
        ints, floats, series = self.columns[-1]
        self.ints = torch.zeros(table, ints, dtype=torch.int64, device=device)
        """For each use: its seed, then its parameters."""
        self.floats = torch.zeros(table, floats, device=device)
        self.series = torch.zeros(table, series, max(1, body.steps), device=device)
        self.layout = cells_in(body)
        self.cells = {place: self._table(row) for place, row in self.layout.rows.items()}
        self.tensors = {
            use.states[slot]: self._table(row)
            for use in body.uses
            for slot, row in use.spec.tensors.items()
            if slot in use.states
        }
        self.begins = {name: torch.zeros_like(table) for name, table in self.tensors.items() if name in body.anew}
        """What states that begin anew have at the start of every iteration."""
        self.links = torch.zeros(table, channels.width(body.channels), dtype=torch.int64, device=device)
        """As `layers.channels` has it."""
        self.counted = Tables(self.live, self.counters, self.times, self.ints, self.floats)

    def pages_at_most(self, state: str) -> int:
        """Pages that a sequence has at most."""
        return most_pages(self.pages.pools[state])

    def enter(self, slot: int, entry: Entry) -> None:
        """Fill a slot. In the order of the stream: launches before it don't see it, those after do."""
        self.pages.enter(slot, entry.paged)
        stands = [entry.paged[name] for name in self.pages.order]
        lengths, positions = [length for _, length, _ in stands], [position for _, _, position in stands]
        counters = listed([entry.first, *lengths, *positions], self.device, torch.int32)
        self.counters[:, slot].copy_(counters, non_blocking=True)
        self.ints[slot].copy_(listed(entry.ints, self.device), non_blocking=True)
        if entry.floats:
            self.floats[slot].copy_(listed(entry.floats, self.device), non_blocking=True)
        for index, numbers in enumerate(entry.series):
            self.series[slot, index, : len(numbers)].copy_(listed(numbers, self.device), non_blocking=True)
        for place, value in entry.cells.items():
            cell = self.cells[place][slot]
            (cell[: len(value)] if place in self.layout.sequences else cell).copy_(sent(value, self.device))
        for name, value in entry.tensors.items():
            for table in (self.tensors[name], *([self.begins[name]] if name in self.begins else ())):
                table[slot].zero_() if value is None else table[slot].copy_(value)
        self.times[slot].fill_(entry.times)
        self.live[slot].fill_(True)

    def link(self, slot: int, links: Sequence[int]) -> None:
        """Where the values of a slot's channels are, as `layers.channels` has it."""
        self.links[slot].copy_(listed(links, self.device), non_blocking=True)

    def value(self, place: Place, slot: int) -> Tensor:
        """A copy of the last value of an output of `last`."""
        return self.cells[self.layout.readers[place]][slot].clone()

    def cells_of(self, slot: int) -> dict[Place, Tensor]:
        """Copies of all that iterations have handed on, or will read: for the `Entry` of another slot."""
        return {place: cell[slot].clone() for place, cell in self.cells.items()}

    def tensor(self, state: str, slot: int) -> Tensor:
        return self.tensors[state][slot].clone()

    def _table(self, row: Row) -> Tensor:
        return torch.zeros(self.slots + 1, *row.shape, dtype=row.dtype, device=self.device)


class SlotPages:
    def __init__(self, pools: Mapping[str, Pool], widths: Mapping[str, int], counters: Tensor) -> None:
        """`pools`: of each paged state. `counters`: int32 `[2S, T]`: the lengths of all states, then their positions;
        the program counts them."""
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
        self._count = {width: torch.arange(width, dtype=torch.int32, device=device) for width in set(self._widths)}

    def enter(self, slot: int, held: Mapping[str, tuple[Sequence[Sequence[int]], int, int]]) -> None:
        """Fill in the pages of a slot's states, as `Entry.paged` has them."""
        for name, index in self.order.items():
            sequences, width = held[name][0], self._widths[index]
            count, spare = max(map(len, sequences), default=0), self.pools[name].spare
            padded = [[*pages, *[spare] * (count - len(pages))] for pages in sequences]
            table = self._of(name)[slot * width : (slot + 1) * width]
            numbers = listed(padded, table.device, torch.int32).view(width, count)
            table[:, :count].copy_(numbers, non_blocking=True)
            table[:, count:].fill_(spare)

    def iteration(self, rows: Tensor) -> "IterationPages":
        """`rows`: int32 `[B]`, of a batch; in one of its iterations."""
        return IterationPages(self, rows)

    def _of(self, name: str) -> Tensor:
        """`[T * w, P]`"""
        index = self.order[name]
        return self.pages[self._starts[index] : self._starts[index + 1]]

    def rows_of(self, rows: Tensor, name: str) -> Tensor:
        """int32 `[B * w]`, among the sequences of a state."""
        width = self._widths[self.order[name]]
        return rows if width == 1 else (rows[:, None] * width + self._count[width]).flatten()

    def stood(self, name: str, grown: Grown) -> tuple[Tensor, Tensor]:
        """Lengths and positions `[T * w]` after what was appended since they were counted."""
        count, index = len(self.order), self.order[name]
        lengths, positions = self._counters[index], self._counters[count + index]
        if grown != NOTHING:
            lengths, positions = lengths + grown.tokens, positions + grown.positions
        width = self._widths[index]
        if width > 1:
            lengths, positions = (one[:, None].expand(-1, width).flatten() for one in (lengths, positions))
        return lengths, positions

    def one(self, name: str, rows: Tensor, stood: tuple[Tensor, Tensor]) -> PagedRows:
        return PagedRows(rows, self._of(name), *stood)

    def several(
        self, rows: Sequence[tuple[str, Tensor]], stood: Mapping[str, tuple[Tensor, Tensor]] | None
    ) -> PagedRows:
        """Rows of several states as rows of one. `stood`: of all states; None where they stand as they were counted."""
        if stood is None and all(width == 1 for width in self._widths):
            lengths, positions = self._counters.view(2, -1)
        else:
            at = {name: self.stood(name, NOTHING) for name in self.order} if stood is None else stood
            lengths, positions = (torch.cat([at[name][i] for name in self.order]) for i in range(2))
        shifted = [mine + self._starts[self.order[name]] for name, mine in rows]
        return PagedRows(torch.cat(shifted), self.pages, lengths, positions)


class IterationPages:
    """Of a batch, within one iteration: what several of its uses ask for is made once."""

    def __init__(self, pages: SlotPages, rows: Tensor) -> None:
        self._pages, self._narrow = pages, rows
        self._rows: dict[str, Tensor] = {}
        self._stood: dict[tuple[str, Grown], tuple[Tensor, Tensor]] = {}

    def rows(self, names: Sequence[str], grown: Mapping[str, Grown]) -> PagedRows:
        """Of the states of a batch's uses, use by use. `grown`: what the iteration has appended to them before."""
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


@dataclass(slots=True)
class CellLayout:
    """Values that a slot keeps for its iterations. They are named by what reads them; those that only the end reads, by
    what writes them."""

    rows: dict[Place, Row] = field(default_factory=dict[Place, Row])
    writes: dict[Place, Place] = field(default_factory=dict[Place, Place])
    """Cell -> the output that is its next value."""
    readers: dict[Place, Place] = field(default_factory=dict[Place, Place])
    """Output -> the cell with its last value."""
    sequences: set[Place] = field(default_factory=set[Place])
    """Those with a slice for every iteration."""


def cells_in(body: Body) -> CellLayout:
    cells = CellLayout()
    for index, use in enumerate(body.uses):
        for port, source in use.sources.items():
            if source.kind in ("entering", "carried", "behind"):
                cells.rows[index, port] = use.spec.inputs[port]
            if source.kind == "each":
                cells.sequences.add((index, port))
                shape, dtype = use.spec.inputs[port]
                cells.rows[index, port] = Row((body.steps, *shape), dtype)
            if source.kind == "carried" and source.place is not None:
                cells.writes[index, port] = source.place
                cells.readers.setdefault(source.place, (index, port))
    for place in body.last:
        if place not in cells.readers:
            key = (place[0], f"{place[1]}>")
            cells.rows[key], cells.writes[key], cells.readers[place] = body.output(place), place, key
    return cells


def channel_bytes(body: Body) -> tuple[list[int], list[int]]:
    """Of a value of each channel that is read, and of each that is sent on."""
    reads = [bytes_of(body.uses[use].spec.inputs[port]) for (use, port), _ in body.reads]
    return reads, [bytes_of(body.output(place)) for place in body.sends]


def slot_bytes(body: Body) -> int:
    """Of the values that one slot keeps, without its page tables."""
    cells = [bytes_of(row) for row in cells_in(body).rows.values()]
    tensors = {use.states[slot]: row for use in body.uses for slot, row in use.spec.tensors.items()}
    return sum(cells) + sum(map(bytes_of, tensors.values()))


def fields_of(flat: Tensor, rows: Sequence[Row], sizes: Sequence[int], iterations: int, batch: int) -> list[Tensor]:
    """Typed views `[K, B, *shape]` of the segments of a flat uint8 tensor."""
    views: list[Tensor] = []
    for row, part in zip(rows, flat.split(list(sizes)), strict=True):
        used = part[: iterations * batch * bytes_of(row)]
        views.append(used.view(row.dtype).view(iterations, batch, *row.shape))
    return views


def bytes_of(row: Row) -> int:
    return row.dtype.itemsize * int(torch.Size(row.shape).numel())


def aligned(nbytes: int) -> int:
    return -(-nbytes // 16) * 16
