"""The body of a loop, as the engine iterates it, and the forms of its iterations.

A body has *forms*: conditions leave uses out of some iterations, of two uses that would do the same only one is called,
and not every output is wanted. Each form is captured by itself.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, reduce
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.calls import CallFailed, StateKey
from walkgraph.abi.operator import Operator
from walkgraph.abi.step import Row, StepSpec
from walkgraph.engine.kv.pool import Pool
from walkgraph.engine.kv.slot_pages import NOTHING, Grown
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.loops.spec import LoopCall, LoopSource, LoopSpec, LoopUseSpec, Place

_LEAST_ITERATIONS = 64
"""Entries of up to this many iterations share a program."""
_MOST_BODIES = 64
"""The most bodies kept; the least recently entered go first."""
SKIPPED = -1
ITEM = Row((1,), torch.int64)
"""An item of a stream that a loop reads while it runs."""
SERIES = ("each", "item")
"""Kinds of sources with a value of its own for every iteration."""


@dataclass(frozen=True, eq=False)
class UseStep(LoopUseSpec):
    """A use, with its operator's step for the shapes of an entry."""

    operator: Operator = field(kw_only=True)
    spec: StepSpec = field(kw_only=True)

    @cached_property
    def ints(self) -> tuple[str, ...]:
        """Integer parameters that don't change with the iteration."""
        return self._fixed(torch.int64)

    @cached_property
    def floats(self) -> tuple[str, ...]:
        return self._fixed(torch.float32)

    @cached_property
    def series(self) -> tuple[str, ...]:
        """Parameters that change with the iteration."""
        return tuple(name for name in self.varying if name in self.spec.params)

    def _fixed(self, kind: torch.dtype) -> tuple[str, ...]:
        return tuple(sorted(n for n, dtype in self.spec.params.items() if dtype == kind and n not in self.varying))

    @cached_property
    def grows(self) -> set[str]:
        """Cached states that it appends to."""
        return {self.states[slot] for slot in self.paged if self.spec.appends[slot]}

    @cached_property
    def paged(self) -> list[str]:
        """Slots that cached states are bound to."""
        return [slot for slot in self.spec.appends if slot in self.states]


class Form(NamedTuple):
    """The work of an iteration; iterations of one form can be launched together."""

    runs: tuple[int, ...]
    """For each use, the use that computes it: itself if it is called, an earlier one with the same outputs, or
    `SKIPPED`."""
    told: tuple[Place, ...]
    """Outputs that are sent to the host."""
    comes: tuple[int, ...] = ()
    """Channels that bring a value of this iteration."""
    sends: tuple[int, ...] = ()
    """Channels that a value leaves by."""
    sent_as: tuple[tuple[Place, str], ...] = ()
    """Returns those of `told` whose floats are sent in another dtype."""

    def calls(self, use: int) -> bool:
        return self.runs[use] == use

    def gives(self, place: Place) -> bool:
        return self.runs[place[0]] != SKIPPED


class Forms:
    """The form of every iteration of one loop."""

    def __init__(self, found: Sequence[Form]) -> None:
        """`found`: the form of each iteration, or a single form for all."""
        self._found = tuple(found) if len(set(found)) > 1 else found[:1]
        ends = [k + 1 for k, (one, two) in enumerate(pairwise(self._found)) if one != two]
        self._ends = [*ends, len(self._found)]

    def at(self, iteration: int) -> Form:
        return self._found[min(iteration, len(self._found) - 1)]

    def alike(self, iteration: int, most: int) -> int:
        """How many iterations from this one on have its form, up to `most`."""
        if len(self._found) == 1 or iteration >= len(self._found):
            return most
        end = next(end for end in self._ends if end > iteration)
        return most if end == len(self._found) else min(most, end - iteration)

    def counts(self, first: int, end: int) -> Mapping[Form, int]:
        """The forms of iterations `first` to `end`, with the number of iterations of each."""
        if len(self._found) == 1:
            return {self._found[0]: end - first} if end > first else {}
        return Counter(self._found[first:end])


