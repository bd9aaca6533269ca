"""Stand-ins for the values that loops are entered with, while no run has entered one: the examples of operators, and
shapes that follow from these."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from walkgraph.abi.calls import CallFailed
from walkgraph.abi.step import StepSpec
from walkgraph.engine.loops.body import Loaded, inputs_of, with_merges
from walkgraph.engine.loops.spec import LoopCall, LoopSource, LoopSpec, LoopUseSpec, Place

Values = Mapping[str, Any]
"""Entering values by name."""


class _Filled(NamedTuple):
    call: LoopCall
    fits: bool
    """True if every value that inner loops read slice by slice has as many slices as they have iterations."""


def with_examples(call: LoopCall, loaded: Callable[[str], Loaded]) -> list[LoopCall]:
    """The loop, entered with each of its operators' examples; empty if some value has none. A carried port takes the
    example of another port with the same source. A port without an example gets zeros in the shape that the step
    declares for it. If inner loops read slices, only examples with as many slices are used, if there are any."""
    examples = [_of(use, call.values, loaded) for use in call.spec.uses]
    found: list[_Filled] = []
    for number in range(max((len(one) for one in examples), default=0) or 1):
        chosen = [one[number % len(one)] if one else {} for one in examples]
        filled = _filled(call, chosen, loaded)
        if filled is not None:
            found.append(filled)
    fitting = [one.call for one in found if one.fits]
    return fitting or [one.call for one in found]


def _of(use: LoopUseSpec, values: Values, loaded: Callable[[str], Loaded]) -> Sequence[Mapping[str, Any]]:
    """Examples with all values that a use lacks, or else those with some."""
    ports = {port for port, _, _ in _lacking(use, values)}
    found = [one for one in loaded(use.node).operator.step_examples() if not ports.isdisjoint(one)] if ports else []
    return [one for one in found if ports <= one.keys()] or found


def _lacking(use: LoopUseSpec, values: Values) -> Iterator[tuple[str, LoopSource, str]]:
    """Ports whose entering value is missing: port, source, entry."""
    for port, source in use.sources.items():
        if source.entry is not None and values.get(source.entry) is None:
            yield port, source, source.entry


def _filled(call: LoopCall, chosen: Sequence[Mapping[str, Any]], loaded: Callable[[str], Loaded]) -> _Filled | None:
    """Fill in the missing values, or None if they can't be found. `chosen`: an example of the inputs of each use."""
    pairs = list(zip(call.spec.uses, chosen, strict=True))
    carried: dict[Place | None, Any] = {
        source.place: example[port]
        for use, example in pairs
        for port, source, _ in _lacking(use, call.values)
        if source.kind == "carried" and port in example
    }
    values, steps = dict(call.values), list[StepSpec]()
    for at, (use, example) in enumerate(pairs):
        for port, source, entry in list(_lacking(use, values)):
            value = example.get(port)
            value = carried.get(source.place) if value is None and source.kind == "carried" else value
            if value is not None:
                values[entry] = _sequence(source, value)
        step = _step(call, at, values, steps, loaded)
        lacking = list(_lacking(use, values))
        if step is None or not step.inputs.keys() >= {port for port, _, _ in lacking}:
            return None
        for port, source, entry in lacking:
            values[entry] = _sequence(source, torch.zeros(step.inputs[port].shape, dtype=step.inputs[port].dtype))
        steps.append(step)
    return _Filled(replace(call, values=values), _fits(call.spec, steps))


def _sequence(source: LoopSource, value: Any) -> Any:
    """Turn an example, which is the value of one iteration, into the entering value: a sequence of one slice if the
    source is sliced."""
    return torch.as_tensor(value)[None] if source.sliced else value


def _step(
    call: LoopCall, at: int, values: Values, steps: Sequence[StepSpec], loaded: Callable[[str], Loaded]
) -> StepSpec | None:
    """The step of a use whose inputs may not all be known; None if it needs the others, or they don't fit."""
    use = call.spec.uses[at]
    try:
        step = loaded(use.node).operator.step_spec(inputs_of(use, values, steps), call.uses[at].params)
        return step and with_merges(call.spec, steps, step)
    except (CallFailed, KeyError):  # an operator may rely on inputs that it requires
        return None


def _fits(spec: LoopSpec, steps: Sequence[StepSpec]) -> bool:
    read: dict[Place, int] = {}
    for source in (source for use in spec.uses for source in use.sources.values()):
        if source.part is not None and source.place is not None:
            read[source.place] = max(read.get(source.place, 0), source.part + 1)
    return all(steps[use].outputs[output].shape[0] == count for (use, output), count in read.items())
