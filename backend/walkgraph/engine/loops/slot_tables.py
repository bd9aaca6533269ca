"""The tables of a batch group's slots: counters, parameters, page tables, and values between iterations.

A *slot* is a row of these tables. The last row is padding: when a run ends, the device replaces its slot by that row.
`SlotPages` keeps the pages of the cached sequences. The slots of runs that enter together are filled together: each
copy takes the host longer than the device.

Shape letters: T rows of the tables, n slots that are filled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from walkgraph.abi.step import Row
from walkgraph.engine.device.cuda_streams import listed, sent, stacked
from walkgraph.engine.device.packed_tables import PackedNumbers, PackedTables
from walkgraph.engine.kv.pool import Pool, zeros
from walkgraph.engine.kv.slot_pages import SlotPages, most_pages, tables_of
from walkgraph.engine.loops.body import SERIES, Body, UseStep
from walkgraph.engine.loops.spec import Place, StreamItems
from walkgraph.layers import channels
from walkgraph.layers.rows import Tables

NO_ITEM = -1
"""The value that an iteration reads of a stream that has ended."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The initial content of a slot."""

    times: int
    first: int
    """The next iteration: 0, unless the loop goes on after it had left its slot."""
    ints: Sequence[int]
    """For each use, its seed, then its `ints`."""
    floats: Sequence[float]
    """The `floats` of each use in order; `series` likewise."""
    series: Sequence[Sequence[float]]
    cells: Mapping[Place, Tensor]
    """Entering values, by the use and port that read them; or everything that `cells_of` returned. Items that are not
    in it have not come."""
    paged: Mapping[str, tuple[Sequence[Sequence[int]], int, float]]
    """State -> the pages of its sequences, and the length and position that all of them share."""
    tensors: Mapping[str, Tensor | None]


class PackedEntry(NamedTuple):
    """An entry, as its slot's tables take it."""

    slot: int
    numbers: PackedNumbers
    cells: Mapping[Place, Tensor]
    tensors: Mapping[str, Tensor | None]