@dataclass(frozen=True, eq=False)
class Body:
    """A spec with the shapes of an entry: what a program is made for."""

    spec: LoopSpec
    """The spec of the first loop entered with these shapes; others with its key have the same body."""
    uses: tuple[UseStep, ...]
    steps: int
    """Iterations that the series and sequences of a slot have space for; 0 if there are none."""
    widths: Mapping[str, int]
    """State -> number of its sequences, if not one."""
    anew: frozenset[str]
    """States that begin every iteration as they were when the run entered the loop."""

    @cached_property
    def each(self) -> tuple[Place, ...]:
        """Outputs that are sent to the host in at least some iterations."""
        return tuple(dict.fromkeys((out.use, out.port) for out in self.spec.outputs if out.kind != "last"))

    @cached_property
    def last(self) -> tuple[Place, ...]:
        """Outputs whose last value is kept in the slot."""
        return tuple(dict.fromkeys((out.use, out.port) for out in self.spec.outputs if out.kind == "last"))

    @cached_property
    def reads(self) -> list[tuple[Place, LoopSource]]:
        """Input ports that channels feed, with their sources, in the order of the channels."""
        return [((use, port), self.uses[use].sources[port]) for use, port, _ in self.spec.reads]

    @cached_property
    def sends(self) -> list[Place]:
        """Outputs that leave by channels. These are numbered after those of `reads`."""
        return [(use, port) for use, port, _ in self.spec.sends]

    @cached_property
    def channels(self) -> int:
        return len(self.reads) + len(self.sends)

    @cached_property
    def tensors(self) -> dict[str, Row]:
        """Tensor states, kept as rows of a table."""
        return {use.states[slot]: row for use in self.uses for slot, row in use.spec.tensors.items()}

    @property
    def whole(self) -> Form:
        comes = tuple(source.channel for _, source in self.reads if source.kind == "channel")
        return Form(tuple(range(len(self.uses))), self.each, comes, tuple(range(len(self.reads), self.channels)))

    def output(self, place: Place) -> Row:
        return self.uses[place[0]].spec.outputs[place[1]]

    def width(self, state: str) -> int:
        return self.widths.get(state, 1)

    def grown(self, form: Form) -> tuple[list[dict[str, Grown]], dict[str, Grown]]:
        """Tokens and positions that an iteration has appended to each state before each use, and in all."""
        if form.runs not in self._grown:
            self._grown[form.runs] = self._growth(form)
        return self._grown[form.runs]

    @cached_property
    def _grown(self) -> dict[tuple[int, ...], tuple[list[dict[str, Grown]], dict[str, Grown]]]:
        return {}

    def _growth(self, form: Form) -> tuple[list[dict[str, Grown]], dict[str, Grown]]:
        so_far: dict[str, Grown] = {}
        before: list[dict[str, Grown]] = []
        for index, use in enumerate(self.uses):
            before.append(dict(so_far))
            for slot in use.paged if form.calls(index) else ():
                tokens, state = use.spec.appends[slot], use.states[slot]
                had = so_far.get(state, NOTHING)
                so_far[state] = Grown(had.tokens + tokens, had.positions + use.spec.advances.get(slot, tokens))
        return before, so_far

    def groups(self, form: Form) -> list[tuple[int, ...]]:
        """The uses that a form calls, in order, in groups: the uses of one group are one batch of their operator."""
        groups: list[list[int]] = []
        for index, use in enumerate(self.uses):
            if not form.calls(index):
                continue
            needs = {form.runs[place[0]] for source in use.sources.values() for place in source.needs}
            states = set(use.states.values())
            needs |= {at for at in range(index) if form.calls(at) and self.uses[at].grows & states}
            fits = self._joins(groups, index, form)
            if fits is not None and not any(needs & set(later) for later in groups[fits:]):
                groups[fits].append(index)
            else:
                groups.append([index])
        return [tuple(group) for group in groups]

    def _joins(self, groups: Sequence[Sequence[int]], index: int, form: Form) -> int | None:
        """Index of an earlier group that the use can join: same operator and shapes, and no state kept."""
        use = self.uses[index]
        if not use.spec.together or use.spec.tensors or any(use.spec.appends.values()):
            return None
        if any(source.kind == "channel" for source in use.sources.values()):
            return None  # the value it waits for may depend on a use in between
        return next((at for at, group in enumerate(groups) if self._alike(self.uses[group[0]], use, form)), None)

    def _alike(self, one: UseStep, other: UseStep, form: Form) -> bool:
        if one.operator is not other.operator or one.spec.key != other.spec.key:
            return False
        names = (one.ints, one.floats, one.series) == (other.ints, other.floats, other.series)
        fed = fed_ports(one, form) == fed_ports(other, form)
        slots = one.paged == other.paged
        return (
            names and fed and slots and all(self.width(one.states[s]) == self.width(other.states[s]) for s in one.paged)
        )


