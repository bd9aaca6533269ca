"""The body of a loop as device work on rows: what is captured, and replayed once for every step of every run in it.

A *row* is where one run keeps what the loop needs: counters, parameters, page tables, the values that iterations hand
on. A batch is an index map over rows. Rows that have ended are turned into the *pad row* on the device, so an iteration
that was launched past the end of a run leaves no trace of it.

Shape letters: T rows of the tables (the last one pads), B rows of a batch, K iterations of a launch, P pages of a row,
S states.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.step import PagedSlot, Row, StepBatch
from walkgraph.engine.calls.finite import sound_rows
from walkgraph.engine.device.streams import listed, sent
from walkgraph.engine.kv.dense_context import Held, Room, capacity_for, room_bytes
from walkgraph.engine.kv.pool import Pool
from walkgraph.engine.loops.body import (
    SKIPPED,
    Body,
    Entry,
    Form,
    Grown,
    UseStep,
    columns_of,
    fed_ports,
    with_seeds,
)
from walkgraph.engine.loops.layout import aligned, bytes_of, cells_in, fields_of
from walkgraph.engine.loops.sequences import NOTHING, Moment, Sequences, most_pages
from walkgraph.engine.loops.spec import LoopSource, Place
from walkgraph.layers import channels
from walkgraph.layers.rows import Gathered, Tables, gather_rows, settle_rows

PADDING = Held((), 0, 0, 0)


@dataclass(slots=True)
class Buffers:
    """Of one form, batch size and count of iterations: fixed addresses, for the graph that is captured over them."""

    form: Form
    groups: list[tuple[int, ...]]
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
    """Bytes of its segments: stops, soundness, then what the form tells."""
    uses: tuple[int, ...]
    """By their places in the body: those that are called, or have what an equal one gives."""
    rooms: dict[Place, Room] = field(default_factory=dict[Place, Room])
    """First use of a group, and slot -> where its blocks are attended."""

    @property
    def captures(self) -> bool:
        return all(room.captures for room in self.rooms.values())


class Now(NamedTuple):
    """An iteration of a batch."""

    at: Gathered
    moment: Moment
    series: Tensor
    """`[B, series]`"""
    given: dict[Place, Tensor]
    """Outputs so far: `[B, *shape]`."""
    stays: dict[Place, Tensor]
    """Values that are the same in all iterations of a launch, so far as they were read."""


class Program:
    """Owns the tables of all runs that are in loops of one body, on one device."""

    def __init__(self, body: Body, pools: Mapping[str, Pool], rows: int, device: torch.device) -> None:
        """`pools`: paged state -> its pool. `rows`: runs at most."""
        self.body, self.device, self.rows = body, device, rows
        self.pad = rows
        states = dict.fromkeys(use.states[slot] for use in body.uses for slot in use.paged)
        table, count = rows + 1, len(states)
        self.counters = torch.zeros(1 + 2 * count, table, dtype=torch.int32, device=device)
        """Iteration, then the lengths of all paged states, then their positions."""
        self._sequences = Sequences({name: pools[name] for name in states}, body.widths, self.counters[1:])
        self.times = torch.zeros(table, dtype=torch.int32, device=device)
        self.live = torch.zeros(table, dtype=torch.bool, device=device)
        self._columns = columns_of(body.uses)
        ints, floats, series = self._columns[-1]
        self.ints = torch.zeros(table, ints, dtype=torch.int64, device=device)
        """For each use: its seed, then its parameters."""
        self.floats = torch.zeros(table, floats, device=device)
        self.series = torch.zeros(table, series, max(1, body.steps), device=device)
        self._cells = cells_in(body)
        self.cells = {place: self._table(row) for place, row in self._cells.rows.items()}
        self.tensors = {
            use.states[slot]: self._table(row)
            for use in body.uses
            for slot, row in use.spec.tensors.items()
            if slot in use.states
        }
        self._begins = {name: torch.zeros_like(table) for name, table in self.tensors.items() if name in body.anew}
        """What states that begin anew have at the start of every iteration."""
        self.links = torch.zeros(table, channels.width(body.channels), dtype=torch.int64, device=device)
        """As `layers.channels` has it."""
        self._grown: dict[tuple[int, ...], tuple[list[dict[str, Grown]], Tensor]] = {}
        """Of a form: what was appended before each use, and what the counters grow by."""
        self._indices: dict[tuple[int, int], Tensor] = {}
        """Constants: number and batch -> int64 `[B]`."""
        self._attended: dict[Form, list[tuple[tuple[int, ...], str, Pool, int]]] = {}
        """Blocks that a form attends."""
        self._tables = Tables(self.live, self.counters, self.times, self.ints, self.floats)

    def room(self, state: str) -> int:
        """Pages that a sequence has at most."""
        return most_pages(self._sequences.pools[state])

    # ── rows ──

    def enter(self, row: int, entry: Entry) -> None:
        """Fill a row. In the order of the stream: launches before it don't see it, those after do."""
        self._sequences.enter(row, entry.paged)
        stands = [entry.paged[name] for name in self._sequences.order]
        lengths, positions = [length for _, length, _ in stands], [position for _, _, position in stands]
        counters = listed([entry.first, *lengths, *positions], self.device, torch.int32)
        self.counters[:, row].copy_(counters, non_blocking=True)
        self.ints[row].copy_(listed(with_seeds(self.body.uses, entry), self.device), non_blocking=True)
        if entry.floats:
            self.floats[row].copy_(listed(entry.floats, self.device), non_blocking=True)
        for index, numbers in enumerate(entry.series):
            self.series[row, index, : len(numbers)].copy_(listed(numbers, self.device), non_blocking=True)
        for place, value in entry.cells.items():
            cell = self.cells[place][row]
            (cell[: len(value)] if place in self._cells.sequences else cell).copy_(sent(value, self.device))
        for name, value in entry.tensors.items():
            for table in (self.tensors[name], *([self._begins[name]] if name in self._begins else ())):
                table[row].zero_() if value is None else table[row].copy_(value)
        self.times[row].fill_(entry.times)
        self.live[row].fill_(True)

    def link(self, row: int, links: Sequence[int]) -> None:
        """Where the values of a row's channels are, as `layers.channels` has it."""
        self.links[row].copy_(listed(links, self.device), non_blocking=True)

    def value(self, place: Place, row: int) -> Tensor:
        """A copy of the last value of an output of `last`."""
        return self.cells[self._cells.readers[place]][row].clone()

    def cells_of(self, row: int) -> dict[Place, Tensor]:
        """Copies of all that iterations have handed on, or will read: for the `Entry` of another row."""
        return {place: cell[row].clone() for place, cell in self.cells.items()}

    def tensor(self, state: str, row: int) -> Tensor:
        return self.tensors[state][row].clone()

    # ── batches ──

    def buffers(
        self, form: Form, batch: int, iterations: int, capacities: Sequence[int], like: Buffers | None = None
    ) -> Buffers:
        """`capacities`: of its rooms, as `capacities` gives them. `like`: those of another count of iterations, with
        which they share the index map and the rooms."""
        rows = torch.full((batch,), self.pad, dtype=torch.int64, device=self.device) if like is None else like.rows
        shapes: list[tuple[Place | None, Row]] = [(None, Row((), torch.bool)), (None, Row((), torch.bool))]
        shapes += [(place, self.body.output(place)) for place in form.told]
        sizes = [aligned(iterations * batch * bytes_of(row)) for _, row in shapes]
        staging = torch.zeros(sum(sizes), dtype=torch.uint8, device=self.device)
        views = fields_of(staging, [row for _, row in shapes], sizes, iterations, batch)
        fields = {place: view for (place, _), view in zip(shapes, views, strict=True) if place is not None}
        groups = self.body.groups(form)
        uses = tuple(use for use, by in enumerate(form.runs) if by != SKIPPED)
        buffers = Buffers(form, groups, rows, staging, fields, views[0], views[1], sizes, uses)
        if like is not None:
            buffers.rooms = like.rooms
            return buffers
        for (group, slot, pool, tokens), capacity in zip(self._blocks(form), capacities, strict=True):
            buffers.rooms[group[0], slot] = Room(pool, batch * len(group), tokens, capacity)
        return buffers

    def capacities(self, form: Form, batch: int, held: Sequence[Mapping[str, Held]]) -> tuple[int, ...]:
        """Tokens of each room of such a batch. `held`: the contexts of its rows, by state; without any, those that the
        steps expect."""

        def lengths(use: UseStep, slot: str) -> list[int]:
            return [row[use.states[slot]].length for row in held] or [use.spec.contexts.get(slot, 0)] * batch

        return tuple(
            capacity_for([n for use in group for n in lengths(self.body.uses[use], slot)], batch * len(group), tokens)
            for group, slot, _, tokens in self._blocks(form)
        )

    def room_bytes(self, form: Form, batch: int, capacities: Sequence[int]) -> int:
        """Of the rooms of such buffers."""
        return sum(
            room_bytes(pool.shape, batch * len(group), tokens, capacity)
            for (group, _, pool, tokens), capacity in zip(self._blocks(form), capacities, strict=True)
        )

    def place(self, buffers: Buffers, held: Sequence[Mapping[str, Held]]) -> None:
        """Bring the contexts of the batch's rows to the rooms of its blocks. `held`: of each row, by state; rows that
        are left are padding."""
        batch = buffers.rows.shape[0]
        for (first, slot), room in buffers.rooms.items():
            group = next(group for group in buffers.groups if group[0] == first)
            contexts: list[Held] = []
            for index in group:
                state = self.body.uses[index].states[slot]
                contexts += [row[state] for row in held] + [PADDING] * (batch - len(held))
            room.place(contexts)

    def _blocks(self, form: Form) -> list[tuple[tuple[int, ...], str, Pool, int]]:
        """Group, slot, the pool of its contexts, and the tokens of a block: asked before every launch."""
        if form not in self._attended:
            self._attended[form] = [
                (group, slot, self._sequences.pools[use.states[slot]], tokens)
                for group in self.body.groups(form)
                for use in (self.body.uses[group[0]],)
                for slot, tokens in use.spec.scratch.items()
            ]
        return self._attended[form]

    # ── device work ──

    def iterate(self, buffers: Buffers) -> None:
        """K iterations of the batch's rows: what is captured."""
        stays: dict[Place, Tensor] = {}
        for k in range(buffers.stopped.shape[0]):
            at = gather_rows(buffers.rows, self._tables)
            now = Now(at, self._sequences.moment(at.rows), self._series_at(at), {}, stays)
            given, sound = now.given, None
            for name, begins in self._begins.items():
                self.tensors[name].index_copy_(0, at.wide, begins.index_select(0, at.wide))
            for group in buffers.groups:
                sound = _both(sound, self._receive(group, buffers.form, at, given))
                sound = _both(sound, self._step(group, buffers, now))
                self._lend(buffers.form, given)
                self._send(group, buffers.form, at, given)
            self._settle(buffers, k, at, given, sound)

    def _step(self, group: tuple[int, ...], buffers: Buffers, now: Now) -> Tensor | None:
        """One batch of an operator: the rows of the group's uses, one use after the other. -> bool `[B]`, or None."""
        uses, at = [self.body.uses[index] for index in group], now.at
        spec, operator = uses[0].spec, uses[0].operator
        numbers = [self._numbers(index, at, now.series) for index in group]
        inputs = {
            port: _cat([self._input(index, port, self.body.uses[index].sources[port], now) for index in group])
            for port in fed_ports(uses[0], buffers.form)
        }
        batch = StepBatch(
            rows=_cat([at.rows] * len(group)),
            inputs=inputs,
            params={name: _cat([found[name] for found in numbers]) for name in numbers[0]},
            seed=_cat([at.ints[self._columns[index].ints] for index in group]),
            iteration=_cat([self._index(use, at) for use in uses]),
            paged={slot: self._slot(group, slot, buffers, now) for slot in uses[0].paged},
            tensors={slot: self.tensors[uses[0].states[slot]] for slot in spec.tensors},
            variant=spec.variant,
        )
        out = operator.step(batch)
        for port, value in out.ports.items():
            now.given.update({(index, port): part for index, part in zip(group, value.chunk(len(group)), strict=True)})
        sound = sound_rows(out.ports.values()) if out.finite is None else out.finite
        return sound if sound is None or len(group) == 1 else sound.view(len(group), -1).all(0)

    def _receive(self, group: tuple[int, ...], form: Form, at: Gathered, given: dict[Place, Tensor]) -> Tensor | None:
        """What comes by channels for a group's uses. -> bool `[B]`: whether it came; None where none was waited for."""
        sound: Tensor | None = None
        for (use, port), source in self.body.reads if self.body.channels else ():
            if use in group and (source.kind == "behind" or source.channel in form.comes):
                first = self.cells[use, port].index_select(0, at.wide) if source.kind == "behind" else None
                row = self.body.uses[use].spec.inputs[port]
                value, came = channels.receive(self.links, at.wide, source.channel, at.iteration, row, first)
                given[_come(use, port)] = value
                sound = _both(sound, came)
        return sound

    def _send(self, group: tuple[int, ...], form: Form, at: Gathered, given: Mapping[Place, Tensor]) -> None:
        """Outputs of a group's uses, and of those that these stand for, go out by channels."""
        for channel in form.sends:
            place = self.body.sends[channel - len(self.body.reads)]
            if form.runs[place[0]] in group:
                value = given[place].to(self.body.output(place).dtype)
                channels.send(value, self.links, at.wide, channel, at.iteration)

    def _lend(self, form: Form, given: dict[Place, Tensor]) -> None:
        """Outputs of uses that stand for others are theirs too."""
        for index, runs in enumerate(form.runs):
            for port in self.body.uses[index].spec.outputs if index != runs >= 0 else ():
                if (runs, port) in given:
                    given[index, port] = given[runs, port]

    def _settle(
        self, buffers: Buffers, k: int, at: Gathered, given: Mapping[Place, Tensor], sound: Tensor | None
    ) -> None:
        """Hand on what the next iteration and the host need."""
        for place, cell in self.cells.items():
            value = given.get(self._cells.writes.get(place, (-1, "")))
            if value is not None:
                cell.index_copy_(0, at.wide, value.to(cell.dtype))
        until = None if self.body.until is None else given.get(self.body.until)
        stopped = None if until is None else until.view(-1)
        told = buffers.stopped[k], buffers.sound[k]
        settle_rows(buffers.rows, at, self._tables, self._growth(buffers.form)[1], stopped, sound, told)
        for place, view in buffers.fields.items():
            view[k].copy_(given[place].view(view.shape[1:]))

    def _numbers(self, index: int, at: Gathered, series: Tensor) -> dict[str, Tensor]:
        """A use's parameters, each `[B]`."""
        use, mine = self.body.uses[index], self._columns[index]
        return {
            **{name: at.ints[mine.ints + 1 + i] for i, name in enumerate(use.ints)},
            **{name: at.floats[mine.floats + i] for i, name in enumerate(use.floats)},
            **{name: series[:, mine.series + i].to(use.spec.params[name]) for i, name in enumerate(use.series)},
        }

    def _input(self, use: int, port: str, source: LoopSource, now: Now) -> Tensor:
        at, given = now.at, now.given
        if source.kind == "internal" and source.place is not None:
            value = given[source.place]
            return value if source.part is None else value[:, source.part].contiguous()
        if source.kind == "stack":
            return torch.stack([given[place] for place in source.places], 1)
        if source.kind in ("channel", "behind"):
            return given[_come(use, port)]
        if source.kind == "index":
            return at.iteration
        if source.kind == "each":
            return self.cells[use, port][at.wide, at.iteration]
        if source.kind == "entering":
            if (use, port) not in now.stays:
                now.stays[use, port] = self.cells[use, port].index_select(0, at.wide)
            return now.stays[use, port]
        value = self.cells[use, port].index_select(0, at.wide)
        if source.first is None or any(place not in given for place in source.first.needs):
            return value
        first = self._input(use, port, source.first, now).to(value.dtype).view(value.shape)
        return torch.where((at.iteration == 0).view(-1, *[1] * (value.dim() - 1)), first, value)

    def _slot(self, group: tuple[int, ...], slot: str, buffers: Buffers, now: Now) -> PagedSlot:
        states = [self.body.uses[index].states[slot] for index in group]
        pool, grown = self._sequences.pools[states[0]], self._growth(buffers.form)[0]
        before = {state: grown[index].get(state, NOTHING) for index, state in zip(group, states, strict=True)}
        return PagedSlot(pool.k, pool.v, now.moment.rows(states, before), buffers.rooms.get((group[0], slot)))

    def _index(self, use: UseStep, at: Gathered) -> Tensor:
        """Of its innermost loop: int64 `[B]`."""
        if not use.inner:
            return at.iteration
        key = use.inner[-1], at.iteration.shape[0]
        if key not in self._indices:
            self._indices[key] = torch.full_like(at.iteration, key[0])
        return self._indices[key]

    def _series_at(self, at: Gathered) -> Tensor:
        """`[B, series]`"""
        if not self.series.shape[1]:
            return self.series[:0, :, 0]
        return self.series[at.wide, :, at.iteration]

    # ── layout ──

    def _table(self, row: Row) -> Tensor:
        return torch.zeros(self.rows + 1, *row.shape, dtype=row.dtype, device=self.device)

    def _growth(self, form: Form) -> tuple[list[dict[str, Grown]], Tensor]:
        """What an iteration has appended before each use, and what it makes the counters grow by: int32 `[1 + 2S]`.
        Those of a state that begins anew stay."""
        found = self._grown.get(form.runs)
        if found is None:
            before, whole = self.body.grown(form)
            kept = [NOTHING if name in self.body.anew else whole.get(name, NOTHING) for name in self._sequences.order]
            grown = [1, *(one.tokens for one in kept), *(one.positions for one in kept)]
            found = before, torch.tensor(grown, dtype=torch.int32, device=self.device)
            self._grown[form.runs] = found
        return found


def _come(use: int, port: str) -> Place:
    """Names what has come for a port."""
    return use, f">{port}"


def _cat(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _both(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return one if other is None else other if one is None else one & other
