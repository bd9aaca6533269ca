"""Loops of steps: passes one after the other, on one rank and across ranks, each with the values of the one before."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cluster import Cluster
from tests.support.random_walks import PARAMS
from tests.unit.worker.test_choices import RANKS, graph_of, plan_of, task_of, walk_of
from walkgraph.abi.calls import Call
from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.document import Graph
from walkgraph.placement.capacity.facts import Facts
from walkgraph.placement.expansion.legs import Legs
from walkgraph.placement.itinerary import expanded_request, legs_of
from walkgraph.placement.request import fill_params, name_inputs
from walkgraph.simulation.reference.random_walks import CATALOGUE, RESIDENT, mix, plain
from walkgraph.simulation.reference.reference_walk import Function
from walkgraph.simulation.scenarios import task_scenario
from walkgraph.wire import messages as m

Answer = Mapping[str, Any]
WALKS = {
    "draw": walk_of("draw", "a"),
    "look": walk_of("look", "a"),
    "show": walk_of("show", "a", "b", out=True),
    "other": walk_of("other", "a"),
    "end": walk_of("end", "a", out=True),
}


def run(graph: Graph, ranks: int, answers: Mapping[str, Sequence[Answer]], *, seed: int = 0, **params: Any) -> Cluster:
    """Run the task `t`. `answers`: node -> what its calls give besides `out`, in turn; the last one stays."""
    plan = plan_of(graph, ranks)
    counts: dict[str, int] = {}

    def serve(call: Call) -> dict[str, Any]:
        count = counts[call.node] = counts.get(call.node, 0) + 1
        found = answers.get(call.node, [{}])
        return {"out": f"{call.node}{count}", **found[min(count, len(found)) - 1]}

    cluster = Cluster(plan, {node.name: serve for node in plan.nodes}, seed)
    task, facts = graph.tasks["t"], Facts(plan)
    filled = fill_params(task, {"seed": 1, **params})
    inputs = name_inputs(task, {}, ())
    found = expanded_request(facts, task, filled, inputs, None)
    first, legs = legs_of(facts, task, filled, inputs, found)
    cluster.start("r", first, {**PARAMS, **filled}, {}, legs)
    cluster.run()
    assert not cluster.failures
    waiting = {rank: core.standing("r") for rank, core in cluster.cores.items()}
    assert cluster.done("r") == set(first.ranks), waiting
    return cluster


def ends_of(legs: Legs | None) -> dict[str, tuple[int, str]]:
    """Loop -> (passes, why it ended)."""
    return {name: (one.passes, one.reason) for name, one in legs.ended.items()} if legs is not None else {}


def inputs_of(cluster: Cluster, node: str) -> list[dict[str, Any]]:
    return [dict(call.inputs) for call in cluster.calls if call.node == node]


def loop_of(steps: list[Any], times: str = "3", **more: Any) -> dict[str, Any]:
    return {"loop": steps, "times": times, **more}


def graph_with(steps: list[Any], params: Mapping[str, Any] | None = None, out: str = "end") -> Graph:
    nodes = " ".join(WALKS)
    return graph_of(nodes, WALKS, tasks={"t": {**task_of(steps, out), "params": params or {}}})


DRAW = {"walk": "draw", "with": {"a": "look.out"}}
LOOK = {"walk": "look", "with": {"a": "draw.out"}}
END = {"walk": "end", "with": {"a": "look.out"}}


@RANKS
def test_a_pass_takes_the_results_of_the_one_before(ranks: int) -> None:
    graph = graph_with([loop_of([DRAW, LOOK], start={"look.out": "a cat"}), END])
    for seed in range(5):
        cluster = run(graph, ranks, {}, seed=seed)
        assert inputs_of(cluster, "draw") == [{"a": "a cat"}, {"a": "look1"}, {"a": "look2"}]
        assert inputs_of(cluster, "look") == [{"a": "draw1"}, {"a": "draw2"}, {"a": "draw3"}]
        assert inputs_of(cluster, "end") == [{"a": "look3"}]


@RANKS
@pytest.mark.parametrize("ended", [1, 2, 3, 4])
def test_a_flag_ends_the_loop(ranks: int, ended: int) -> None:
    """The pass in which it is true is the last; what follows takes that pass's results."""
    graph = graph_with([loop_of([DRAW, LOOK], "4", until="look.stop", start={"look.out": "x"}), END])
    cluster = run(graph, ranks, {"look": [{"stop": False}] * (ended - 1) + [{"stop": True}]})
    assert len(inputs_of(cluster, "draw")) == ended
    assert inputs_of(cluster, "end") == [{"a": f"look{ended}"}]


@RANKS
def test_without_a_start_the_first_pass_has_what_was_there_before_the_loop(ranks: int) -> None:
    before = {"walk": "other", "as": "look"}
    cluster = run(graph_with([before, loop_of([DRAW, LOOK]), END]), ranks, {})
    assert inputs_of(cluster, "draw") == [{"a": "other1"}, {"a": "look1"}, {"a": "look2"}]


