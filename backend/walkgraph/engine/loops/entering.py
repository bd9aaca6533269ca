"""From a loop's call to a row of its program, and back from the row to what the run keeps."""

from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.calls import CallFailed, StateKey
from walkgraph.engine.kv.allocator import PAGE
from walkgraph.engine.kv.dense_context import ContextSequence
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.loops.body import SKIPPED, Bodies, Body, Form, Forms, Loaded, Made, form_of
from walkgraph.engine.loops.slot_tables import Entry, SlotTables
from walkgraph.engine.loops.spec import LoopCall, LoopSource, Mask, Place


@dataclass(slots=True)
class Entered:
    """What a row was entered with, and must be left with."""

    times: int
    """Iterations until it ends, or until its states are full."""
    bound: str
    """What is told where the states end it."""
    forms: Forms
    paged: dict[str, "Growth"]
    """By state of the spec; likewise `tensors` and `contexts`."""
    tensors: dict[str, StateKey]
    first: int = 0
    """The iteration that it was entered for."""
    contexts: dict[str, ContextSequence] = field(default_factory=dict[str, ContextSequence])
    """What its caches held when it entered."""


class Growth(NamedTuple):
    """What a loop appends to a cache."""

    key: StateKey
    uses: tuple[tuple[int, int, int], ...]
    """Use, and the tokens and positions of a call of it."""
    anew: bool = False
    """In every iteration again."""

    def held(self, forms: Forms, first: int, end: int) -> int:
        """Tokens that there must be room for in iterations `first` to `end`."""
        if not self.anew:
            return self.by(forms, first, end)[0]
        return max((self.by(forms, k, k + 1)[0] for k in forms.kinds(first, end).values()), default=0)

    def kept(self, forms: Forms, first: int, end: int) -> tuple[int, int]:
        """Tokens and positions that are there more after iterations `first` to `end` than before them."""
        return self.by(forms, max(first, end - 1) if self.anew else first, end)

    def by(self, forms: Forms, first: int, end: int) -> tuple[int, int]:
        """Tokens and positions that iterations `first` to `end` append."""
        calls = [forms.calls(use, first, end) for use, _, _ in self.uses]
        return (
            sum(n * tokens for n, (_, tokens, _) in zip(calls, self.uses, strict=True)),
            sum(n * advance for n, (_, _, advance) in zip(calls, self.uses, strict=True)),
        )


