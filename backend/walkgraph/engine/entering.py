"""From a loop's call to a row of its program, and back from the row to what the run keeps."""

from bisect import bisect
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walkgraph.engine.blocks import Held
from walkgraph.engine.body import SKIPPED, Asked, Body, Entry, Form, Forms, Place, Source, UseStep, form_of
from walkgraph.engine.pages import PAGE
from walkgraph.engine.pool import Pool
from walkgraph.engine.program import Program
from walkgraph.engine.states import StateTable
from walkgraph.networks.base import CallFailed, Operator, StateKey
from walkgraph.networks.loops import LoopCall, LoopInput, LoopUse

_LEAST_ROOM = 64
"""Iterations: loops of up to so many are in one lane, which is made ready before the first of them."""


class Loaded(NamedTuple):
    """An operator on this rank; nodes and views share it."""

    operator: Operator
    device: torch.device
    index: int


@dataclass(slots=True)
class Entered:
    """What a row was entered with, and must be left with."""

    times: int
    """Iterations until it ends, or until its states are full."""
    bound: str
    """What is told where the states end it."""
    forms: Forms
    paged: dict[str, "Growth"]
    """By alias."""
    tensors: dict[str, StateKey]
    first: int = 0
    """The iteration that it was entered for."""
    collected: dict[str, list[Tensor]] = field(default_factory=dict[str, list[Tensor]])
    contexts: dict[str, Held] = field(default_factory=dict[str, Held])
    """By alias: what its caches held when it entered."""


class Growth(NamedTuple):
    """What a loop appends to a cache."""

    key: StateKey
    uses: tuple[tuple[int, int, int], ...]
    """Use, and the tokens and positions of a call of it."""

    def by(self, forms: Forms, first: int, end: int) -> tuple[int, int]:
        """Tokens and positions of iterations `first` to `end`."""
        calls = [forms.calls(use, first, end) for use, _, _ in self.uses]
        return (
            sum(n * tokens for n, (_, tokens, _) in zip(calls, self.uses, strict=True)),
            sum(n * advance for n, (_, _, advance) in zip(calls, self.uses, strict=True)),
        )


