"""Every bundled example is sound, as the editor saves it, fits a laptop, and needs nothing but a press on Run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.check import check
from walkgraph.graph.checks.called import WithTasks, called_graphs
from walkgraph.graph.conversation import Conversation
from walkgraph.graph.steps import is_needed
from walkgraph.models.agent.conversing import tools_of
from walkgraph.placement.hardware import Device, Hardware
from walkgraph.resources import bundled, stored_as_graphs
from walkgraph.service.deployments.judging import judge
from walkgraph.service.deployments.task_graphs import KnownGraphs

EXAMPLES = bundled("examples")
CALLING = ["agent"]
"""Those that call tasks of other graphs."""
GiB = 2**30
LAPTOP = Hardware(host="laptop", cores=2, shm=2 * GiB, devices=(Device(name="cpu", total=8 * GiB, free=4 * GiB),))


def document(name: str) -> dict[str, Any]:
    return json.loads(stored_as_graphs()[name].read_bytes())


def known(name: str) -> dict[str, Any]:
    return {each: document(each) for each in {name} | called_graphs(document(name))}


def test_no_example_hides_a_graph() -> None:
    assert not EXAMPLES.keys() & bundled("graphs").keys()
    assert {name for name in EXAMPLES if called_graphs(document(name)) - {name}} == set(CALLING)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_stands_as_the_editor_saves_it(name: str) -> None:
    graph = codec.load(EXAMPLES[name].read_bytes())
    assert graph.name == name
    assert codec.dumps(graph) == EXAMPLES[name].read_text()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_no_problem(name: str) -> None:
    assert check(document(name), WithTasks(catalogue(), known(name))).problems == ()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_fits_a_laptop(name: str) -> None:
    judged = judge(document(name), None, (), (), LAPTOP, KnownGraphs(known(name)))
    assert judged.deployable, judged


@pytest.mark.parametrize("name", EXAMPLES)
def test_one_press_is_enough(name: str) -> None:
    graph = codec.load(EXAMPLES[name].read_bytes())
    first = next(iter(graph.tasks.values()))
    assert graph.description.endswith((".", "?"))
    assert first.label
    assert not any(map(is_needed, first.inputs.values()))
    assert all(param.default is not None and param.description for param in first.params.values())
    assert {weights.source.partition(":")[0] for weights in graph.weights.values()} <= {"starter"}


def test_the_tools_of_the_agent_are_the_cases_of_its_choice() -> None:
    agent = document("agent")
    tools = json.loads(agent["nodes"]["begin"]["params"]["tools"])
    names = [tool.name for tool in tools_of(Conversation((), tuple(map(json.dumps, tools))))]
    loop = next(step["loop"] for step in agent["tasks"]["ask"]["steps"] if "loop" in step)
    assert names == [*next(step["cases"] for step in loop if "choose" in step)]