class Entrance:
    def __init__(self, states: StateTable, loaded: Callable[[str], Loaded]) -> None:
        self._states = states
        self.made: Callable[[LoopCall], Made] = Bodies(states, loaded).of
        """What makes a loop's program. Raises `CallFailed`."""

    def enter(
        self, call: LoopCall, program: SlotTables, row: int, first: int = 0, cells: Mapping[Place, Tensor] | None = None
    ) -> Entered:
        """Fill a row of the program; raises `OutOfPages` and `CallFailed`, and then has changed no state but those that
        begin anew, or have sequences without content now. A loop that has left its row goes on from iteration `first`
        with the `cells` that it had there."""
        for key in call.anew:
            self._states.renew(key, *call.anew[key])
        for key in [key for key in call.widths if not self._states.holds(key)]:
            self._states.renew(key, None, call.widths[key])
        entered = Entered(call.times, "", self.forms(call, program.body), {}, {}, first)
        _check(call, program.body, entered.forms, first)
        for index, use in enumerate(program.body.uses):
            for slot in use.paged:
                name, tokens = use.states[slot], use.spec.appends[slot]
                key = call.states[name]
                grows = entered.paged.get(name, Growth(key, (), key in call.anew))
                more = index, tokens, use.spec.advances.get(slot, tokens)
                entered.paged[name] = grows._replace(uses=(*grows.uses, more))
            entered.tensors.update({use.states[slot]: call.states[use.states[slot]] for slot in use.spec.tensors})
        for name, growth in entered.paged.items():
            self._bound(entered, program, name, growth)
        self._slices(call, entered)
        if entered.times <= first:
            raise CallFailed(entered.bound, code="invalid_input")
        program.enter(row, self._entry(call, program, entered, self._hold(entered), cells))
        return entered

    def _hold(self, entered: Entered) -> dict[str, tuple[Sequence[Sequence[int]], int, int]]:
        """Room for what all iterations append: `Entry.paged`. Where a state finds none, the others give back theirs."""
        held: dict[str, tuple[Sequence[Sequence[int]], int, int]] = {}
        taken: list[StateKey] = []
        try:
            for name, growth in entered.paged.items():
                kept = self._states.hold(growth.key, growth.held(entered.forms, entered.first, entered.times))
                taken.append(growth.key)
                one = kept[0]
                if any((row.length, row.position) != (one.length, one.position) for row in kept):
                    raise CallFailed(
                        f"the sequences of `{growth.key.state}` are of different lengths; a loop on the device takes "
                        "one step with all of them at a time"
                    )
                held[name] = [row.pages for row in kept], one.length, one.position
                entered.contexts[name] = ContextSequence(one.pages, one.length, one.position, one.content)
        except Exception:
            for key in taken:
                self._states.appended(key, 0, 0)
            raise
        return held

    def leave(self, program: SlotTables, row: int, entered: Entered, iterations: int, *, over: bool) -> None:
        """Give the row's contents back to the run's states. `iterations`: from the loop's start. `over`: it will not be
        entered again, which makes the states anew that begin anew."""
        for name, growth in entered.paged.items():
            if over or name not in program.body.anew:
                self._states.appended(growth.key, *growth.kept(entered.forms, entered.first, iterations))
            else:
                self._states.drop((growth.key,))
        for name, key in entered.tensors.items():
            if over or name not in program.body.anew:
                self._states.set(key, program.tensor(name, row))

    def forms(self, call: LoopCall, body: Body) -> Forms:
        """What every iteration does: which uses are called, and what is told of them."""
        wanted: dict[Place, list[Mask | None]] = {place: [] for place in body.each}
        for out in call.spec.outputs:
            if out.kind != "last":
                wanted[out.use, out.port].append(call.wanted.get(out.key))
        reads = [(source.channel, call.comes[source.channel]) for _, source in body.reads if source.kind == "channel"]
        sends = list(enumerate(call.goes, len(body.reads)))
        masks = [use.active for use in call.uses] + [mask for _, mask in (*reads, *sends)]
        always = all(mask is None for mask in masks) and not call.wanted
        known: dict[Form, Form] = {}
        found: list[Form] = []
        for k in range(1 if always else call.times):
            runs = tuple(n if use.active is None or use.active[k] else SKIPPED for n, use in enumerate(call.uses))
            told = tuple(place for place, asks in wanted.items() if any(ask is None or ask[k] for ask in asks))
            comes, goes = (tuple(at for at, mask in masked if mask is None or mask[k]) for masked in (reads, sends))
            asked = Form(runs, told, comes, goes)
            if asked not in known:
                known[asked] = form_of(body, asked, partial(self._equal, call, body))
            found.append(known[asked])
        return Forms(found)

    def _equal(self, call: LoopCall, body: Body, one: int, other: int) -> bool:
        """Whether two uses of the body are entered with the same values, numbers and states."""
        first, second = call.uses[one], call.uses[other]
        here, there = body.uses[one], body.uses[other]
        numbers = here.spec.params
        return (
            all(_same_value(call, here.sources[port], source) for port, source in there.sources.items())
            and all(first.params.get(name) == second.params.get(name) for name in numbers)
            and all(first.varying.get(name) == second.varying.get(name) for name in numbers)
            and here.states.keys() == there.states.keys()
            and all(
                self._states.alike(call.states[name], call.states[there.states[slot]])
                for slot, name in here.states.items()
            )
        )

    def _slices(self, call: LoopCall, entered: Entered) -> None:
        """A loop ends where a sequence that it reads does."""
        for index, use in enumerate(call.spec.uses):
            for port, source in use.sources.items():
                if source.kind != "each":
                    continue
                slices = len(source.given(call.values))
                asks = (k for k in range(slices, entered.times) if entered.forms.at(k).runs[index] != SKIPPED)
                if (ends := next(asks, None)) is not None:
                    entered.times = ends
                    entered.bound = f"`{use.node}.{port}` has {slices} slices, and the loop goes on"

    def _bound(self, entered: Entered, program: SlotTables, name: str, growth: Growth) -> None:
        """A loop that may not hold what all its iterations append ends where that is full."""
        most = self._states.limits.most(growth.key)
        length, width = self._states.transaction().length(growth.key), program.body.width(name)
        room = program.pages_at_most(name) * PAGE
        if most is not None:
            room = min(most // width, room)

        def fits(times: int) -> bool:
            return length + growth.held(entered.forms, entered.first, times) <= room

        if not fits(entered.times):
            ends = range(entered.first, entered.times)
            entered.times = entered.first + bisect(ends, False, key=lambda times: not fits(times)) - 1
            entered.times = max(entered.times, 0)
            entered.bound = (
                f"`{growth.key.state}` holds at most {room} tokens in this run, has {length}, and the loop appends "
                "more; ask for less, raise what its `capacity` is made of or, in a session, begin anew"
            )

    def _entry(
        self,
        call: LoopCall,
        program: SlotTables,
        entered: Entered,
        held: Mapping[str, tuple[Sequence[Sequence[int]], int, int]],
        cells: Mapping[Place, Tensor] | None,
    ) -> Entry:
        uses = list(zip(call.uses, program.body.uses, strict=True))
        return Entry(
            times=entered.times,
            first=entered.first,
            ints=[n for use, made in uses for n in (use.seed, *(int(use.params[name]) for name in made.ints))],
            floats=[float(use.params[name]) for use, made in uses for name in made.floats],
            series=[[float(n) for n in use.varying[name]] for use, made in uses for name in made.series],
            cells=_entering(call, program) if cells is None else cells,
            paged=held,
            tensors={name: self._states.tensors.get(key) for name, key in entered.tensors.items()},
        )


def _entering(call: LoopCall, program: SlotTables) -> dict[Place, Tensor]:
    return {
        (index, port): torch.as_tensor(_read(call, source), dtype=use.spec.inputs[port].dtype)
        for index, use in enumerate(program.body.uses)
        for port, source in use.sources.items()
        if source.enters
    }


def _read(call: LoopCall, source: LoopSource) -> Any:
    """What the loop reads of an entering value."""
    value = source.given(call.values)
    if not source.sliced:
        return value
    return value[: call.times] if source.kind == "each" else value[0]


def _same_value(call: LoopCall, one: LoopSource, other: LoopSource) -> bool:
    """Whether two ports are entered with the same value, if they are entered with any."""
    return not other.enters or other.given(call.values) is one.given(call.values)


def _check(call: LoopCall, body: Body, forms: Forms, first: int) -> None:
    """Raises `CallFailed` where a port would have a part of its value, or none at first."""
    for form in forms.kinds(first, call.times):
        for node, port, source in _called(body, form):
            there = [form.gives(place) for place in source.now]
            if any(there) and not all(there):
                raise CallFailed(f"`{node}.{port}` would have values of some iterations alone", port)
    begins = forms.at(0)
    for node, port, source in _called(body, begins) if first == 0 else ():
        if source.first is not None and not all(begins.gives(place) for place in source.first.needs):
            raise CallFailed(f"`{node}.{port}` has no value at the first iteration of a loop on the device", port)


def _called(body: Body, form: Form) -> Iterator[tuple[str, str, LoopSource]]:
    """What feeds the uses that are called."""
    for index, use in enumerate(body.uses):
        if form.calls(index):
            yield from ((use.node, port, source) for port, source in use.sources.items())