def fed_ports(use: UseStep, form: Form) -> list[str]:
    """Input ports that have a value in an iteration of this form."""

    def fed(source: LoopSource) -> bool:
        if source.kind == "channel":
            return source.channel in form.comes
        return all(form.gives(place) for place in source.now)

    return [port for port, source in use.sources.items() if fed(source)]


def same(one: UseStep, other: UseStep) -> bool:
    """True if two uses that keep nothing give the same outputs for the same inputs, parameters and states."""
    return (
        one.spec.pure
        and not one.grows
        and not one.spec.tensors
        and one.operator is other.operator
        and one.spec.key == other.spec.key
        and list(one.sources) == list(other.sources)
        and one.branch == other.branch
    )


Equal = Callable[[int, int], bool]
"""True if two uses of a loop are entered with the same values, parameters and states."""


def form_of(body: Body, asked: Form, equal: Equal) -> Form:
    """The form that serves what is `asked`: the uses to call, the outputs wanted, the channels that have a value."""
    runs: list[int] = []
    for index, use in enumerate(body.uses):
        mine = asked.runs[index]
        for earlier in range(index) if mine == index and use.spec.pure else ():
            other = body.uses[earlier]
            alike = runs[earlier] == earlier and same(other, use) and _fed_alike(other, use, runs)
            if alike and _stand_alike(body, earlier, index, runs) and equal(earlier, index):
                mine = earlier
                break
        runs.append(mine)
    told = tuple(place for place in asked.told if runs[place[0]] != SKIPPED)
    reads = len(body.reads)
    sends = tuple(at for at in asked.sends if runs[body.sends[at - reads][0]] != SKIPPED)
    comes = tuple(
        source.channel for (use, _), source in body.reads if source.channel in asked.comes and runs[use] == use
    )
    return Form(tuple(runs), told, comes, sends, tuple(one for one in asked.sent_as if one[0] in told))


def _stand_alike(body: Body, one: int, other: int, runs: Sequence[int]) -> bool:
    """True if the caches of two uses, alike when the loop was entered, are still alike when the uses are called."""
    first, second = body.uses[one], body.uses[other]
    between = [body.uses[at].grows for at in range(one, other) if runs[at] == at]
    for slot in first.paged:
        mine, its = first.states[slot], second.states[slot]
        if mine == its and any(mine in grows for grows in between):
            return False
        if mine != its and any({mine, its} & use.grows for use in body.uses):
            return False
    return True


def _fed_alike(one: UseStep, other: UseStep, runs: Sequence[int]) -> bool:
    """True if two uses read the same values. The caller compares the entering values."""
    if any(source.kind == "item" for use in (one, other) for source in use.sources.values()):
        return False  # nobody compares what streams bring

    def read(source: LoopSource | None) -> object:
        if source is None or source.kind in ("entering", "each"):
            return source and source.kind
        now = [(runs[use], port) for use, port in source.now]
        carried = source.place if source.kind == "carried" else None
        return source.kind, now, source.part, carried, source.channel, read(source.first)

    return all(read(source) == read(other.sources[port]) for port, source in one.sources.items())


