"""Random pipelines of small components give what plain Python gives, on one rank and on two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.local import LocalDeployment
from tests.support.palette_twins import alike
from tests.support.random_pipelines import RULES, Pipeline, random_pipeline
from tests.support.random_walks import HypothesisDraw
from walkgraph.components import catalogue
from walkgraph.engine.calls.memo import Memo
from walkgraph.engine.load import KeptOperators
from walkgraph.graph import codec
from walkgraph.graph.check import check
from walkgraph.graph.document import Graph
from walkgraph.placement.document import Group, Placement, RankDevice

TEXT = st.text("ab1, é[]{}", max_size=10)
INPUTS = st.fixed_dictionaries(
    {
        "text": TEXT,
        "other": TEXT,
        "texts": st.lists(TEXT, min_size=1, max_size=4),
        "n": st.integers(-9, 9),
        "flag": st.booleans(),
    }
)


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    return random_pipeline(HypothesisDraw(draw))


def placed(graph: Graph, ranks: dict[str, int]) -> Placement:
    groups = tuple(Group(nodes=(node,), ranks=(rank,)) for node, rank in ranks.items() if rank)
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in (0, 1))
    return Placement(name="two", graph=graph.name, groups=(Group(nodes=("*",), ranks=(0,)), *groups), ranks=devices)


def answers(graph: Graph, ranks: dict[str, int], inputs: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The outputs of a run by name, and the error that ended it."""
    local = LocalDeployment(graph, placed(graph, ranks), threads=1, kv_bytes=1 << 16)
    return told(local, "r", inputs)


