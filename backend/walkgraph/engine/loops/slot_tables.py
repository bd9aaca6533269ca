"""What the device keeps of runs in slots: counters, parameters, page tables, the values that iterations hand on.

A *slot* is a row of these tables. The last row pads: slots of runs that have ended are turned into it on the device.
Where the cached sequences of its paged states are, `SlotPages` keeps.

Shape letters: T rows of the tables, B rows of a batch, K iterations of a launch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.step import Row
from walkgraph.engine.device.cuda_streams import listed, sent
from walkgraph.engine.kv.pool import Pool
from walkgraph.engine.kv.slot_pages import SlotPages, most_pages
from walkgraph.engine.loops.body import Body, UseStep
from walkgraph.engine.loops.spec import Place
from walkgraph.layers import channels
from walkgraph.layers.rows import Tables


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
        self.tensors = {name: self._table(row) for name, row in body.tensors.items()}
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
    return sum(cells) + sum(map(bytes_of, body.tensors.values()))


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
