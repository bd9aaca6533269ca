"""The body of a loop as device work on rows: what is captured, and replayed once for every step of every run in it.

A *row* is where one run keeps what the loop needs: counters, parameters, page tables, the values that iterations hand
on. A batch is an index map over rows. Rows that have ended are turned into the *pad row* on the device, so an iteration
that was launched past the end of a run leaves no trace of it.

Shape letters: T rows of the tables (the last one pads), B rows of a batch, K iterations of a launch, P pages of a row.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from walkgraph.engine.pool import Pool
from walkgraph.layers.rows import Gathered, Tables, gather_rows, settle_rows
from walkgraph.networks.base import Operator, PagedRows, PagedSlot, Row, StepBatch, StepSpec

Place = tuple[int, str]
"""A use of the body, and its port."""
MOST_PAGES = 4096
"""Of one row; longer sequences are not served in a loop on the device."""


class Source(NamedTuple):
    """Where an input of a use comes from: an earlier use of the same iteration, a value that the loop was entered with,
    slice i of one, the iteration before (which for iteration 0 is the entering value), or the loop's index."""

    kind: Literal["internal", "entering", "each", "carried", "index"]
    place: Place | None = None
    """Of `internal` and `carried`: what gives the value."""
    first: "Source | None" = None
    """Of `carried`: what gives iteration 0 its value, where the loop isn't entered with it."""


@dataclass(frozen=True, kw_only=True)
class UseStep:
    node: str
    operator: Operator
    spec: StepSpec
    sources: Mapping[str, Source]
    states: Mapping[str, str]
    """Slot -> state."""
    ints: tuple[str, ...]
    floats: tuple[str, ...]
    series: tuple[str, ...]
    """Parameters that change with the iteration."""


@dataclass(frozen=True, kw_only=True)
class Body:
    uses: tuple[UseStep, ...]
    until: Place | None
    each: tuple[Place, ...]
    """Outputs that are read on the host at every iteration."""
    last: tuple[Place, ...]
    """Outputs of which the last value is kept in the row."""
    steps: int
    """Iterations that a row's series and sequences have room for; 0 without any."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What a row begins with."""

    times: int
    first: int
    """The iteration that comes next: 0, but for a loop that goes on after it had left its row."""
    seeds: Sequence[int]
    """Of each use."""
    ints: Sequence[int]
    """In the order of the uses and their `ints`; floats and series likewise."""
    floats: Sequence[float]
    series: Sequence[Sequence[float]]
    cells: Mapping[Place, Tensor]
    """Entering values, by the use and port that read them; or all that `cells_of` gave."""
    paged: Mapping[str, tuple[Sequence[int], int, int]]
    """State -> its pages, its length, its position."""
    tensors: Mapping[str, Tensor | None]


@dataclass(slots=True)
class Buffers:
    """Of one batch size and count of iterations: fixed addresses, for the graph that is captured over them."""

    rows: Tensor
    """int64 `[B]`"""
    staging: Tensor
    """uint8: all that goes to the host."""
    fields: dict[Place, Tensor]
    """Views into it: `[K, B, *shape]`."""
    stopped: Tensor
    """bool `[K, B]`"""
    sound: Tensor
    """bool `[K, B]`"""
    sizes: list[int]
    """Bytes of its segments: stops, soundness, then what the body's `each` gives."""


