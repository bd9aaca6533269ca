"""From a loop's call to a row of its program, and back from the row to what the run keeps."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walkgraph.engine.pages import PAGE
from walkgraph.engine.pool import Pool
from walkgraph.engine.program import Body, Entry, Place, Program, Source, UseStep
from walkgraph.engine.states import StateTable
from walkgraph.networks.base import CallFailed, Operator, StateKey
from walkgraph.networks.loops import LoopCall, LoopInput, LoopUse


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
    paged: dict[str, tuple[StateKey, int, int]]
    """Alias -> state, tokens and positions of an iteration."""
    tensors: dict[str, StateKey]
    first: int = 0
    """The iteration that it was entered for."""
    collected: dict[str, list[Tensor]] = field(default_factory=dict[str, list[Tensor]])


class Entrance:
    def __init__(self, states: StateTable, loaded: Callable[[str], Loaded]) -> None:
        self._states, self._loaded = states, loaded

    def body(self, call: LoopCall) -> tuple[Hashable, Body, Mapping[str, Pool], torch.device]:
        """A key that loops share whose rows may lie in one table, and what makes their program. Raises `CallFailed`."""
        alias = aliases(call)
        uses = tuple(self._use(use, alias) for use in call.body)
        here = [self._loaded(use.node) for use in call.body]
        outs = [(out.kind, (out.use, out.port)) for out in call.outputs]
        body = Body(
            uses=uses,
            until=call.until,
            each=tuple(dict.fromkeys(place for kind, place in outs if kind != "last")),
            last=tuple(dict.fromkeys(place for kind, place in outs if kind == "last")),
            steps=_room_for(call),
        )
        pools = {
            alias[use.states[slot]]: self._states.pool(use.states[slot])
            for use, made in zip(call.body, uses, strict=True)
            for slot in made.spec.appends
            if slot in use.states
        }
        key = (
            tuple(
                (one.index, use.spec.key, tuple(use.sources.items()), tuple(use.states.items()), use.series)
                for one, use in zip(here, uses, strict=True)
            ),
            call.until,
            call.outputs,
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
        entered = Entered(call.times, "", {}, {}, first)
        for use, made in zip(call.body, program.body.uses, strict=True):
            for slot, tokens in made.spec.appends.items():
                key = use.states[slot]
                _, had, advance = entered.paged.get(alias[key], (key, 0, 0))
                more = made.spec.advances.get(slot, tokens)
                entered.paged[alias[key]] = key, had + tokens, advance + more
            entered.tensors.update({alias[use.states[slot]]: use.states[slot] for slot in made.spec.tensors})
        for name, (key, tokens, _) in entered.paged.items():
            self._bound(entered, program, name, key, tokens)
        for node, port in ((use.node, port) for use in call.body for port in use.inputs):
            slices = len(port.value) if port.source == "each" and port.carried is None else entered.times
            if slices < entered.times:
                entered.times = slices
                entered.bound = f"`{node}.{port.port}` has {slices} slices, and the loop goes on"
        if entered.times <= first:
            raise CallFailed(entered.bound, code="invalid_input")
        held: dict[str, Any] = {}
        for name, (key, tokens, _) in entered.paged.items():
            kept = self._states.hold(key, tokens * (entered.times - first))
            held[name] = kept.pages, kept.length, kept.position
        program.enter(row, self._entry(call, program, entered, held, cells))
        return entered

    def leave(self, program: Program, row: int, entered: Entered, iterations: int) -> None:
        """Give the row's contents back to the run's states. `iterations`: from the loop's start."""
        count = iterations - entered.first
        for key, tokens, advance in entered.paged.values():
            self._states.appended(key, tokens * count, advance * count)
        for name, key in entered.tensors.items():
            self._states.set(key, program.tensor(name, row))

    def _use(self, use: LoopUse, alias: Mapping[StateKey, str]) -> UseStep:
        operator = self._loaded(use.node).operator
        empty = next((i.port for i in use.inputs if i.source == "absent" and i.carried is not None), None)
        if empty is not None:
            raise CallFailed(f"`{use.node}.{empty}` has no value at the first iteration of a loop on the device", empty)
        values = {i.port: i.value for i in use.inputs if i.source == "value"}
        spec = operator.step_spec(values, use.params)
        if spec is None:
            raise CallFailed(f"`{use.node}` has no step for the inputs it gets in a loop; feed it as it declares")
        fixed = {name: kind for name, kind in spec.params.items() if name not in use.varying}
        return UseStep(
            node=use.node,
            operator=operator,
            spec=spec,
            sources={i.port: _source(i) for i in use.inputs if i.source != "absent"},
            states={slot: alias[key] for slot, key in use.states.items()},
            ints=tuple(sorted(name for name, kind in fixed.items() if kind == torch.int64)),
            floats=tuple(sorted(name for name, kind in fixed.items() if kind == torch.float32)),
            series=tuple(sorted(name for name in use.varying if name in spec.params)),
        )

    def _bound(self, entered: Entered, program: Program, name: str, key: StateKey, tokens: int) -> None:
        """A loop that may not hold what all its iterations append ends where that is full."""
        most = self._states.most(key)
        length = self._states.transaction().length(key)
        room = program.room(name) * PAGE if most is None else min(most, program.room(name) * PAGE)
        times = entered.first + (room - length) // tokens if tokens else entered.times * (length <= room)
        if times < entered.times:
            entered.times = times
            entered.bound = (
                f"`{key.state}` holds at most {room} tokens in this run, and the loop appends more; ask for less, or "
                "raise what its `capacity` is made of"
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


def _source(port: LoopInput) -> Source:
    if port.carried is not None:
        begins = _source(replace(port, carried=None)) if port.source in ("use", "index") else None
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
    return 1 << (max(call.times, 16) - 1).bit_length() if needs else 0


def with_examples(call: LoopCall, loaded: Callable[[str], Loaded]) -> Iterator[LoopCall]:
    """The loop entered with each of its operators' examples; nothing where one that needs values has none."""
    examples = [loaded(use.node).operator.step_examples() for use in call.body]
    asks = [any(i.source in ("value", "each") for i in use.inputs) for use in call.body]
    count = max((len(found) for found in examples), default=0)
    if any(ask and not found for ask, found in zip(asks, examples, strict=True)):
        return
    for number in range(max(1, count)):
        body = [
            replace(use, inputs=tuple(_shown(port, found[number % len(found)] if found else {}) for port in use.inputs))
            for use, found in zip(call.body, examples, strict=True)
        ]
        yield replace(call, body=tuple(body))


def _shown(port: LoopInput, example: Mapping[str, Any]) -> LoopInput:
    return replace(port, value=example.get(port.port)) if port.source in ("value", "each") else port