# ── the body of an entry ──


class Loaded(NamedTuple):
    """An operator on this rank. Nodes and views of loops may share it."""

    operator: Operator
    device: torch.device
    index: int
    warm: bool = False
    """It was warmed up for an earlier plan."""
    content: str = ""
    """Names the operator with its options and weights: equal in all plans of this process, unless either was loaded
    anew and may differ."""


class Made(NamedTuple):
    key: Hashable
    """Batch key: loops with equal keys may share tables."""
    body: Body
    pools: Mapping[str, Pool]
    """Paged state -> its pool."""
    device: torch.device


class Bodies:
    """The bodies of recent entries, by spec and shapes. An entry looks its body up, or makes it."""

    def __init__(self, states: StateTable, loaded: Callable[[str], Loaded]) -> None:
        self._states, self._loaded = states, loaded
        self._made: dict[Hashable, Made] = {}

    def of(self, call: LoopCall) -> Made:
        """The body of an entry. Raises `CallFailed`."""
        spec = call.spec
        here = [self._loaded(use.node) for use in spec.uses]
        steps = _steps(call, [one.operator for one in here])
        widths = tuple((name, width) for name in spec.states if (width := self._width(call, call.states[name])) > 1)
        anew = frozenset(name for name in spec.states if call.states[name] in call.anew)
        pools = {
            use.states[slot]: self._states.pools.of(call.states[use.states[slot]])
            for use, step in zip(spec.uses, steps, strict=True)
            for slot in step.appends
            if slot in use.states
        }
        key = (
            spec.key,
            tuple((one.index, step.key) for one, step in zip(here, steps, strict=True)),
            _table_iterations(call),
            widths,
            anew,
            tuple((name, id(pool)) for name, pool in pools.items()),
        )
        made = self._made.pop(key, None)
        if made is None:
            uses = [
                UseStep(
                    *(use.node, use.name, use.sources, use.states, use.varying, use.inner, use.branch),
                    operator=one.operator,
                    spec=step,
                )
                for use, one, step in zip(spec.uses, here, steps, strict=True)
            ]
            body = Body(spec, tuple(uses), _table_iterations(call), dict(widths), anew)
            _check_blocks(body)
            made = Made(key, body, pools, here[0].device)
        self._made[key] = made
        if len(self._made) > _MOST_BODIES:
            self._made.pop(next(iter(self._made)))
        return made

    def _width(self, call: LoopCall, key: StateKey) -> int:
        """The number of sequences of a state while the loop runs."""
        if key in call.anew:
            return max(1, call.anew[key].width)
        return self._states.width(key) if self._states.holds(key) else max(1, call.widths.get(key, 1))


def _steps(call: LoopCall, operators: Sequence[Operator]) -> list[StepSpec]:
    """The step of each use. Raises `CallFailed`."""
    steps: list[StepSpec] = []
    for use, given, operator in zip(call.spec.uses, call.uses, operators, strict=True):
        empty = next((port for port, source in use.sources.items() if not source.begins), None)
        if empty is not None:
            raise CallFailed(f"`{use.node}.{empty}` has no value in the first iteration of a device loop", empty)
        values = inputs_of(use, call.values, steps)
        step = operator.step_spec(values, given.params)
        if step is None:
            raise CallFailed(f"`{use.node}` can't be iterated on {_shapes(use, values)}; feed it as it declares")
        if not step.tensors.keys() <= use.states.keys():
            # A slot that the component declares optional may have no state.
            step = replace(step, tensors={slot: row for slot, row in step.tensors.items() if slot in use.states})
        steps.append(with_merges(call.spec, steps, step))
    return steps