class Program:
    """Owns the tables of all runs that are in loops of one body, on one device."""

    def __init__(self, body: Body, pools: Mapping[str, Pool], rows: int, device: torch.device) -> None:
        """`pools`: paged state -> its pool. `rows`: runs at most."""
        self.body, self.device, self.rows = body, device, rows
        self.pad = rows
        self._paged = {
            name: pools[name] for use in body.uses for slot, name in use.states.items() if slot in _paged(use)
        }
        self._order = {name: 1 + 2 * i for i, name in enumerate(self._paged)}
        table = rows + 1
        self.counters = torch.zeros(1 + 2 * len(self._paged), table, dtype=torch.int32, device=device)
        """Iteration, then length and position of each paged state."""
        self.times = torch.zeros(table, dtype=torch.int32, device=device)
        self.live = torch.zeros(table, dtype=torch.bool, device=device)
        self.ints = torch.zeros(table, sum(1 + len(u.ints) for u in body.uses), dtype=torch.int64, device=device)
        """For each use: its seed, then its parameters."""
        self.floats = torch.zeros(table, sum(len(u.floats) for u in body.uses), device=device)
        self.series = torch.zeros(table, sum(len(u.series) for u in body.uses), max(1, body.steps), device=device)
        self.pages: dict[str, Tensor] = {}
        for name, pool in self._paged.items():
            most = min(MOST_PAGES, pool.pages.total)
            self.pages[name] = torch.full((table, most), pool.spare, dtype=torch.int32, device=device)
        self.cells = {place: self._table(row) for place, row in self._cell_rows().items()}
        self.tensors = {
            use.states[slot]: self._table(row)
            for use in body.uses
            for slot, row in use.spec.tensors.items()
            if slot in use.states
        }
        self._grown = self._increments()
        self._tables = Tables(self.live, self.counters, self.times, self.ints, self.floats)

    def room(self, state: str) -> int:
        """Pages that a row's table holds at most."""
        return self.pages[state].shape[1]

    # ── rows ──

    def enter(self, row: int, entry: Entry) -> None:
        """Fill a row. In the order of the stream: launches before it don't see it, those after do."""
        counters = [entry.first]
        for name in self._paged:
            pages, length, position = entry.paged[name]
            counters += [length, position]
            table = self.pages[name][row]
            table[: len(pages)].copy_(torch.tensor(pages, dtype=torch.int32), non_blocking=True)
            table[len(pages) :].fill_(self._paged[name].spare)
        self.counters[:, row].copy_(torch.tensor(counters, dtype=torch.int32), non_blocking=True)
        self.ints[row].copy_(torch.tensor(_with_seeds(self.body.uses, entry)), non_blocking=True)
        if entry.floats:
            self.floats[row].copy_(torch.tensor(entry.floats), non_blocking=True)
        for index, numbers in enumerate(entry.series):
            self.series[row, index, : len(numbers)].copy_(torch.tensor(numbers), non_blocking=True)
        for place, value in entry.cells.items():
            cell = self.cells[place][row]
            (cell[: len(value)] if place in self._sequences else cell).copy_(value, non_blocking=True)
        for name, value in entry.tensors.items():
            self.tensors[name][row].zero_() if value is None else self.tensors[name][row].copy_(value)
        self.times[row].fill_(entry.times)
        self.live[row].fill_(True)

    def value(self, place: Place, row: int) -> Tensor:
        """A copy of the last value of an output of `last`."""
        return self.cells[self._kept(place)][row].clone()

    def cells_of(self, row: int) -> dict[Place, Tensor]:
        """Copies of all that iterations have handed on, or will read: for the `Entry` of another row."""
        return {place: cell[row].clone() for place, cell in self.cells.items()}

    def tensor(self, state: str, row: int) -> Tensor:
        return self.tensors[state][row].clone()

    # ── device work ──

    def buffers(self, batch: int, iterations: int) -> Buffers:
        rows = torch.full((batch,), self.pad, dtype=torch.int64, device=self.device)
        shapes: list[tuple[Place | None, Row]] = [(None, Row((), torch.bool)), (None, Row((), torch.bool))]
        shapes += [(place, self._output(place)) for place in self.body.each]
        sizes = [_aligned(iterations * batch * _bytes(row)) for _, row in shapes]
        staging = torch.zeros(sum(sizes), dtype=torch.uint8, device=self.device)
        views = fields_of(staging, [row for _, row in shapes], sizes, iterations, batch)
        fields = {place: view for (place, _), view in zip(shapes, views, strict=True) if place is not None}
        return Buffers(rows, staging, fields, views[0], views[1], sizes)

    def iterate(self, buffers: Buffers) -> None:
        """K iterations of the batch's rows: what is captured."""
        for k in range(buffers.stopped.shape[0]):
            self._iterate(buffers, k)

    def _iterate(self, buffers: Buffers, k: int) -> None:
        at = gather_rows(buffers.rows, self._tables)
        given: dict[Place, Tensor] = {}
        sound: Tensor | None = None
        series = self._series_at(at)
        columns = _Columns()
        for index, use in enumerate(self.body.uses):
            mine = columns.take(use)
            batch = StepBatch(
                rows=at.rows,
                inputs={p: self._input(index, p, source, at, given) for p, source in use.sources.items()},
                params={
                    **{name: at.ints[mine.ints + 1 + i] for i, name in enumerate(use.ints)},
                    **{name: at.floats[mine.floats + i] for i, name in enumerate(use.floats)},
                    **{name: series[:, mine.series + i].to(use.spec.params[name]) for i, name in enumerate(use.series)},
                },
                seed=at.ints[mine.ints],
                iteration=at.iteration,
                paged={slot: self._slot(use.states[slot], at.rows) for slot in _paged(use)},
                tensors={slot: self.tensors[use.states[slot]] for slot in use.spec.tensors},
                variant=use.spec.variant,
            )
            out = use.operator.step(batch)
            given.update({(index, port): value for port, value in out.ports.items()})
            sound = _both(sound, _sound(out.ports.values()) if out.finite is None else out.finite)
        self._settle(buffers, k, at, given, sound)

    def _settle(
        self, buffers: Buffers, k: int, at: Gathered, given: Mapping[Place, Tensor], sound: Tensor | None
    ) -> None:
        """Hand on what the next iteration and the host need."""
        for place, cell in self.cells.items():
            source = self._writes.get(place)
            if source is not None:
                cell.index_copy_(0, at.wide, given[source].to(cell.dtype))
        stopped = None if self.body.until is None else given[self.body.until].view(-1)
        told = buffers.stopped[k], buffers.sound[k]
        settle_rows(buffers.rows, at, self._tables, self._grown, stopped, sound, told)
        for place, view in buffers.fields.items():
            view[k].copy_(given[place].view(view.shape[1:]))

    def _input(self, use: int, port: str, source: Source, at: Gathered, given: Mapping[Place, Tensor]) -> Tensor:
        if source.kind == "internal" and source.place is not None:
            return given[source.place]
        if source.kind == "index":
            return at.iteration
        if source.kind == "each":
            return self.cells[use, port][at.wide, at.iteration]
        value = self.cells[use, port].index_select(0, at.wide)
        if source.first is None:
            return value
        first = self._input(use, port, source.first, at, given).to(value.dtype).view(value.shape)
        return torch.where((at.iteration == 0).view(-1, *[1] * (value.dim() - 1)), first, value)

    def _slot(self, state: str, rows: Tensor) -> PagedSlot:
        pool, at = self._paged[state], self._order[state]
        where = PagedRows(rows, self.pages[state], self.counters[at], self.counters[at + 1])
        return PagedSlot(pool.k, pool.v, where)

    def _series_at(self, at: Gathered) -> Tensor:
        """`[B, series]`"""
        if not self.series.shape[1]:
            return self.series[:0, :, 0]
        table = self.series.index_select(0, at.wide)
        return table.gather(2, at.iteration[:, None, None].expand(-1, table.shape[1], 1))[:, :, 0]

    # ── layout ──

    def _cell_rows(self) -> dict[Place, Row]:
        """Cells are named by what reads them; those that only the end reads, by what writes them."""
        rows: dict[Place, Row] = {}
        self._writes: dict[Place, Place] = {}
        self._readers: dict[Place, Place] = {}
        self._sequences: set[Place] = set()
        for index, use in enumerate(self.body.uses):
            for port, source in use.sources.items():
                if source.kind in ("entering", "carried"):
                    rows[index, port] = use.spec.inputs[port]
                if source.kind == "each":
                    self._sequences.add((index, port))
                    shape, dtype = use.spec.inputs[port]
                    rows[index, port] = Row((self.body.steps, *shape), dtype)
                if source.kind == "carried" and source.place is not None:
                    self._writes[index, port] = source.place
                    self._readers.setdefault(source.place, (index, port))
        for place in self.body.last:
            if place not in self._readers:
                key = (place[0], f"{place[1]}>")
                rows[key], self._writes[key], self._readers[place] = self._output(place), place, key
        return rows

    def _kept(self, place: Place) -> Place:
        return self._readers[place]

    def _output(self, place: Place) -> Row:
        return self.body.uses[place[0]].spec.outputs[place[1]]

    def _table(self, row: Row) -> Tensor:
        return torch.zeros(self.rows + 1, *row.shape, dtype=row.dtype, device=self.device)

    def _increments(self) -> Tensor:
        grown = [1, *[0] * (2 * len(self._paged))]
        for use in self.body.uses:
            for slot in _paged(use):
                at = self._order[use.states[slot]]
                grown[at] += use.spec.appends[slot]
                grown[at + 1] += use.spec.advances.get(slot, use.spec.appends[slot])
        return torch.tensor(grown, dtype=torch.int32, device=self.device)