class Entrance:
    def __init__(self, states: StateTable, loaded: Callable[[str], Loaded]) -> None:
        self._states, self._loaded = states, loaded

    def body(self, call: LoopCall) -> tuple[Hashable, Body, Mapping[str, Pool], torch.device]:
        """A key that loops share whose rows may lie in one table, and what makes their program. Raises `CallFailed`."""
        alias = aliases(call)
        order = {id(port): at for at, (_, port, _) in enumerate(call.reads)}
        uses = tuple(self._use(use, alias, order) for use in call.body)
        here = [self._loaded(use.node) for use in call.body]
        outs = [(out.kind, (out.use, out.port)) for out in call.outputs]
        body = Body(
            uses=uses,
            until=call.until,
            each=tuple(dict.fromkeys(place for kind, place in outs if kind != "last")),
            last=tuple(dict.fromkeys(place for kind, place in outs if kind == "last")),
            steps=_room_for(call),
            sends=tuple((send.use, send.port) for send in call.sends),
        )
        pools = {
            alias[use.states[slot]]: self._states.pool(use.states[slot])
            for use, made in zip(call.body, uses, strict=True)
            for slot in made.paged
        }
        key = (
            tuple(
                (one.index, use.spec.key, tuple(use.sources.items()), tuple(use.states.items()), use.series)
                for one, use in zip(here, uses, strict=True)
            ),
            call.until,
            call.outputs,
            (body.sends, call.leads),
            body.steps,
            tuple((name, id(pool)) for name, pool in pools.items()),
        )
        return key, body, pools, here[0].device

    def enter(
        self, call: LoopCall, program: Program, row: int, first: int = 0, cells: Mapping[Place, Tensor] | None = None
    ) -> Entered:
        """Fill a row of the program; raises `OutOfPages` and `CallFailed`, and then has changed nothing. A loop that
        has left its row goes on from iteration `first` with the `cells` that it had there."""
        alias = aliases(call)
        entered = Entered(call.times, "", self.forms(call, program.body), {}, {}, first)
        for index, (use, made) in enumerate(zip(call.body, program.body.uses, strict=True)):
            for slot in made.paged:
                tokens, key = made.spec.appends[slot], use.states[slot]
                grows = entered.paged.get(alias[key], Growth(key, ()))
                more = index, tokens, made.spec.advances.get(slot, tokens)
                entered.paged[alias[key]] = grows._replace(uses=(*grows.uses, more))
            entered.tensors.update({alias[use.states[slot]]: use.states[slot] for slot in made.spec.tensors})
        for name, growth in entered.paged.items():
            self._bound(entered, program, name, growth)
        for index, port in ((index, port) for index, use in enumerate(call.body) for port in use.inputs):
            slices = len(port.value) if port.source == "each" and port.carried is None else entered.times
            asks = (k for k in range(slices, entered.times) if entered.forms.at(k).runs[index] != SKIPPED)
            if (ends := next(asks, None)) is not None:
                entered.times = ends
                name = f"`{call.body[index].node}.{port.port}`"
                entered.bound = f"{name} has {slices} slices, and the loop goes on"
        if entered.times <= first:
            raise CallFailed(entered.bound, code="invalid_input")
        held: dict[str, Any] = {}
        for name, growth in entered.paged.items():
            kept = self._states.hold(growth.key, growth.by(entered.forms, first, entered.times)[0])
            held[name] = kept.pages, kept.length, kept.position
            entered.contexts[name] = Held(kept.pages, kept.length, kept.position, kept.content)
        program.enter(row, self._entry(call, program, entered, held, cells))
        return entered

    def leave(self, program: Program, row: int, entered: Entered, iterations: int) -> None:
        """Give the row's contents back to the run's states. `iterations`: from the loop's start."""
        for growth in entered.paged.values():
            self._states.appended(growth.key, *growth.by(entered.forms, entered.first, iterations))
        for name, key in entered.tensors.items():
            self._states.set(key, program.tensor(name, row))

    def forms(self, call: LoopCall, body: Body) -> Forms:
        """What every iteration does: which uses are called, and what is told of them."""
        wanted: dict[Place, list[tuple[bool, ...] | None]] = {place: [] for place in body.each}
        for out in call.outputs:
            if out.kind != "last":
                wanted[out.use, out.port].append(call.wanted.get(out.key))
        reads = [(at, port.comes) for at, (_, port, _) in enumerate(call.reads) if port.source == "channel"]
        sends = [(at, send.active) for at, send in enumerate(call.sends, len(call.reads))]
        masks = [use.active for use in call.body] + [mask for _, mask in (*reads, *sends)]
        always = all(mask is None for mask in masks) and not call.wanted
        known: dict[Asked, Form] = {}
        found: list[Form] = []
        for k in range(1 if always else call.times):
            active = tuple(use.active is None or use.active[k] for use in call.body)
            told = tuple(place for place, asks in wanted.items() if any(ask is None or ask[k] for ask in asks))
            comes, goes = (tuple(at for at, mask in ways if mask is None or mask[k]) for ways in (reads, sends))
            asked = Asked(active, told, comes, goes)
            if asked not in known:
                known[asked] = form_of(body, asked, partial(self._equal, call, body))
            found.append(known[asked])
        return Forms(found)

    def _equal(self, call: LoopCall, body: Body, one: int, other: int) -> bool:
        """Whether two uses of the body are entered with the same values, numbers and states."""
        first, second = call.body[one], call.body[other]
        values = {port.port: port.value for port in first.inputs if port.source in ("value", "each")}
        numbers = body.uses[one].spec.params
        return (
            all(port.value is values.get(port.port) for port in second.inputs if port.source in ("value", "each"))
            and all(first.params.get(name) == second.params.get(name) for name in numbers)
            and all(first.varying.get(name) == second.varying.get(name) for name in numbers)
            and first.states.keys() == second.states.keys()
            and all(self._states.alike(key, second.states[slot]) for slot, key in first.states.items())
        )

    def _use(self, use: LoopUse, alias: Mapping[StateKey, str], order: Mapping[int, int]) -> UseStep:
        """`order`: ids of the inputs that channels feed, and the places of these."""
        operator = self._loaded(use.node).operator
        empty = next((i.port for i in use.inputs if i.source == "absent" and (i.carried or i.channel)), None)
        if empty is not None:
            raise CallFailed(f"`{use.node}.{empty}` has no value at the first iteration of a loop on the device", empty)
        values = {i.port: i.value for i in use.inputs if i.source == "value"}
        spec = operator.step_spec(values, use.params)
        if spec is None:
            raise CallFailed(f"`{use.node}` can't be iterated on {_shapes(values)}; feed it as it declares")
        # A slot that the component declares optional may have no state.
        spec = replace(spec, tensors={slot: row for slot, row in spec.tensors.items() if slot in use.states})
        fixed = {name: kind for name, kind in spec.params.items() if name not in use.varying}
        return UseStep(
            node=use.node,
            operator=operator,
            spec=spec,
            sources={i.port: _source(i, order) for i in use.inputs if i.source != "absent"},
            states={slot: alias[key] for slot, key in use.states.items()},
            ints=tuple(sorted(name for name, kind in fixed.items() if kind == torch.int64)),
            floats=tuple(sorted(name for name, kind in fixed.items() if kind == torch.float32)),
            series=tuple(sorted(name for name in use.varying if name in spec.params)),
        )

    def _bound(self, entered: Entered, program: Program, name: str, growth: Growth) -> None:
        """A loop that may not hold what all its iterations append ends where that is full."""
        most = self._states.most(growth.key)
        length = self._states.transaction().length(growth.key)
        room = program.room(name) * PAGE if most is None else min(most, program.room(name) * PAGE)

        def fits(times: int) -> bool:
            return length + growth.by(entered.forms, entered.first, times)[0] <= room

        if not fits(entered.times):
            ends = range(entered.first, entered.times)
            entered.times = entered.first + bisect(ends, False, key=lambda times: not fits(times)) - 1
            entered.times = max(entered.times, 0)
            entered.bound = (
                f"`{growth.key.state}` holds at most {room} tokens in this run, and the loop appends more; ask for "
                "less, or raise what its `capacity` is made of"
            )

    def _entry(
        self,
        call: LoopCall,
        program: Program,
        entered: Entered,
        held: Mapping[str, tuple[list[int], int, int]],
        cells: Mapping[Place, Tensor] | None,
    ) -> Entry:
        uses = list(zip(call.body, program.body.uses, strict=True))
        return Entry(
            times=entered.times,
            first=entered.first,
            seeds=[use.seed for use in call.body],
            ints=[int(use.params[name]) for use, made in uses for name in made.ints],
            floats=[float(use.params[name]) for use, made in uses for name in made.floats],
            series=[[float(n) for n in use.varying[name]] for use, made in uses for name in made.series],
            cells=_entering(call, program) if cells is None else cells,
            paged=held,
            tensors={name: self._states.tensors.get(key) for name, key in entered.tensors.items()},
        )


