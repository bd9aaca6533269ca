"""Every example of a component is what its operator gives."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.unit.engine.plans import call, engine_of, outputs, plan_of
from walkgraph import plugins
from walkgraph.abi.operator import Operator
from walkgraph.components import catalogue
from walkgraph.graph.catalogue import Component, Example, Port, Shown, is_described
from walkgraph.graph.language.shaping import shaped
from walkgraph.graph.ports import PortType

TOLD = ("Calls", "Agent")
"""Categories whose components may need the network, a person or other tasks: their examples may be only shown."""


EACH = pytest.mark.parametrize(
    ("component", "example"),
    [
        pytest.param(component, example, id=f"{component.name}-{index}")
        for component in catalogue().values()
        for index, example in enumerate(component.examples)
    ],
)


def value_of(port: PortType, given: Shown) -> Any:
    """The value that an operator takes."""
    if port.many:
        assert isinstance(given, list | tuple)
        return [value_of(replace(port, many=False), item) for item in given]
    if isinstance(given, list | tuple):
        dtype = {"int": torch.int64, "float": torch.float32, "bool": torch.bool}.get(port.dtype or "")
        return torch.tensor(given, dtype=dtype)
    return given


def same(given: Any, expected: Any) -> bool:
    """Equal in type and shape, numbers to four decimals."""
    if isinstance(given, torch.Tensor):
        # A list of a float tensor may be written with whole numbers.
        wanted = torch.tensor(expected)
        return given.shape == wanted.shape and torch.allclose(given.double(), wanted.double(), atol=1e-4)
    if isinstance(expected, list | tuple):
        return (
            isinstance(given, list)
            and len(given) == len(expected)
            and all(same(mine, other) for mine, other in zip(given, expected, strict=True))
        )
    if isinstance(expected, float):
        return isinstance(given, float) and abs(given - expected) <= 1e-4
    return type(given) is type(expected) and given == expected


def ports_of(component: Component, example: Example) -> tuple[Mapping[str, Port], Mapping[str, Port]]:
    """The ports of a node with the example's parameters."""
    found = shaped(component, example.params)
    return {one.name: one for one in found.inputs}, {one.name: one for one in found.outputs}


def answer(component: Component, example: Example) -> dict[str, Any]:
    """The outputs of the component's operator, through the engine."""
    takes, _ = ports_of(component, example)
    states = {use.slot: use.slot for use in component.states}
    assert component.network is not None
    defaults = {name: param.default for name, param in component.params.items() if param.default is not None}
    params: dict[str, Any] = {**defaults, **example.params}
    plan = plan_of(
        {"node": (component.network, states)},
        params={"node": params},
        source="random:qwen3-tiny:0" if component.weights else None,
        family="llm",
    )
    inputs = {name: value_of(takes[name].type, value) for name, value in example.inputs.items()}
    [found] = outputs(engine_of(plan), call("node", inputs, states=states, seed=0, **params))
    return found


def truth(component: Component, example: Example) -> None:
    """Raises AssertionError if the operator gives other outputs."""
    _, gives = ports_of(component, example)
    found = answer(component, example)
    assert found.keys() == example.outputs.keys()
    for name, value in example.outputs.items():
        if not is_described(gives[name].type, value):
            assert same(found[name], value), f"`{name}` is {found[name]}"


@EACH
def test_an_example_fits_its_component(component: Component, example: Example) -> None:
    takes, gives = ports_of(component, example)
    assert example.params.keys() <= component.params.keys()
    needed = {name for name, param in component.params.items() if param.default is None}
    assert needed <= example.params.keys()
    assert example.inputs.keys() <= takes.keys()
    assert {name for name, port in takes.items() if not port.optional} <= example.inputs.keys()
    assert example.outputs.keys() <= gives.keys()
    assert example.outputs or example.note
    assert example.note.endswith(".") or not example.note
    assert example.runs or component.category in TOLD or component.weights or component.served
    lines = list(example.lines(takes.values(), gives.values()))
    assert len(lines) == len(example.params) + len(example.inputs) + len(example.outputs)


@EACH
def test_an_example_is_what_the_operator_gives(component: Component, example: Example) -> None:
    takes, _ = ports_of(component, example)
    given = all(not is_described(takes[name].type, value) for name, value in example.inputs.items())
    if component.available and example.runs and given:
        truth(component, example)


def test_every_component_of_the_palette_has_an_example() -> None:
    """Models show theirs in graphs."""
    palette = {"Text", "Picture", "Sound", "Video", "Numbers", "Control", *TOLD}
    of_palette = [one for one in catalogue().values() if one.category in palette and not one.weights]
    assert len(of_palette) > 60
    assert [one.name for one in of_palette if not one.examples] == []


def test_a_false_example_is_found() -> None:
    add = catalogue()["synthetic.add"]
    truth(add, Example(inputs={"a": 2, "b": 3}, outputs={"sum": 5}))
    for wrong in ({"sum": 6}, {"sum": 5.0}, {"sum": [5]}, {"total": 5}):
        with pytest.raises(AssertionError):
            truth(add, Example(inputs={"a": 2, "b": 3}, outputs=wrong))


RUNS = pytest.mark.parametrize(
    "component", [one for one in catalogue().values() if one.network], ids=lambda one: one.name
)


def operator_of(component: Component) -> type[Operator]:
    module, _, name = str(component.network).partition(":")
    return plugins.load(plugins.MODELS, module.removeprefix(f"{plugins.MODELS}."), name)


@RUNS
def test_a_component_is_deterministic_where_its_operator_is(component: Component) -> None:
    assert component.deterministic == operator_of(component).pure
    assert not (component.deterministic and component.states)


@RUNS
def test_what_is_read_at_load_must_be_a_literal(component: Component) -> None:
    """So that no expression passes `check` and is refused by the load."""
    read = {component.params[name] for name in operator_of(component).options}
    assert all(param.form or param.gives for param in read)
