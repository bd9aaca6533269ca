"""Chains of small nodes that are one call: which there are, and that they give what their nodes give one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.local import LocalDeployment, node_calls
from tests.support.random_pipelines import Pipeline, random_pipeline
from tests.support.random_walks import HypothesisDraw
from tests.unit.worker.test_pipelines import INPUTS, placed, same, told
from walkgraph.abi.calls import Call
from walkgraph.components import catalogue
from walkgraph.engine.engine import Forwarded
from walkgraph.graph import codec
from walkgraph.graph.catalogue import is_task
from walkgraph.graph.check import check
from walkgraph.graph.document import Graph
from walkgraph.ids import Rank
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.resources import bundled
from walkgraph.wire.watching import Break, Tap, Watch
from walkgraph.worker.events import Watched
from walkgraph.worker.tables.chains import MOST, chains
from walkgraph.worker.tables.rank_tables import fused_tables, walk_tables
from walkgraph.worker.tables.use_ends import UseEnds

ADD = {"component": "numbers.arithmetic", "params": {"number": 1}}
Document = dict[str, Any]


def drawn(length: int = 4, change: Callable[[Document], None] = lambda walk: None, **nodes: Any) -> Graph:
    """Numbers that are added to: `n0` to the last one, in a row."""
    names = [f"n{i}" for i in range(length)]
    ends = ["@in.value", *(f"{name}.result" for name in names)]
    edges = [[end, f"{name}.a"] for end, name in zip(ends, names, strict=False)]
    walk = {"inputs": {"value": "scalar"}, "body": [*names], "edges": [*edges, [ends[-1], "@out.value"]]}
    change(walk)
    document = {
        "format": "walkgraph/graph@1",
        "name": "g",
        "nodes": dict.fromkeys(names, ADD) | nodes,
        "walks": {"w": walk},
        "tasks": {
            "t": {
                "inputs": {"value": {"modality": "scalar"}},
                "outputs": ["value"],
                "params": {"more": {"type": "boolean", "default": True}},
                "steps": [{"walk": "w", "with": {"value": "@task.value"}}],
            }
        },
    }
    return codec.load(document)


def found(graph: Graph, *, device: str = "cpu", ranks: dict[str, int] | None = None) -> list[list[str]]:
    groups = tuple(Group(nodes=(node,), ranks=(Rank(rank),)) for node, rank in (ranks or {}).items())
    count = 1 + max((ranks or {"": 0}).values())
    placement = Placement(
        name="p",
        groups=(Group(nodes=("*",), ranks=(Rank(0),)), *groups),
        ranks=tuple(RankDevice(rank=Rank(rank), device=device) for rank in range(count)),
    )
    plan = assemble(Assignment(graph, placement), catalogue())
    walk = plan.walks[0]
    return [
        [walk.uses[use].name for use in chain]
        for r in range(count)
        for chain in chains(plan, walk, UseEnds(plan, walk), Rank(r))
    ]


def edge(source: str, target: str) -> Callable[[Document], None]:
    return lambda walk: walk["edges"].append([source, target])


def when(walk: Document) -> None:
    walk["body"][2:] = [{"use": name, "when": "more"} for name in ("n2", "n3")]


def looped(walk: Document) -> None:
    """The last two in a loop that feeds itself."""
    walk["body"][2:] = [{"loop": "l", "times": "3", "body": ["n2", "n3"]}]
    walk["edges"].append(["n3.result", "n2.a"])


def carried(walk: Document) -> None:
    """A value of the iteration before enters in the middle."""
    walk["body"] = [{"loop": "l", "times": "3", "body": walk["body"]}]
    walk["edges"].append(["n3.result", "n2.b"])


ALL = ["n0", "n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("graph", "wanted"),
    [
        (drawn(), [ALL]),
        (drawn(1), []),
        (drawn(4, edge("@in.value", "n2.b")), [ALL]),
        (drawn(4, edge("n1.result", "@out.more")), [["n0", "n1"], ["n2", "n3"]]),
        (drawn(4, edge("n0.result", "n2.b")), [["n2", "n3"]]),
        (drawn(4, when), [["n0", "n1"]]),
        (drawn(4, looped), [["n0", "n1"], ["n2", "n3"]]),
        (drawn(4, carried), [["n0", "n1"], ["n2", "n3"]]),
        (drawn(4, n1=ADD | {"kept": "own"}), [["n2", "n3"]]),
    ],
    ids=["all", "one", "input", "output", "two readers", "condition", "loop", "carried", "kept"],
)
def test_chains_are_small_nodes_each_of_which_feeds_the_next_alone(graph: Graph, wanted: list[list[str]]) -> None:
    assert not check(graph, catalogue()).errors
    assert found(graph) == wanted


def test_a_chain_is_on_one_rank_and_on_its_processor() -> None:
    assert found(drawn(), ranks={"n2": 1}) == [["n0", "n1"]]
    assert found(drawn(), ranks={"n2": 1, "n3": 1}) == [["n0", "n1"], ["n2", "n3"]]
    assert found(drawn(), device="cuda:0") == [], "they would run on the device"


@pytest.mark.parametrize("name", sorted(bundled("graphs")))
def test_chains_of_bundled_graphs_hold_nothing_that_keeps_or_waits(name: str) -> None:
    graph = codec.load(bundled("graphs")[name].read_bytes())
    if any(is_task(node.component) for node in graph.nodes.values()):
        pytest.skip("its tasks are other graphs'")
    devices = (RankDevice(rank=Rank(0), device="cpu"),)
    placement = Placement(name="p", groups=(Group(nodes=("*",), ranks=(Rank(0),)),), ranks=devices)
    plan = assemble(Assignment(graph, placement), catalogue())
    plain = walk_tables(plan, Rank(0))
    fused = fused_tables(plan, Rank(0), plain)
    for one, other in zip(plain, fused, strict=True):
        links = [use for table in other.uses.values() for _, use in table.links]
        assert other is one or other.plan != one.plan, "a Walk without chains has one table"
        assert not any(use.plan.states or use.plan.writes or use.plan.when for use in links)
        standing = sum(1 for table in other.uses.values() if table.links)
        assert len(other.uses) == len(one.uses) - len(links) + standing


def test_a_long_chain_is_several_calls() -> None:
    assert [len(chain) for chain in found(drawn(2 * MOST + 3))] == [MOST, MOST, 3]


def deployed(graph: Graph, *, fused: bool = True) -> LocalDeployment:
    return LocalDeployment(graph, placed(graph, {}), threads=1, kv_bytes=1 << 16, fused=fused)


@pytest.mark.parametrize("change", [lambda walk: None, looped, carried])
def test_a_chain_gives_what_its_nodes_give_one_by_one(change: Callable[[Document], None]) -> None:
    graph = drawn(4, change)
    gave: list[Any] = []
    for fused in (True, False):
        local = deployed(graph, fused=fused)
        for run, value in (("a", 1), ("b", 5)):
            local.submit(run, "t", {}, {"value": [value]})
        local.run()
        gave.append((dict(local.outputs), {run: node_calls(times) for run, times in local.times.items()}))
    assert gave[0] == gave[1]
    assert gave[0][0]["a"]["value"]


@st.composite
def deep_pipelines(draw: st.DrawFn) -> Pipeline:
    return random_pipeline(HypothesisDraw(draw), deep=True)


def leaves(pipeline: Pipeline) -> Graph:
    """The pipeline, of which the client gets only what no node reads: otherwise every value leaves."""
    read = {edge["from"] for edge in pipeline.edges if not edge["to"].startswith("@out")}
    document = codec.dump(pipeline.graph())
    [walk] = document["walks"].values()
    ends = [edge if isinstance(edge, list) else [edge["from"], edge["to"]] for edge in walk["edges"]]
    kept = [not (end[1].startswith("@out") and end[0] in read) for end in ends]
    walk["edges"] = [edge for edge, keep in zip(walk["edges"], kept, strict=True) if keep]
    sent = {end[1].partition(".")[2] for end, keep in zip(ends, kept, strict=True) if keep}
    [task] = document["tasks"].values()
    task["outputs"] = [name for name in task["outputs"] if name in sent]
    return codec.load(document)


def test_random_pipelines_give_the_same_with_chains(request: pytest.FixtureRequest) -> None:
    """The naive twin makes every call by itself."""
    lengths: list[int] = []

    @settings(max_examples=request.config.getoption("--pipelines"))
    @given(deep_pipelines(), st.lists(INPUTS, min_size=2, max_size=2), st.integers(0, 1))
    def agrees(pipeline: Pipeline, inputs: list[dict[str, Any]], rank: int) -> None:
        graph = leaves(pipeline)
        ranks = dict.fromkeys(list(pipeline.nodes)[::3], rank)
        one, other = (
            LocalDeployment(graph, placed(graph, ranks), threads=1, kv_bytes=1 << 16, fused=fused)
            for fused in (True, False)
        )
        plan = one.plan
        lengths.extend(
            len(chain) for r in (0, 1) for chain in chains(plan, plan.walks[0], UseEnds(plan, plan.walks[0]), Rank(r))
        )
        for run, values in enumerate(inputs):
            _, failing = pipeline.run(values)
            found, error = told(one, str(run), values)
            wanted, failed = told(other, str(run), values)
            assert getattr(error, "code", None) == getattr(failed, "code", None)
            if error is not None:
                assert error.node in failing
                continue
            assert found.keys() == wanted.keys()
            assert all(same(found[name], wanted[name]) for name in found)
            assert node_calls(one.times[str(run)]) == node_calls(other.times[str(run)])

    agrees()
    assert lengths, "none had a chain"


def dividing(number: float = 0) -> Graph:
    """`n2` divides by the input."""
    divide = {"component": "numbers.arithmetic", "params": {"operation": "divide", "number": number}}
    return drawn(4, edge("@in.value", "n2.b"), n2=divide)


def test_one_run_that_fails_at_a_link_fails_no_other() -> None:
    errors: list[Any] = []
    for fused in (True, False):
        local = deployed(dividing(), fused=fused)
        for run, value in (("good", 2), ("bad", 0), ("other", 4)):
            local.submit(run, "t", {}, {"value": [value]})
        local.run()
        assert {run: dict(given) for run, given in local.outputs.items() if given} == {
            "good": {"value": [3.0]},
            "other": {"value": [2.5]},
        }
        errors.append(local.failed.pop("bad"))
        assert not local.failed
    assert errors[0] == errors[1]
    assert (errors[0].node, errors[0].use, errors[0].port, errors[0].code) == ("n2", "n2", "b", "invalid_input")


def test_a_link_without_a_value_that_it_needs_fails_there() -> None:
    gate = {"component": "control.gate", "params": {"type": "scalar"}}
    compare = {"component": "numbers.compare", "params": {"number": 3}}

    def gated(walk: Document) -> None:
        walk["body"].insert(0, "big")
        walk["edges"][1:2] = [["n0.result", "n1.value"], ["@in.value", "big.a"], ["big.flag", "n1.flag"]]
        walk["edges"] = [["n1.value" if end == "n1.result" else end for end in one] for one in walk["edges"]]

    errors: list[Any] = []
    for fused in (True, False):
        local = deployed(drawn(4, gated, n1=gate, big=compare), fused=fused)
        local.submit("r", "t", {}, {"value": [1]})
        local.run()
        errors.append(local.failed["r"])
    assert [(one.code, one.node, one.use, one.port, one.message) for one in errors[:1]] == [
        (one.code, one.node, one.use, one.port, one.message) for one in errors[1:]
    ]
    assert (errors[0].node, errors[0].port) == ("n2", "a")


def test_each_link_is_a_forward_of_its_own() -> None:
    local = deployed(drawn())
    engine, forwards = local.engines[Rank(0)], list[Forwarded]()
    engine.time_steps(on=True)
    step = engine.step

    def stepped() -> list[Any]:
        made = step()
        forwards.extend(event for event in made if isinstance(event, Forwarded))
        return [event for event in made if not isinstance(event, Forwarded)]

    engine.step = stepped
    for run in ("a", "b"):
        local.submit(run, "t", {}, {"value": [1]})
    local.run()
    assert [[(call.run, call.node, call.name) for call in one.calls] for one in forwards] == [
        [(run, name, name) for run in ("a", "b")] for name in ALL
    ]
    ends = [one.timing.finished for one in forwards]
    assert ends == sorted(ends)
    assert [one.ready[0] for one in forwards[1:]] == ends[:-1]


def calls_of(local: LocalDeployment, **how: Any) -> list[tuple[str, int]]:
    """The calls that the engine gets for a run, each with the number of its links."""
    engine, asked = local.engines[Rank(0)], list[Call]()
    add = engine.add
    engine.add = lambda call: asked.append(call) or add(call)
    local.submit("r", "t", {}, {"value": [1]}, **how)
    local.run()
    assert dict(local.outputs["r"]) == {"value": [5]}
    return [(call.name, len(call.links)) for call in asked]


def test_a_run_that_is_watched_makes_its_calls_one_by_one() -> None:
    plain = [(name, 0) for name in ALL]
    assert calls_of(deployed(drawn())) == [("n3", 4)]
    assert calls_of(deployed(drawn()), stepped=True) == plain
    for watch in (
        Watch(taps=(Tap(id="t", walk="w", source="n1.result", interval=0.0),)),
        Watch(breaks=(Break(id="b", walk="other", use="n1"),)),
    ):
        local = deployed(drawn())
        local.cores[Rank(0)].handle(Watched(watch))
        assert calls_of(local) == plain
        assert len(local.observed) == len(watch.taps)
        local.cores[Rank(0)].handle(Watched(Watch()))
        local.release("r")
        local.submit("again", "t", {}, {"value": [1]})
        local.run()
        assert dict(local.outputs["again"]) == {"value": [5]}
