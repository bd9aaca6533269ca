"""An entry's spec and the shapes that it comes with, as a body: what a program is made for."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.calls import CallFailed, StateKey
from walkgraph.abi.operator import Operator
from walkgraph.abi.step import Row, StepSpec
from walkgraph.engine.kv.pool import Pool
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.loops.body import Body, UseStep
from walkgraph.engine.loops.spec import LoopCall, LoopSource, LoopUseSpec

_LEAST_ITERATIONS = 64
"""Entries of up to so many iterations share a program, which is made ready before the first of them."""
_MOST_BODIES = 64
"""Bodies that are kept; those that were not entered for longest go first."""


class Loaded(NamedTuple):
    """An operator on this rank; nodes and views share it."""

    operator: Operator
    device: torch.device
    index: int


class Made(NamedTuple):
    key: Hashable
    """Loops share it whose rows may lie in one table."""
    body: Body
    pools: Mapping[str, Pool]
    """By state."""
    device: torch.device


class Bodies:
    """Of the specs and shapes that were entered lately: an entry looks its own up, and makes it where it is the
    first."""

    def __init__(self, states: StateTable, loaded: Callable[[str], Loaded]) -> None:
        self._states, self._loaded = states, loaded
        self._made: dict[Hashable, Made] = {}

    def of(self, call: LoopCall) -> Made:
        """Raises `CallFailed`."""
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
            body = _body(call, here, steps, dict(widths), anew)
            made = Made(key, body, pools, here[0].device)
        self._made[key] = made
        if len(self._made) > _MOST_BODIES:
            self._made.pop(next(iter(self._made)))
        return made

    def _width(self, call: LoopCall, key: StateKey) -> int:
        """Sequences of a state while the loop runs."""
        if key in call.anew:
            return max(1, call.anew[key].width)
        return self._states.width(key) if self._states.holds(key) else max(1, call.widths.get(key, 1))


def _body(
    call: LoopCall, here: Sequence[Loaded], steps: Sequence[StepSpec], widths: Mapping[str, int], anew: frozenset[str]
) -> Body:
    spec = call.spec
    outs = [(out.kind, (out.use, out.port)) for out in spec.outputs]
    body = Body(
        uses=tuple(_use(use, one.operator, step) for use, one, step in zip(spec.uses, here, steps, strict=True)),
        until=spec.until,
        each=tuple(dict.fromkeys(place for kind, place in outs if kind != "last")),
        last=tuple(dict.fromkeys(place for kind, place in outs if kind == "last")),
        steps=_table_iterations(call),
        sends=tuple((send.use, send.port) for send in spec.sends),
        widths=widths,
        anew=anew,
    )
    _check_blocks(body)
    return body


def _use(use: LoopUseSpec, operator: Operator, step: StepSpec) -> UseStep:
    fixed = {name: kind for name, kind in step.params.items() if name not in use.varying}
    return UseStep(
        node=use.node,
        operator=operator,
        spec=step,
        sources=use.sources,
        states=use.states,
        ints=tuple(sorted(name for name, kind in fixed.items() if kind == torch.int64)),
        floats=tuple(sorted(name for name, kind in fixed.items() if kind == torch.float32)),
        series=tuple(name for name in use.varying if name in step.params),
        inner=use.inner,
    )


def _steps(call: LoopCall, operators: Sequence[Operator]) -> list[StepSpec]:
    """Of each use. Raises `CallFailed`."""
    steps: list[StepSpec] = []
    for use, given, operator in zip(call.spec.uses, call.uses, operators, strict=True):
        empty = next((port for port, source in use.sources.items() if not source.begins), None)
        if empty is not None:
            raise CallFailed(f"`{use.node}.{empty}` has no value at the first iteration of a loop on the device", empty)
        values = inputs_of(use, call.values, steps)
        step = operator.step_spec(values, given.params)
        if step is None:
            raise CallFailed(f"`{use.node}` can't be iterated on {_shapes(use, values)}; feed it as it declares")
        if not step.tensors.keys() <= use.states.keys():
            # A slot that the component declares optional may have no state.
            step = replace(step, tensors={slot: row for slot, row in step.tensors.items() if slot in use.states})
        steps.append(step)
    return steps


def inputs_of(use: LoopUseSpec, given: Mapping[str, Any], steps: Sequence[StepSpec]) -> dict[str, Any]:
    """What `step_spec` is told of a use's inputs. `given`: entering values; `steps`: of the uses before it."""
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
                raise CallFailed(f"`{use.node}.{port}` is to be made of values of several shapes", port)
            first = rows[0] or Row((), torch.float32)
            return _blank(Row((len(rows), *first.shape), first.dtype))
        case "index":
            return _blank(Row((), torch.int64))
        case _:
            return None


def _part(use: LoopUseSpec, port: str, part: int, row: Row) -> Row:
    """A slice of a value."""
    slices = row.shape[0] if row.shape else 0
    if part >= slices:
        raise CallFailed(f"`{use.node}.{port}` has {slices} slices, and the loop goes on", code="invalid_input")
    return Row(row.shape[1:], row.dtype)


def _blank(row: Row) -> Tensor:
    return torch.empty(row.shape, dtype=row.dtype, device="meta")


def _shapes(use: LoopUseSpec, values: Mapping[str, Any]) -> str:
    """What a use is entered with, for a client."""
    shown = [
        f"`{port}` {list(value.shape) if isinstance(value, Tensor) else value!r}"
        for port, value in values.items()
        if use.sources[port].enters
    ]
    return ", ".join(shown) or "no inputs from outside"


def _check_blocks(body: Body) -> None:
    """Blocks lie behind contexts that were copied when the rows of a batch were chosen: one a row, as it was then."""
    grows = {state for use in body.uses for state in use.grows}
    for use in body.uses:
        for slot in use.spec.scratch:
            state = use.states[slot]
            if body.width(state) > 1:
                raise CallFailed(f"`{use.node}` attends a block behind one sequence, and its state has several")
            if state in grows:
                raise CallFailed(f"`{use.node}` attends a block behind a state to which the same loop appends")


def _table_iterations(call: LoopCall) -> int:
    """Iterations that the tables have series and slices for: entries whose counts are near share a program."""
    if not any(use.varying or any(s.kind == "each" for s in use.sources.values()) for use in call.spec.uses):
        return 0
    return 1 << (max(call.times, _LEAST_ITERATIONS) - 1).bit_length()
