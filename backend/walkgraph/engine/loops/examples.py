"""What stands for the values that loops are entered with, while nobody has entered one: what operators have as
examples, and shapes that follow from these."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from walkgraph.abi.calls import CallFailed
from walkgraph.abi.step import StepSpec
from walkgraph.engine.loops.bodies import Loaded, values_of
from walkgraph.engine.loops.spec import LoopCall, LoopInput, LoopUse

Place = tuple[int, str]
Carried = Mapping[Place, Any]
"""What carries a value on -> an example of it."""


class _Filled(NamedTuple):
    call: LoopCall
    fits: bool
    """What loops inside read slice by slice has as many slices as they have iterations."""


def with_examples(call: LoopCall, loaded: Callable[[str], Loaded]) -> list[LoopCall]:
    """The loop entered with each of its operators' examples; nothing where a value has none. A port that carries on
    what another one does takes that one's; of one that its operator leaves to the others, the shape is what its step
    wants beside these. Where loops inside read slices, examples with as many go before all others."""
    examples = [_of(use, loaded) for use in call.body]
    found: list[_Filled] = []
    for number in range(max((len(one) for one in examples), default=0) or 1):
        chosen = [one[number % len(one)] if one else {} for one in examples]
        filled = _filled(call, chosen, loaded)
        if filled is not None:
            found.append(filled)
    fitting = [one.call for one in found if one.fits]
    return fitting or [one.call for one in found]


def _of(use: LoopUse, loaded: Callable[[str], Loaded]) -> Sequence[Mapping[str, Any]]:
    """Examples that have all that a use lacks, or else something of it."""
    ports = {port.port for port in use.inputs if _lacks(port)}
    found = [one for one in loaded(use.node).operator.step_examples() if not ports.isdisjoint(one)] if ports else []
    return [one for one in found if ports <= one.keys()] or found


def _lacks(port: LoopInput) -> bool:
    return port.source in ("value", "each") and port.value is None


def _filled(call: LoopCall, chosen: Sequence[Mapping[str, Any]], loaded: Callable[[str], Loaded]) -> _Filled | None:
    """`chosen`: for each use an example of its inputs."""
    pairs = [(i, one) for use, one in zip(call.body, chosen, strict=True) for i in use.inputs if _lacks(i)]
    carried: Carried = {i.carried: one[i.port] for i, one in pairs if i.port in one and i.carried}
    body: list[LoopUse] = []
    specs: list[StepSpec] = []
    for use, example in zip(call.body, chosen, strict=True):
        known = replace(use, inputs=tuple(_shown(i, example, carried) for i in use.inputs))
        spec = _spec(known, specs, loaded)
        lacking = [i.port for i in known.inputs if _lacks(i)]
        if spec is None or not spec.inputs.keys() >= set(lacking):
            return None
        blank = {port: torch.zeros(spec.inputs[port].shape, dtype=spec.inputs[port].dtype) for port in lacking}
        body.append(replace(known, inputs=tuple(_shown(i, blank, {}) for i in known.inputs)))
        specs.append(spec)
    return _Filled(replace(call, body=tuple(body)), _fits(body, specs))


def _spec(use: LoopUse, specs: Sequence[StepSpec], loaded: Callable[[str], Loaded]) -> StepSpec | None:
    """Of a use whose inputs may not all be known; None where it can't be told without them, or they don't fit."""
    known = replace(use, inputs=tuple(i for i in use.inputs if not _lacks(i)))
    try:
        return loaded(use.node).operator.step_spec(values_of(known, specs), use.params)
    except (CallFailed, KeyError):  # an operator may rely on inputs that it requires
        return None


def _fits(body: Sequence[LoopUse], specs: Sequence[StepSpec]) -> bool:
    read: dict[Place, int] = {}
    for port in (port for use in body for port in use.inputs if port.part is not None):
        read[port.use, port.output] = max(read.get((port.use, port.output), 0), (port.part or 0) + 1)
    return all(specs[use].outputs[output].shape[0] == count for (use, output), count in read.items())


def _shown(port: LoopInput, example: Mapping[str, Any], carried: Carried) -> LoopInput:
    if not _lacks(port):
        return port
    value = example.get(port.port)
    if value is None and port.carried is not None:
        value = carried.get(port.carried)
    if value is None:
        return port
    # An example is what an iteration reads: of a sequence, that is a slice.
    return replace(port, value=torch.as_tensor(value)[None] if port.source == "each" else value)
