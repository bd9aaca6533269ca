"""A loop's body as device work on slots: captured once, and replayed for every step of every run in them.

A batch is an index map over slots. When a run ends, the device replaces its slot by the padding one, so iterations
launched past its end have no effect.

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
from walkgraph.engine.kv.dense_context import ContextSequence, DenseContext, capacity_for, dense_context_bytes
from walkgraph.engine.kv.pool import Pool
from walkgraph.engine.kv.slot_pages import NOTHING, Grown, IterationPages
from walkgraph.engine.loops.body import SERIES, SKIPPED, Form, UseStep, fed_ports
from walkgraph.engine.loops.slot_tables import SlotTables, aligned, bytes_of
from walkgraph.engine.loops.spec import DeviceChoice, LoopSource, Place
from walkgraph.layers import channels
from walkgraph.layers.rows import Gathered, gather_rows, settle_rows, table_rows

PADDING = ContextSequence((), 0, 0, 0)
FLAG = Row((), torch.bool)


def _sent(row: Row, dtype: str | None) -> Row:
    """A row as it is sent to the host. `dtype`: that of its floats."""
    return row if dtype is None or not row.dtype.is_floating_point else Row(row.shape, getattr(torch, dtype))


def _taken(choice: DeviceChoice, given: Mapping[Place, Tensor]) -> Tensor:
    """The branch that each row takes, int64 `[B]`."""
    value = given[choice.by]
    value = value.view(value.shape[0], -1)[:, 0].to(torch.int64)
    taken = torch.full_like(value, len(choice.values))
    for branch, known in enumerate(choice.values):
        taken = taken.masked_fill(value == known, branch)
    return taken


@dataclass(slots=True)
class Buffers:
    """The buffers of one form, batch size and iteration count, at fixed addresses for the graph captured over them."""

    form: Form
    groups: list[tuple[int, ...]]
    rows: Tensor
    """int64 `[B]`: the slots of the batch."""
    staging: Tensor
    """uint8: everything that is copied to the host."""
    segments: list[tuple[Row, int]]
    """Its segments with their sizes in bytes: stop flags, finite flags, then the outputs that the form sends to the
    host."""
    iterations: int
    uses: tuple[int, ...]
    """Indices in the body of the uses that are called, or share the outputs of an equal one."""
    contexts: dict[Place, DenseContext] = field(default_factory=dict[Place, DenseContext])
    """(first use of a group, slot) -> the dense context that its blocks attend."""
    stopped: Tensor = field(init=False)
    sound: Tensor = field(init=False)
    fields: dict[Place, Tensor] = field(init=False)
    """This and the two above are `views` of `staging`."""

    def __post_init__(self) -> None:
        self.stopped, self.sound, self.fields = self.views(self.staging)

    def views(self, staged: Tensor) -> tuple[Tensor, Tensor, dict[Place, Tensor]]:
        """Views of `staging` or of a copy: stop and finite flags, bool `[K, B]`, and outputs `[K, B, *shape]`."""
        batch, views = self.rows.shape[0], list[Tensor]()
        parts = staged.split([nbytes for _, nbytes in self.segments])
        for (row, _), part in zip(self.segments, parts, strict=True):
            used = part[: self.iterations * batch * bytes_of(row)]
            views.append(used.view(row.dtype).view(self.iterations, batch, *row.shape))
        return views[0], views[1], dict(zip(self.form.told, views[2:], strict=True))

    @property
    def captures(self) -> bool:
        return all(one.captures for one in self.contexts.values())


class Attended(NamedTuple):
    """The blocks that the uses of a group attend in one slot."""

    group: tuple[int, ...]
    slot: str
    pool: Pool
    """That of their contexts."""
    tokens: int
    """Those of a block."""
    queries: int | None
    """The tokens of a block that are asked for; None for all."""


class BatchIteration(NamedTuple):
    """One iteration of a batch."""

    at: Gathered
    pages: IterationPages
    series: Tensor
    """`[B, series]`"""
    given: dict[Place, Tensor]
    """Outputs so far: `[B, *shape]`."""
    stays: dict[Place, Tensor]
    """Values that stay the same in all iterations of a launch, as far as they were read."""


class Program:
    """The device work of loops of one batch key, over the tables of their slots."""

    def __init__(self, tables: SlotTables) -> None:
        self.tables, self.body = tables, tables.body
        self._cells, self._states, self._series, self._links = tables.cells, tables.tensors, tables.series, tables.links
        self._pages, self._columns = tables.pages, tables.columns
        self._grown: dict[tuple[int, ...], tuple[list[dict[str, Grown]], Tensor]] = {}
        """By form: what was appended before each use, and the growth of the counters."""
        self._indices: dict[tuple[int, int], Tensor] = {}
        """Constants: (number, batch) -> int64 `[B]`."""
        self._attended: dict[Form, list[Attended]] = {}
        """By form: the blocks that it attends."""

    # ── batches ──

    def buffers(
        self, form: Form, batch: int, iterations: int, capacities: Sequence[int], like: Buffers | None = None
    ) -> Buffers:
        """Make the buffers of a launch. `capacities`: those of its dense contexts, from `capacities`. `like`: buffers
        of another iteration count, whose index map and dense contexts are shared."""
        device, rows = self.tables.device, None if like is None else like.rows
        if rows is None:
            rows = torch.full((batch,), self.tables.pad, dtype=torch.int64, device=device)
        dtypes = dict(form.sent_as)
        told = [FLAG, FLAG, *(_sent(self.body.output(place), dtypes.get(place)) for place in form.told)]
        segments = [(row, aligned(iterations * batch * bytes_of(row))) for row in told]
        staging = torch.zeros(sum(nbytes for _, nbytes in segments), dtype=torch.uint8, device=device)
        groups = self.body.groups(form)
        uses = tuple(use for use, by in enumerate(form.runs) if by != SKIPPED)
        buffers = Buffers(form, groups, rows, staging, segments, iterations, uses)
        if like is not None:
            buffers.contexts = like.contexts
            return buffers
        for (group, slot, pool, tokens, queries), capacity in zip(self._blocks(form), capacities, strict=True):
            buffers.contexts[group[0], slot] = DenseContext(pool, batch * len(group), tokens, capacity, queries)
        return buffers

    def capacities(self, form: Form, batch: int, held: Sequence[Mapping[str, ContextSequence]]) -> tuple[int, ...]:
        """Capacity in tokens of each dense context of such a batch. `held`: the contexts of its rows, by state; if
        empty, the lengths that the steps expect are used."""

        def lengths(use: UseStep, slot: str) -> list[int]:
            return [row[use.states[slot]].length for row in held] or [use.spec.contexts.get(slot, 0)] * batch

        return tuple(
            capacity_for([n for use in group for n in lengths(self.body.uses[use], slot)], batch * len(group), tokens)
            for group, slot, _, tokens, _ in self._blocks(form)
        )

    def context_bytes(self, form: Form, batch: int, capacities: Sequence[int]) -> int:
        """Bytes of the dense contexts of such buffers."""
        return sum(
            dense_context_bytes(pool.shape, batch * len(group), tokens, capacity)
            for (group, _, pool, tokens, _), capacity in zip(self._blocks(form), capacities, strict=True)
        )

    def place(self, buffers: Buffers, held: Sequence[Mapping[str, ContextSequence]]) -> None:
        """Place the contexts of the batch's rows in its dense contexts. `held`: the contexts of each row, by state;
        other rows are padding."""
        batch = buffers.rows.shape[0]
        for (first, slot), dense in buffers.contexts.items():
            group = next(group for group in buffers.groups if group[0] == first)
            contexts: list[ContextSequence] = []
            for index in group:
                state = self.body.uses[index].states[slot]
                contexts += [row[state] for row in held] + [PADDING] * (batch - len(held))
            dense.place(contexts)

    def _blocks(self, form: Form) -> list[Attended]:
        """The blocks that a form attends. Cached, because every launch asks."""
        if form not in self._attended:
            self._attended[form] = [
                Attended(group, slot, self._pages.pools[use.states[slot]], tokens, use.spec.queries.get(slot))
                for group in self.body.groups(form)
                for use in (self.body.uses[group[0]],)
                for slot, tokens in use.spec.scratch.items()
            ]
        return self._attended[form]

    # ── device work ──

    def iterate(self, buffers: Buffers) -> None:
        """Run K iterations of the batch's rows. This is what is captured."""
        stays: dict[Place, Tensor] = {}
        for k in range(buffers.iterations):
            at = gather_rows(buffers.rows, self.tables.counted)
            now = BatchIteration(at, IterationPages(self._pages, at.rows), self._series_at(at), {}, stays)
            given, sound = now.given, None
            for name, begins in self.tables.begins.items():
                self._states[name].index_copy_(0, at.wide, table_rows(begins, at.wide))
            for group in buffers.groups:
                sound = _both(sound, self._receive(group, buffers.form, at, given))
                sound = _both(sound, self._step(group, buffers, now))
                self._lend(buffers.form, given)
                self._merge(given)
                self._send(group, buffers.form, at, given)
            self._settle(buffers, k, at, given, sound)

    def _step(self, group: tuple[int, ...], buffers: Buffers, now: BatchIteration) -> Tensor | None:
        """Run one batch of an operator: the rows of the group's uses, one use after the other. Returns whether the
        numbers of each row are finite, bool `[B]`, or None."""
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
            tensors={slot: self._states[uses[0].states[slot]] for slot in spec.tensors},
            variant=spec.variant,
        )
        out = operator.step(batch)
        for port, value in out.ports.items():
            now.given.update({(index, port): part for index, part in zip(group, value.chunk(len(group)), strict=True)})
        sound = sound_rows(out.ports.values()) if out.finite is None else out.finite
        if sound is None:
            return None
        parts = [
            part if use.branch is None else part | (_taken(use.branch[0], now.given) != use.branch[1])
            for use, part in zip(uses, sound.chunk(len(group)), strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.stack(parts).all(0)

    def _merge(self, given: dict[Place, Tensor]) -> None:
        """Take the values of merges whose branches have all been computed."""
        for merge in self.body.spec.merges:
            if merge.place in given or any(place not in given for place in merge.places):
                continue
            dtype, taken = self.body.output(merge.place).dtype, _taken(merge.choice, given)
            *others, last = (given[place].to(dtype) for place in merge.places)
            for branch, value in enumerate(others):
                last = torch.where((taken == branch).view(-1, *[1] * (value.dim() - 1)), value, last)
            given[merge.place] = last

    def _receive(self, group: tuple[int, ...], form: Form, at: Gathered, given: dict[Place, Tensor]) -> Tensor | None:
        """Receive the channels of a group's uses. Returns whether each row's values came, bool `[B]`; None if there
        was nothing to receive."""
        sound: Tensor | None = None
        for (use, port), source in self.body.reads if self.body.channels else ():
            if use in group and (source.kind == "behind" or source.channel in form.comes):
                first = table_rows(self._cells[use, port], at.wide) if source.kind == "behind" else None
                row = self.body.uses[use].spec.inputs[port]
                value, came = channels.receive(self._links, at.wide, source.channel, at.iteration, row, first)
                given[_come(use, port)] = value
                sound = _both(sound, came)
        return sound

    def _send(self, group: tuple[int, ...], form: Form, at: Gathered, given: Mapping[Place, Tensor]) -> None:
        """Send the outputs of a group's uses, and of the uses that they stand for, by channels."""
        for channel in form.sends:
            place = self.body.sends[channel - len(self.body.reads)]
            if form.runs[place[0]] in group:
                value = given[place].to(self.body.output(place).dtype)
                channels.send(value, self._links, at.wide, channel, at.iteration)

    def _lend(self, form: Form, given: dict[Place, Tensor]) -> None:
        """Copy the outputs of uses that stand for others to those."""
        for index, runs in enumerate(form.runs):
            for port in self.body.uses[index].spec.outputs if index != runs >= 0 else ():
                if (runs, port) in given:
                    given[index, port] = given[runs, port]

    def _settle(
        self, buffers: Buffers, k: int, at: Gathered, given: Mapping[Place, Tensor], sound: Tensor | None
    ) -> None:
        """Write what the next iteration and the host need."""
        for place, cell in self._cells.items():
            value = given.get(self.tables.layout.writes.get(place, (-1, "")))
            if value is not None:
                cell.index_copy_(0, at.wide, value.to(cell.dtype))
        until = None if self.body.spec.until is None else given.get(self.body.spec.until)
        stopped = None if until is None else until.view(-1)
        flags = buffers.stopped[k], buffers.sound[k]
        settle_rows(buffers.rows, at, self.tables.counted, self._growth(buffers.form)[1], stopped, sound, flags)
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

    def _input(self, use: int, port: str, source: LoopSource, now: BatchIteration) -> Tensor:
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
        if source.kind in SERIES:
            return self._cells[use, port][at.wide, at.iteration]
        if source.kind == "entering":
            if (use, port) not in now.stays:
                now.stays[use, port] = table_rows(self._cells[use, port], at.wide)
            return now.stays[use, port]
        value = table_rows(self._cells[use, port], at.wide)
        if source.first is None or any(place not in given for place in source.first.needs):
            return value
        first = self._input(use, port, source.first, now).to(value.dtype).view(value.shape)
        return torch.where((at.iteration == 0).view(-1, *[1] * (value.dim() - 1)), first, value)

    def _slot(self, group: tuple[int, ...], slot: str, buffers: Buffers, now: BatchIteration) -> PagedSlot:
        states = [self.body.uses[index].states[slot] for index in group]
        pool, grown = self._pages.pools[states[0]], self._growth(buffers.form)[0]
        before = {state: grown[index].get(state, NOTHING) for index, state in zip(group, states, strict=True)}
        return PagedSlot(pool.k, pool.v, now.pages.rows(states, before), buffers.contexts.get((group[0], slot)))

    def _index(self, use: UseStep, at: Gathered) -> Tensor:
        """Index of the use's innermost loop, int64 `[B]`."""
        if not use.inner:
            return at.iteration
        key = use.inner[-1], at.iteration.shape[0]
        if key not in self._indices:
            self._indices[key] = torch.full_like(at.iteration, key[0])
        return self._indices[key]

    def _series_at(self, at: Gathered) -> Tensor:
        """`[B, series]`"""
        if not self._series.shape[1]:
            return self._series[:0, :, 0]
        return self._series[at.wide, :, at.iteration]

    def _growth(self, form: Form) -> tuple[list[dict[str, Grown]], Tensor]:
        """Tokens appended in an iteration before each use, and the growth of the counters, int32 `[1 + 2S]`. Counters
        of a state that begins anew don't grow."""
        found = self._grown.get(form.runs)
        if found is None:
            before, whole = self.body.grown(form)
            kept = [NOTHING if name in self.body.anew else whole.get(name, NOTHING) for name in self._pages.order]
            grown = [1, *(one.tokens for one in kept), *(one.positions for one in kept)]
            found = before, torch.tensor(grown, dtype=torch.int32, device=self.tables.device)
            self._grown[form.runs] = found
        return found


def _come(use: int, port: str) -> Place:
    """Key of the value that a channel has brought for a port."""
    return use, f">{port}"


def _cat(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _both(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return one if other is None else other if one is None else one & other