@RANKS
def test_a_start_counts_even_where_the_step_ran_before(ranks: int) -> None:
    again = {"walk": "look", "with": {"a": "none"}}
    show = {"walk": "show", "with": {"a": "look.out"}}
    cluster = run(graph_with([again, show, loop_of([DRAW, LOOK], "2", start={"look.out": "x"}), END]), ranks, {})
    assert inputs_of(cluster, "draw") == [{"a": "x"}, {"a": "look2"}]


@RANKS
def test_loops_nest_and_start_anew(ranks: int) -> None:
    inner = loop_of([DRAW, LOOK], "2", start={"look.out": "@loop.index"})
    outer = loop_of([inner, {"walk": "show", "with": {"a": "look.out", "b": "@loop.index"}}])
    cluster = run(graph_with([outer]), ranks, {})
    assert inputs_of(cluster, "draw") == [{"a": 0}, {"a": "look1"}, {"a": 1}, {"a": "look3"}, {"a": 2}, {"a": "look5"}]
    assert inputs_of(cluster, "show") == [{"a": f"look{2 * i + 2}", "b": i} for i in range(3)]


@RANKS
def test_outputs_know_their_passes(ranks: int) -> None:
    inner = loop_of([{"walk": "show", "with": {"a": "@loop.index"}}], "2")
    cluster = run(graph_with([loop_of([inner], "3"), END]), ranks, {})
    assert sorted(cluster.passes["r", "end"]) == [(), *((i, j) for i in range(3) for j in range(2))]


@RANKS
def test_an_inner_loop_ends_anew_in_each_pass(ranks: int) -> None:
    inner = loop_of([{"walk": "look"}], "5", until="look.stop")
    graph = graph_with([loop_of([inner, {"walk": "show", "with": {"a": "look.out"}}], "2"), END])
    stops = [{"stop": False}, {"stop": True}, {"stop": False}, {"stop": False}, {"stop": True}]
    cluster = run(graph, ranks, {"look": stops})
    assert inputs_of(cluster, "show") == [{"a": "look2"}, {"a": "look5"}]


@RANKS
def test_conditions_read_the_pass(ranks: int) -> None:
    first = {"first": [{"walk": "other", "as": "made", "when": "@loop.index == 0"}, {"walk": "draw", "as": "made"}]}
    graph = graph_with([loop_of([first, {"walk": "show", "with": {"a": "made.out", "b": "@loop.index"}}])])
    cluster = run(graph, ranks, {})
    assert inputs_of(cluster, "show") == [{"a": "other1", "b": 0}, {"a": "draw1", "b": 1}, {"a": "draw2", "b": 2}]


@RANKS
def test_each_pass_takes_its_own_branch(ranks: int) -> None:
    choice = {
        "choose": "look.out",
        "cases": {"d": [{"walk": "draw", "as": "made"}]},
        "otherwise": [{"walk": "other", "as": "made"}],
    }
    graph = graph_with([loop_of([{"walk": "look"}, choice, {"walk": "show", "with": {"a": "made.out"}}])])
    cluster = run(graph, ranks, {"look": [{"out": "d"}, {"out": "?"}, {"out": "d"}]})
    assert inputs_of(cluster, "show") == [{"a": "draw1"}, {"a": "other1"}, {"a": "draw2"}]


@RANKS
def test_a_branch_may_end_the_loop(ranks: int) -> None:
    choice = {
        "choose": "look.out",
        "cases": {"d": [{"walk": "draw", "as": "made"}]},
        "otherwise": [{"walk": "other", "as": "made"}],
    }
    graph = graph_with([loop_of([{"walk": "look"}, choice], "5", until="made.stop"), END])
    answers = {"look": [{"out": "d"}, {"out": "?"}], "draw": [{"stop": False}], "other": [{"stop": True}]}
    assert inputs_of(run(graph, ranks, answers), "end") == [{"a": "?"}]


@RANKS
@pytest.mark.parametrize(("value", "times"), [("d", 2), ("?", 0), (None, 0)])
def test_a_branch_may_hold_a_loop(ranks: int, value: str | None, times: int) -> None:
    choice = {"choose": "look.out", "cases": {"d": [loop_of([{"walk": "draw"}], "2")]}}
    cluster = run(
        graph_with([{"walk": "look"}, choice, {"walk": "end", "with": {"a": "draw.out"}}]),
        ranks,
        {"look": [{"out": value}]},
    )
    assert len(inputs_of(cluster, "draw")) == times
    assert inputs_of(cluster, "end") == [{"a": f"draw{times}"} if times else {}]


@RANKS
def test_outputs_of_passes_come_in_order(ranks: int) -> None:
    walks = {**WALKS, "draw": walk_of("draw", "a", out=True), "look": walk_of("look", "a", out=True)}
    task = task_of([loop_of([DRAW, LOOK], start={"look.out": "x"})])
    graph = graph_of(" ".join(WALKS), walks, tasks={"t": task})
    for seed in range(10):
        found = run(graph, ranks, {}, seed=seed).outputs["r", "end"]
        assert [value for _, value in found] == ["draw1", "look1", "draw2", "look2", "draw3", "look3"]