def told(local: LocalDeployment, run: str, inputs: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    given = {"text": [inputs["text"]], "other": [inputs["other"]], "texts": inputs["texts"]}
    local.submit(run, "t", {"n": inputs["n"], "flag": inputs["flag"]}, given)
    local.run()
    return {name: values for name, values in local.outputs[run].items() if values}, local.failed.get(run)


def test_random_pipelines_give_what_plain_python_gives(request: pytest.FixtureRequest) -> None:
    """`--pipelines 2000` draws more of them."""

    @settings(max_examples=request.config.getoption("--pipelines"))
    @given(pipelines(), INPUTS, st.lists(st.integers(0, 1), min_size=10, max_size=10))
    def agrees(pipeline: Pipeline, inputs: dict[str, Any], where: list[int]) -> None:
        for ranks in ({}, dict(zip(pipeline.nodes, where, strict=False))):
            agree(pipeline, inputs, ranks)

    agrees()


def agree(pipeline: Pipeline, inputs: dict[str, Any], ranks: dict[str, int]) -> None:
    graph = pipeline.graph()
    assert check(graph, catalogue()).errors == ()
    wanted, failing = pipeline.run(inputs)
    found, error = answers(graph, ranks, inputs)
    if failing:
        assert error is not None
        assert (error.code, error.node in failing) == ("invalid_input", True), error
        return
    assert error is None
    assert found.keys() == wanted.keys()
    for name, values in found.items():
        assert len(values) == 1
        assert alike(values[0], wanted[name]), f"{pipeline.outputs[int(name[1:])]}: {values[0]}, {wanted[name]}"


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and one == other


def test_what_is_kept_of_earlier_runs_is_what_would_be_computed(request: pytest.FixtureRequest) -> None:
    """The naive twin has no memo. The second run has the same inputs, the third one others; then the ranks load another
    graph, of which some calls are known, and the first one again. Either all nodes are kept, or some that say so and
    those that read nothing of their run."""

    @settings(max_examples=request.config.getoption("--pipelines"))
    @given(
        st.lists(pipelines(), min_size=2, max_size=2),
        st.lists(INPUTS, min_size=2, max_size=2),
        st.integers(0, 1),
        st.booleans(),
    )
    def agrees(drawn: list[Pipeline], inputs: list[dict[str, Any]], rank: int, every: bool) -> None:
        memo, kept = Memo(1 << 20, every=every), KeptOperators()
        for pipeline in (*drawn, drawn[0]):
            graph = saying(pipeline.graph(), list(pipeline.nodes)[1::2])
            ranks = dict.fromkeys(list(pipeline.nodes)[::2], rank)
            local = LocalDeployment(graph, placed(graph, ranks), threads=1, kv_bytes=1 << 16, memo=memo, kept=kept)
            for run, values in (("first", inputs[0]), ("second", inputs[0]), ("third", inputs[1])):
                found, error = told(local, run, values)
                wanted, failed = answers(graph, ranks, values)
                assert getattr(error, "code", None) == getattr(failed, "code", None)
                if error is None:
                    assert found.keys() == wanted.keys()
                    assert all(same(found[name], wanted[name]) for name in found)
            if "second" not in local.failed:
                known = {name for name, node in graph.nodes.items() if every or node.kept or reads_nothing(graph, name)}
                said = {one.node for one in local.times["second"]} & known
                assert {one.node for one in local.times["second"] if one.kept == one.calls} == said
                assert {one.node for one in local.times["second"] if one.kept} == said

    agrees()


def reads_nothing(graph: Graph, name: str) -> bool:
    fed = any(edge.to.startswith(f"{name}.") for edge in graph.walks["w"].edges)
    return not (fed or any(str(value).startswith("=") for value in graph.nodes[name].params.values()))


def saying(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with these nodes kept, where they are deterministic."""
    nodes = {
        name: node.model_copy(update={"kept": "shared"})
        if name in names and catalogue()[node.component].deterministic
        else node
        for name, node in graph.nodes.items()
    }
    made = graph.model_copy(update={"nodes": nodes})
    assert not check(made, catalogue()).errors
    return made


LINES = {
    "greeting": "Hello {value}",
    "question": "How are you, {value}?",
    "shout": "{value}!",
    "both": "{a} {b}",
    "dice": "",
    "told": "{value: scalar}",
}


def letter(greeting: str = LINES["greeting"]) -> Graph:
    """A name goes into `greeting` and `question`; `shout` reads the first of them, `both` that one and the second;
    `told` reads a random number."""
    nodes = {
        name: {"component": "text.template", "params": {"template": template}}
        for name, template in (LINES | {"greeting": greeting}).items()
    }
    nodes["dice"] = {"component": "numbers.random", "params": {"distribution": "integer", "low": 1, "high": 6}}
    edges = [
        ["@in.name", "greeting.value"],
        ["@in.name", "question.value"],
        ["greeting.text", "shout.value"],
        ["shout.text", "both.a"],
        ["question.text", "both.b"],
        ["dice.value", "told.value"],
        ["both.text", "@out.letter"],
        ["told.text", "@out.number"],
    ]
    walk = {"inputs": {"name": "text"}, "body": [*nodes], "edges": edges}
    task = {
        "inputs": {"name": {"modality": "text"}},
        "outputs": ["letter", "number"],
        "steps": [{"walk": "w", "with": {"name": "@task.name"}}],
    }
    document = {"format": "walkgraph/graph@1", "name": "g", "nodes": nodes, "walks": {"w": walk}, "tasks": {"t": task}}
    return codec.load(document)


def test_a_changed_parameter_or_input_runs_what_depends_on_it_and_nothing_else() -> None:
    memo, operators = Memo(1 << 20), KeptOperators()

    def called(graph: Graph, name: str, seed: int = 0) -> set[str]:
        local = LocalDeployment(graph, placed(graph, {}), threads=1, memo=memo, kept=operators)
        local.submit("r", "t", {"seed": seed}, {"name": [name]})
        local.run()
        assert local.outputs["r"]["letter"][0].endswith(f"How are you, {name}?")
        return {one.node for one in local.times["r"] if one.calls != one.kept}

    whole = {"greeting", "question", "shout", "both", "dice", "told"}
    assert called(letter(), "Ada") == whole
    assert called(letter(), "Ada") == {"dice"}, "random, but its number is the same"
    assert called(letter(), "Ada", seed=3) == {"dice", "told"}
    assert called(letter("Dear {value}"), "Ada") == {"greeting", "shout", "both", "dice"}
    assert called(letter("Hel{value: text}"), "lo") == whole - {"told"}
    assert called(letter(), "Ada") == {"dice"}, "as at first"
    assert called(letter("Hello {value} "), "Ada") == {"greeting", "shout", "both", "dice"}
    assert called(letter("{value}"), "Hello Ada") == {"greeting", "question", "both", "dice"}, "`shout` reads the same"


def test_every_small_component_is_drawn() -> None:
    """Those with a twin; the rest have states, weights or random numbers, or are served by the service."""
    families = ("json", "numbers", "control")
    small = {one.name for one in catalogue().values() if one.name.partition(".")[0] in families and not one.served}
    assert small - {rule.component for rule in RULES} == {"numbers.random"}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_seed_gives_the_same_numbers_wherever_a_node_runs(rank: int) -> None:
    nodes = {
        "dice": {"component": "numbers.random", "params": {"distribution": "integer", "low": 1, "high": 1000000}},
        "text": {"component": "text.template", "params": {"template": "{a: scalar} {b: scalar}"}},
    }
    loop = {"loop": "draws", "times": "3", "body": ["dice", {"use": "dice", "as": "again"}, "text"]}
    edges = [["dice.value", "text.a"], ["again.value", "text.b"], {"from": "text.text", "to": "@out.o", "each": True}]
    steps = [{"walk": "w"}, {"walk": "w", "as": "second"}]
    document = {"nodes": nodes, "walks": {"w": {"body": [loop], "edges": edges}}, "tasks": {"t": {"steps": steps}}}
    document["tasks"]["t"]["outputs"] = ["o"]
    graph = codec.load({"format": "walkgraph/graph@1", "name": "g", **document})
    told = []
    for seed in (0, 0, 1):
        local = LocalDeployment(graph, placed(graph, {"dice": rank}), threads=1)
        local.submit("r", "t", {"seed": seed})
        local.run()
        told.append(local.outputs["r"]["o"])
    assert told[0] == told[1]
    assert told[0][0] == "31306 908053"  # on any machine
    assert len({word for text in told[0] + told[2] for word in text.split()}) == 24
