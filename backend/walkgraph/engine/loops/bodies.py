"""A loop's call as a body: the shapes of its uses, what feeds them, the states that they share."""

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
from walkgraph.engine.loops.body import Body, Source, UseStep
from walkgraph.engine.loops.spec import LoopCall, LoopInput, LoopUse

_LEAST_ROOM = 64
"""Iterations: loops of up to so many are in one lane, which is made ready before the first of them."""


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
    """By alias."""
    device: torch.device


def made_of(call: LoopCall, states: StateTable, loaded: Callable[[str], Loaded]) -> Made:
    """What makes a loop's program. Raises `CallFailed`."""
    alias = aliases(call)
    uses = _uses(call, alias, loaded)
    here = [loaded(use.node) for use in call.body]
    outs = [(out.kind, (out.use, out.port)) for out in call.outputs]
    widths = {alias[key]: _width(call, states, key) for key in alias}
    body = Body(
        uses=uses,
        until=call.until,
        each=tuple(dict.fromkeys(place for kind, place in outs if kind != "last")),
        last=tuple(dict.fromkeys(place for kind, place in outs if kind == "last")),
        steps=_room_for(call),
        sends=tuple((send.use, send.port) for send in call.sends),
        widths={name: width for name, width in widths.items() if width > 1},
        anew=frozenset(alias[key] for key in call.anew if key in alias),
    )
    _check_blocks(body)
    pools = {
        alias[use.states[slot]]: states.pools.of(use.states[slot])
        for use, made in zip(call.body, uses, strict=True)
        for slot in made.paged
    }
    key = (
        tuple(
            (one.index, use.spec.key, tuple(use.sources.items()), tuple(use.states.items()), use.series, use.inner)
            for one, use in zip(here, uses, strict=True)
        ),
        call.until,
        call.outputs,
        (body.sends, call.leads),
        body.steps,
        (tuple(body.widths.items()), body.anew),
        tuple((name, id(pool)) for name, pool in pools.items()),
    )
    return Made(key, body, pools, here[0].device)


def aliases(call: LoopCall) -> dict[StateKey, str]:
    """States by the order in which the body names them: runs and views of one body have equal ones."""
    keys = dict.fromkeys(key for use in call.body for _, key in sorted(use.states.items()))
    return {key: f"state {index}" for index, key in enumerate(keys)}


def _uses(call: LoopCall, alias: Mapping[StateKey, str], loaded: Callable[[str], Loaded]) -> tuple[UseStep, ...]:
    order = {id(port): at for at, (_, port, _) in enumerate(call.reads)}
    uses: list[UseStep] = []
    for use in call.body:
        operator = loaded(use.node).operator
        empty = next((i.port for i in use.inputs if i.source == "absent" and (i.carried or i.channel)), None)
        if empty is not None:
            raise CallFailed(f"`{use.node}.{empty}` has no value at the first iteration of a loop on the device", empty)
        values = values_of(use, [one.spec for one in uses])
        spec = operator.step_spec(values, use.params)
        if spec is None:
            raise CallFailed(f"`{use.node}` can't be iterated on {_shapes(use, values)}; feed it as it declares")
        # A slot that the component declares optional may have no state.
        spec = replace(spec, tensors={slot: row for slot, row in spec.tensors.items() if slot in use.states})
        fixed = {name: kind for name, kind in spec.params.items() if name not in use.varying}
        uses.append(
            UseStep(
                node=use.node,
                operator=operator,
                spec=spec,
                sources={i.port: _source(i, order) for i in use.inputs if i.source != "absent"},
                states={slot: alias[key] for slot, key in use.states.items()},
                ints=tuple(sorted(name for name, kind in fixed.items() if kind == torch.int64)),
                floats=tuple(sorted(name for name, kind in fixed.items() if kind == torch.float32)),
                series=tuple(sorted(name for name in use.varying if name in spec.params)),
                inner=use.inner,
            )
        )
    return tuple(uses)


def values_of(use: LoopUse, specs: Sequence[StepSpec]) -> dict[str, Any]:
    """What `step_spec` is told of a use's inputs. `specs`: those of the uses before it."""
    found: dict[str, Any] = {}
    for port in use.inputs:
        value = _value(use, port, specs)
        if value is not None:
            found[port.port] = value
    return found


def _value(use: LoopUse, port: LoopInput, specs: Sequence[StepSpec]) -> Any:
    match port.source:
        case "value":
            return port.value
        case "each":
            value = torch.as_tensor(port.value)
            return _blank(Row(tuple(value.shape[1:]), value.dtype))
        case "use":
            row = specs[port.use].outputs.get(port.output)
            return None if row is None else _blank(row if port.part is None else _part(use, port, row))
        case "stack":
            rows = [specs[at].outputs.get(output) for at, output in port.stacked]
            if not rows or None in rows or len(set(rows)) > 1:
                raise CallFailed(f"`{use.node}.{port.port}` is to be made of values of several shapes", port.port)
            first = rows[0] or Row((), torch.float32)
            return _blank(Row((len(rows), *first.shape), first.dtype))
        case "index":
            return _blank(Row((), torch.int64))
        case _:
            return None


def _part(use: LoopUse, port: LoopInput, row: Row) -> Row:
    """A slice of a value."""
    slices = row.shape[0] if row.shape else 0
    if port.part is None or port.part >= slices:
        raise CallFailed(f"`{use.node}.{port.port}` has {slices} slices, and the loop goes on", code="invalid_input")
    return Row(row.shape[1:], row.dtype)


def _blank(row: Row) -> Tensor:
    return torch.empty(row.shape, dtype=row.dtype, device="meta")


def _shapes(use: LoopUse, values: Mapping[str, Any]) -> str:
    """What a use is entered with, for a client."""
    inside = {port.port for port in use.inputs if port.source not in ("value", "each")}
    shown = [
        f"`{port}` {list(value.shape) if isinstance(value, Tensor) else value!r}"
        for port, value in values.items()
        if port not in inside
    ]
    return ", ".join(shown) or "no inputs from outside"


def _source(port: LoopInput, order: Mapping[int, int]) -> Source:
    if port.channel is not None:
        return Source("channel" if port.source == "channel" else "behind", channel=order[id(port)])
    if port.carried is not None:
        inside = port.source in ("use", "stack", "index")
        begins = _source(replace(port, carried=None), order) if inside else None
        return Source("carried", port.carried, begins)
    match port.source:
        case "use":
            return Source("internal", (port.use, port.output), part=port.part)
        case "stack":
            return Source("stack", places=port.stacked)
        case "index":
            return Source("index")
        case "each":
            return Source("each")
        case _:
            return Source("entering")


def _width(call: LoopCall, states: StateTable, key: StateKey) -> int:
    """Sequences of a state while the loop runs."""
    if key in call.anew:
        return max(1, call.anew[key].width)
    return states.width(key) if states.holds(key) else max(1, call.widths.get(key, 1))


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


def _room_for(call: LoopCall) -> int:
    """Iterations that series have room for: calls whose counts are near share a program."""
    needs = any(use.varying or any(i.source == "each" for i in use.inputs) for use in call.body)
    return 1 << (max(call.times, _LEAST_ROOM) - 1).bit_length() if needs else 0