@RANKS
def test_values_of_old_passes_are_forgotten(ranks: int) -> None:
    """A rank keeps what later passes may take, and nothing else."""
    graph = graph_with([loop_of([DRAW, LOOK], "50", start={"look.out": "x"}), END])
    seen: list[int] = []
    plan = plan_of(graph, ranks)
    task, facts = graph.tasks["t"], Facts(plan)
    filled = fill_params(task, {"seed": 1})
    first, legs = legs_of(facts, task, filled, (), expanded_request(facts, task, filled, (), None))

    def serve(call: Call) -> dict[str, Any]:
        for core in cluster.cores.values():
            local = core._runs.get("r")  # pyright: ignore[reportPrivateUsage]
            seen.append(len(local.steps.results.values) if local else 0)
        return {"out": call.node}

    cluster = Cluster(plan, {node.name: serve for node in plan.nodes})
    cluster.start("r", first, {**PARAMS, **filled}, {}, legs)
    cluster.run()
    assert cluster.done("r") == set(first.ranks)
    assert max(seen) <= 10  # two results of each step: in the pass before, in this one, and of `end`


def test_steps_that_no_pass_needs_are_left_out() -> None:
    """A step that one pass needs of the one before is needed in all."""
    other = {"walk": "other", "with": {"a": "draw.out"}}
    cluster = run(graph_with([loop_of([DRAW, other, LOOK], start={"look.out": "x"}), END]), 1, {})
    assert [call.node for call in cluster.calls] == ["draw", "look"] * 3 + ["end"]


def test_a_loop_that_nothing_needs_is_left_out() -> None:
    cluster = run(graph_with([loop_of([{"walk": "draw"}]), {"walk": "end"}]), 2, {})
    assert [call.node for call in cluster.calls] == ["end"]
    assert not [one for one in cluster.reports if isinstance(one, m.LegDone)]


@RANKS
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_loops_agree_with_plain_python(ranks: int, data: st.DataObject) -> None:
    """Two nested loops with flags, against the same as Python loops."""
    outer, inner = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    flags = data.draw(st.lists(st.booleans(), min_size=12, max_size=12))
    steps = [
        loop_of(
            [
                loop_of([DRAW, LOOK], str(inner), until="look.stop", start={"look.out": "@task.word"}),
                {"walk": "show", "with": {"a": "look.out", "b": "draw.out"}},
            ],
            str(outer),
            until="show.stop",
        ),
        END,
    ]
    graph = graph_with(steps, {"word": {"type": "string", "default": "w"}})
    answers = {node: [{"stop": flag} for flag in flags] for node in ("look", "show")}
    cluster = run(graph, ranks, answers, seed=data.draw(st.integers(0, 99)))
    wanted: list[tuple[str, dict[str, Any]]] = []
    drawn = 0
    look = ""
    for shown in range(outer):
        look = "w"
        for _ in range(inner):
            drawn += 1
            wanted += [("draw", {"a": look}), ("look", {"a": f"draw{drawn}"})]
            look = f"look{drawn}"
            if flags[drawn - 1]:
                break
        wanted.append(("show", {"a": look, "b": f"draw{drawn}"}))
        if flags[shown]:
            break
    wanted.append(("end", {"a": look}))
    for node in ("draw", "look", "show", "end"):
        assert inputs_of(cluster, node) == [inputs for one, inputs in wanted if one == node]


@pytest.mark.parametrize("components", [CATALOGUE, RESIDENT], ids=["stepped", "resident"])
def test_random_tasks_agree_with_plain_python(components: Catalogue) -> None:
    """Branches, loops and names in any mix, on one to three ranks."""
    passes, reasons = 0, set[str]()
    for seed in range(30):
        scenario = task_scenario(seed, components)
        for request in scenario.requests:
            task, facts = scenario.graph.tasks["t"], Facts(scenario.plan)
            filled = fill_params(task, {"seed": 1, **request.params})
            inputs = name_inputs(task, {"x": [request.inputs["x"]]}, ())
            found = expanded_request(facts, task, filled, inputs, None)
            first, legs = legs_of(facts, task, filled, inputs, found)
            mixed = {node: mix(node) for node in scenario.graph.nodes}
            cluster = Cluster(scenario.plan, {node: _served(mixed[node]) for node in mixed}, seed)
            cluster.start("r", first, filled, {one.name: one.value for one in inputs}, legs)
            cluster.run()
            assert cluster.done("r") == set(first.ranks), (seed, request.params)
            outputs = {name: [plain(value) for _, value in cluster.outputs["r", name]] for name in task.outputs}
            assert outputs == request.outputs, (seed, request.params)
            ended = ends_of(legs)
            assert ended == request.ends, (seed, request.params)
            reasons |= {reason for _, reason in ended.values()}
            passes += sum(isinstance(report, m.LegDone) for report in cluster.reports)
    assert passes > 100
    assert reasons == {"stop", "bound", "odd"}


def _served(function: Function) -> Callable[[Call], dict[str, Any]]:
    return lambda call: dict(function(dict(call.inputs), call.iteration))
