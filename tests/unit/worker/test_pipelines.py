"""Random pipelines of small components give what plain Python gives, on one rank and on two."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.local import LocalDeployment
from tests.support.palette_twins import alike
from tests.support.random_pipelines import RULES, Pipeline, random_pipeline
from tests.support.random_walks import HypothesisDraw
from walkgraph.components import catalogue
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
    given = {"text": [inputs["text"]], "other": [inputs["other"]], "texts": inputs["texts"]}
    local.submit("r", "t", {"n": inputs["n"], "flag": inputs["flag"]}, given)
    local.run()
    return {name: values for name, values in local.outputs["r"].items() if values}, local.failed.get("r")


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


def test_every_small_component_is_drawn() -> None:
    """Those with a twin; the rest have states, weights or random numbers."""
    small = {name for name in catalogue() if name.partition(".")[0] in ("json", "numbers", "control")}
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