class _Columns:
    """Where a use's parameters lie in the tables, use by use."""

    def __init__(self) -> None:
        self.ints = self.floats = self.series = 0
        self._next = (0, 0, 0)

    def take(self, use: UseStep) -> "_Columns":
        self.ints, self.floats, self.series = self._next
        self._next = (self.ints + 1 + len(use.ints), self.floats + len(use.floats), self.series + len(use.series))
        return self


def fields_of(flat: Tensor, rows: Sequence[Row], sizes: Sequence[int], iterations: int, batch: int) -> list[Tensor]:
    """Typed views `[K, B, *shape]` of the segments of a flat uint8 tensor."""
    views: list[Tensor] = []
    for row, part in zip(rows, flat.split(list(sizes)), strict=True):
        used = part[: iterations * batch * _bytes(row)]
        views.append(used.view(row.dtype).view(iterations, batch, *row.shape))
    return views


def _paged(use: UseStep) -> tuple[str, ...]:
    return tuple(slot for slot in use.spec.appends if slot in use.states)


def _with_seeds(uses: Sequence[UseStep], entry: Entry) -> list[int]:
    ints = iter(entry.ints)
    return [n for use, seed in zip(uses, entry.seeds, strict=True) for n in (seed, *(next(ints) for _ in use.ints))]


def _both(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return one if other is None else other if one is None else one & other


def _sound(values: Iterable[Tensor]) -> Tensor | None:
    """bool `[B]` of the float outputs; None without any."""
    found: Tensor | None = None
    for value in values:
        if value.is_floating_point():
            found = _both(found, value.isfinite().flatten(1).all(1) if value.dim() > 1 else value.isfinite())
    return found


def _bytes(row: Row) -> int:
    return row.dtype.itemsize * int(torch.Size(row.shape).numel())


def _aligned(nbytes: int) -> int:
    return -(-nbytes // 16) * 16