class Columns(NamedTuple):
    """The first columns of a use's parameters in the tables."""

    ints: int
    """Column of its seed, followed by those of its `ints`."""
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
        paged, table = {name: pools[name] for name in states}, slots + 1
        fractions = {use.states[slot] for use in body.uses for slot in use.paged if slot in use.spec.fractions}
        self.columns = columns_of(body.uses)
        ints, floats, series = self.columns[-1]
        self._packed = PackedTables(
            {
                "counters": ((1 + 2 * len(paged), table), torch.int32),
                "times": ((1, table), torch.int32),
                "ints": ((table, ints), torch.int64),
                "floats": ((table, floats), torch.float32),
                "series": ((table, series, max(1, body.steps)), torch.float32),
                **tables_of(paged, body.widths, table, fractions),
            },
            device,
        )
        self.counters = self._packed["counters"]
        """Iteration, then the lengths of all paged states, then their positions."""
        self.pages = SlotPages(paged, body.widths, self._packed, self.counters[1:], fractions)
        self.live = torch.zeros(table, dtype=torch.bool, device=device)
        self.series = self._packed["series"]
        self.layout = cells_in(body)
        self.cells = {place: self._table(row) for place, row in self.layout.rows.items()}
        self.tensors = {name: self._table(row) for name, row in body.tensors.items()}
        self.begins = {name: self._table(row) for name, row in body.tensors.items() if name in body.anew}
        """For states that begin anew: their content at the start of every iteration."""
        self.links = torch.zeros(table, channels.width(body.channels), dtype=torch.int64, device=device)
        """Links as in `layers.channels`."""
        # For each use, `ints` are its seed, then its parameters.
        times, ints, floats = self._packed["times"][0], self._packed["ints"], self._packed["floats"]
        self.counted = Tables(self.live, self.counters, times, ints, floats)
        self._coming: dict[Place, list[tuple[int, StreamItems]]] = {}
        """Items of streams with their slots, until the next launch."""

    def pages_at_most(self, state: str) -> int:
        """The most pages of a sequence of this state."""
        return most_pages(self.pages.pools[state])

    def pack(self, slot: int, entry: Entry) -> PackedEntry:
        """Pack an entry for a slot on the host. Raises whatever keeps it from being filled in."""
        # Items that still wait for the slot are those of a run that had it before.
        left = {place: [one for one in coming if one[0] != slot] for place, coming in self._coming.items()}
        self._coming = {place: coming for place, coming in left.items() if coming}
        packed, put = PackedNumbers(), self._packed.put
        self.pages.put(packed, slot, entry.paged)
        stands = [entry.paged[name] for name in self.pages.order]
        lengths, positions = [length for _, length, _ in stands], [int(position) for _, _, position in stands]
        for row, number in enumerate((entry.first, *lengths, *positions)):
            put(packed, "counters", row, (number,), slot)
        put(packed, "times", 0, (entry.times,), slot)
        put(packed, "ints", slot, entry.ints)
        put(packed, "floats", slot, entry.floats)
        for row, numbers in enumerate(entry.series, slot * len(entry.series)):
            put(packed, "series", row, numbers)
        cells = {
            place: _fitting(value, self.cells[place], part=place in self.layout.sequences)
            for place, value in entry.cells.items()
        }
        tensors = {
            name: None if value is None else _fitting(value, self.tensors[name], part=False)
            for name, value in entry.tensors.items()
        }
        return PackedEntry(slot, packed, cells, tensors)

    def fill(self, entries: Sequence[PackedEntry]) -> None:
        """Fill slots, each of them once, in stream order: earlier launches don't see it, later ones do."""
        slots = [one.slot for one in entries]
        numbers = self._packed.send([one.numbers for one in entries], slots)
        self.pages.clear(numbers.rows)
        self._packed.write(numbers)
        for place, cell in self.cells.items():
            blank = NO_ITEM if place in self.layout.items else None
            _fill_rows((cell,), slots, numbers.rows, [one.cells.get(place) for one in entries], blank)
        for name, table in self.tensors.items():
            tables = (table, self.begins[name]) if name in self.begins else (table,)
            _fill_rows(tables, slots, numbers.rows, [one.tensors[name] for one in entries], 0)
        self.live.index_fill_(0, numbers.rows, True)

    def link(self, slot: int, links: Sequence[int]) -> None:
        """Set the addresses of a slot's channels, as in `layers.channels`."""
        self.links[slot].copy_(listed(links, self.device), non_blocking=True)

    def put_items(self, slot: int, items: StreamItems) -> None:
        """Note what a stream has brought, for `fill_in`."""
        self._coming.setdefault(items.place, []).append((slot, items))

    def fill_in(self) -> None:
        """Copy the items that have come since the last launch to their slots, in stream order: those of all runs
        together, because each copy takes the host longer than the device."""
        for place, coming in self._coming.items():
            cell, rows, given = self.cells[place], list[int](), list[Tensor]()
            for slot, items in coming:
                start, value = slot * cell.shape[1] + items.first, items.values
                rows += range(start, start + value.shape[0])
                given.append(value if value.dtype == cell.dtype else value.to(cell.dtype))
            # Items are of the indices' type, so both go in one copy.
            both = [torch.from_numpy(np.array(rows)), *given]
            if any(one.device != both[0].device for one in given):
                both = [_here(one, self.device) for one in both]
            at, values = _here(torch.cat(both), self.device).split(len(rows))
            cell.flatten(0, 1).index_copy_(0, at, values.view(-1, *cell.shape[2:]))
        self._coming.clear()

    def value(self, place: Place, slot: int) -> Tensor:
        """The last value of one of the body's `last` outputs, in its cell."""
        return self.cells[self.layout.readers[place]][slot]

    def cells_of(self, slot: int) -> dict[Place, Tensor]:
        """Copies of all values that later iterations read, for the `Entry` of another slot."""
        self.fill_in()
        return {place: cell[slot].clone() for place, cell in self.cells.items()}

    def tensor(self, state: str, slot: int) -> Tensor:
        return self.tensors[state][slot].clone()

    def _table(self, row: Row) -> Tensor:
        return zeros((self.slots + 1, *row.shape), row.dtype, self.device)