def _shapes(values: Mapping[str, Any]) -> str:
    """What a loop is entered with, for a client."""
    shown = [
        f"`{port}` {list(value.shape) if isinstance(value, Tensor) else value!r}" for port, value in values.items()
    ]
    return ", ".join(shown) or "no inputs from outside"


def aliases(call: LoopCall) -> dict[StateKey, str]:
    """States by the order in which the body names them: runs and views of one body have equal ones."""
    keys = dict.fromkeys(key for use in call.body for _, key in sorted(use.states.items()))
    return {key: f"state {index}" for index, key in enumerate(keys)}


def _entering(call: LoopCall, program: Program) -> dict[Place, Tensor]:
    return {
        (index, port.port): torch.as_tensor(_seen(call, port), dtype=made.spec.inputs[port.port].dtype)
        for index, (use, made) in enumerate(zip(call.body, program.body.uses, strict=True))
        for port in use.inputs
        if port.source in ("value", "each")
    }


def _seen(call: LoopCall, port: LoopInput) -> Any:
    """What the loop reads of an entering value."""
    if port.source == "value":
        return port.value
    return port.value[: call.times] if port.carried is None else port.value[0]


def _source(port: LoopInput, order: Mapping[int, int]) -> Source:
    if port.channel is not None:
        return Source("channel" if port.source == "channel" else "behind", channel=order[id(port)])
    if port.carried is not None:
        begins = _source(replace(port, carried=None), order) if port.source in ("use", "index") else None
        return Source("carried", port.carried, begins)
    match port.source:
        case "use":
            return Source("internal", (port.use, port.output))
        case "index":
            return Source("index")
        case "each":
            return Source("each")
        case _:
            return Source("entering")


def _room_for(call: LoopCall) -> int:
    """Iterations that series have room for: calls whose counts are near share a program."""
    needs = any(use.varying or any(i.source == "each" for i in use.inputs) for use in call.body)
    return 1 << (max(call.times, _LEAST_ROOM) - 1).bit_length() if needs else 0


def with_examples(call: LoopCall, loaded: Callable[[str], Loaded]) -> Iterator[LoopCall]:
    """The loop entered with each of its operators' examples; nothing where a value has none. A port that carries on
    what another one does takes that one's."""
    asked = [[i for i in use.inputs if i.source in ("value", "each")] for use in call.body]
    examples = [
        [one for one in loaded(use.node).operator.step_examples() if all(i.port in one for i in ports)]
        for use, ports in zip(call.body, asked, strict=True)
    ]
    for number in range(max((len(found) for found in examples), default=0) or 1):
        chosen = [found[number % len(found)] if found else {} for found in examples]
        pairs = [(i, one) for ports, one in zip(asked, chosen, strict=True) for i in ports]
        carried: dict[object, Any] = {i.carried: one[i.port] for i, one in pairs if i.port in one and i.carried}
        if any(i.port not in one and i.carried not in carried for i, one in pairs):
            return
        body = [
            replace(use, inputs=tuple(_shown(i, one.get(i.port, carried.get(i.carried))) for i in use.inputs))
            for use, one in zip(call.body, chosen, strict=True)
        ]
        yield replace(call, body=tuple(body))


def _shown(port: LoopInput, value: Any) -> LoopInput:
    return replace(port, value=value) if port.source in ("value", "each") else port