def with_merges(spec: LoopSpec, before: Sequence[StepSpec], step: StepSpec) -> StepSpec:
    """The step of the next use, with the outputs of merges that are complete with it. Raises `CallFailed`."""
    for merge in spec.merges:
        if merge.place[0] == len(before):
            rows = [(*before, step)[use].outputs[port] for use, port in merge.places]
            if len({row.shape for row in rows}) > 1:
                shapes = ", ".join(str(list(row.shape)) for row in rows)
                raise CallFailed(f"the branches of a choice give `{merge.port}` in different shapes: {shapes}")
            dtype = reduce(torch.promote_types, [row.dtype for row in rows])
            step = replace(step, outputs={**step.outputs, merge.port: Row(rows[0].shape, dtype)})
    return step


def inputs_of(use: LoopUseSpec, given: Mapping[str, Any], steps: Sequence[StepSpec]) -> dict[str, Any]:
    """The inputs of a use, for `step_spec`; tensors on the meta device stand for unknown values. `given`: entering
    values. `steps`: those of the uses before it."""
    found: dict[str, Any] = {}
    for port, source in use.sources.items():
        value = _input(use, port, source, given, steps)
        if value is not None:
            found[port] = value
    return found


def _input(use: LoopUseSpec, port: str, source: LoopSource, given: Mapping[str, Any], steps: Sequence[StepSpec]) -> Any:
    if source.enters:
        value = source.given(given)
        if value is None or not source.sliced:
            return value
        value = torch.as_tensor(value)
        return _blank(Row(tuple(value.shape[1:]), value.dtype))
    match source.kind:
        case "carried" if source.first is not None:
            return _input(use, port, source.first, given, steps)
        case "internal" if source.place is not None:
            row = steps[source.place[0]].outputs.get(source.place[1])
            return None if row is None else _blank(row if source.part is None else _part(use, port, source.part, row))
        case "stack":
            rows = [steps[at].outputs.get(output) for at, output in source.places]
            if not rows or None in rows or len(set(rows)) > 1:
                raise CallFailed(f"`{use.node}.{port}` would stack values of different shapes", port)
            first = rows[0] or Row((), torch.float32)
            return _blank(Row((len(rows), *first.shape), first.dtype))
        case "index":
            return _blank(Row((), torch.int64))
        case "item":
            return _blank(ITEM)
        case _:
            return None


def _part(use: LoopUseSpec, port: str, part: int, row: Row) -> Row:
    """The row of one slice of a value."""
    slices = row.shape[0] if row.shape else 0
    if part >= slices:
        raise CallFailed(f"`{use.node}.{port}` has {slices} slices, but the loop runs longer", code="invalid_input")
    return Row(row.shape[1:], row.dtype)


@lru_cache(_MOST_BODIES)
def _blank(row: Row) -> Tensor:
    """A tensor of a row's shape and type, without content."""
    return torch.empty(row.shape, dtype=row.dtype, device="meta")


def _shapes(use: LoopUseSpec, values: Mapping[str, Any]) -> str:
    """The shapes of a use's entering values, for a message to the client."""
    shown = [
        f"`{port}` {list(value.shape) if isinstance(value, Tensor) else value!r}"
        for port, value in values.items()
        if use.sources[port].enters
    ]
    return ", ".join(shown) or "no inputs from outside"


def _check_blocks(body: Body) -> None:
    """Check that blocks are attended behind contexts that don't change: contexts are copied when the rows of a batch
    are chosen, one per row. Raises `CallFailed`."""
    grows = {state for use in body.uses for state in use.grows}
    for use in body.uses:
        for slot in use.spec.scratch:
            state = use.states[slot]
            if body.width(state) > 1:
                raise CallFailed(f"`{use.node}` attends a block behind one sequence, but its state has several")
            if state in grows:
                raise CallFailed(f"`{use.node}` attends a block behind a state that the same loop appends to")


def _table_iterations(call: LoopCall) -> int:
    """Iterations that the tables have series and slices for: as many as such loops usually have, so that entries share
    the program that is made ready before the first of them. Longer ones are rounded up, to share theirs."""
    if not any(use.varying or any(s.kind in SERIES for s in use.sources.values()) for use in call.spec.uses):
        return 0
    return 1 << (max(call.times, _LEAST_ITERATIONS, *call.spec.usual) - 1).bit_length()