@dataclass(slots=True)
class CellLayout:
    """The values that a slot keeps between iterations, named by the port that reads them; those read only at the end,
    by the output that writes them."""

    rows: dict[Place, Row] = field(default_factory=dict[Place, Row])
    writes: dict[Place, Place] = field(default_factory=dict[Place, Place])
    """Cell -> the output that writes its next value."""
    readers: dict[Place, Place] = field(default_factory=dict[Place, Place])
    """Output -> the cell with its last value."""
    sequences: set[Place] = field(default_factory=set[Place])
    """Cells with a slice for every iteration."""
    items: set[Place] = field(default_factory=set[Place])
    """Those of them that a stream brings."""


def cells_in(body: Body) -> CellLayout:
    cells = CellLayout()
    for index, use in enumerate(body.uses):
        for port, source in use.sources.items():
            if source.kind in ("entering", "carried", "behind"):
                cells.rows[index, port] = use.spec.inputs[port]
            if source.kind in SERIES:
                cells.sequences.add((index, port))
                if source.kind == "item":
                    cells.items.add((index, port))
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
    """Bytes of a value of each channel that is read, and of each that is written."""
    reads = [bytes_of(body.uses[use].spec.inputs[port]) for (use, port), _ in body.reads]
    return reads, [bytes_of(body.output(place)) for place in body.sends]


def slot_bytes(body: Body) -> int:
    """Bytes of the values in one slot, without its page tables."""
    cells = [bytes_of(row) for row in cells_in(body).rows.values()]
    return sum(cells) + sum(map(bytes_of, body.tensors.values()))


def bytes_of(row: Row) -> int:
    return row.dtype.itemsize * int(torch.Size(row.shape).numel())


def aligned(nbytes: int) -> int:
    return -(-nbytes // 16) * 16


def _fitting(value: Tensor, table: Tensor, *, part: bool) -> Tensor:
    """A value as a row of a table, or as the beginning of one. Raises RuntimeError if it is neither."""
    shape = table.shape[1:]
    if part:
        shape = (min(len(value), shape[0]), *shape[1:])
    value = value if value.dtype == table.dtype else value.to(table.dtype)
    return value if value.shape == shape else value.expand(shape)


def _fill_rows(
    tables: Sequence[Tensor], slots: Sequence[int], rows: Tensor, values: Sequence[Tensor | None], blank: int | None
) -> None:
    """Fill rows of equal tables, whose indices are `slots`, and `rows` on the device. Values of one shape are copied
    together. `blank`: fills rows without a value; None if they stay as they are."""
    there = [value for value in values if value is not None]
    if blank is not None and len(there) < len(values):
        for table in tables:
            table.index_fill_(0, rows, blank)
    if there and len(there) == len(values) and all(value.shape == there[0].shape for value in there):
        joined, shape = _joined(there, rows.device), there[0].shape
        for table in tables:
            (table if shape == table.shape[1:] else table[:, : shape[0]]).index_copy_(0, rows, joined)
        return
    for slot, value in zip(slots, values, strict=True):
        if value is not None:
            for row in [table[slot] for table in tables]:
                (row if value.shape == row.shape else row[: len(value)]).copy_(_here(value, row.device))


def _joined(values: Sequence[Tensor], device: torch.device) -> Tensor:
    """Stack values of one shape and type on the device."""
    if any(value.device != values[0].device for value in values):
        values = [_here(value, device) for value in values]
    return _here(stacked(values, device) if len(values) > 1 else values[0][None], device)


def _here(value: Tensor, device: torch.device) -> Tensor:
    return value if value.device == device else sent(value, device)
