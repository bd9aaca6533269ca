"""Loops inside a resident one, unrolled when a run enters: the same calls, outputs and results as stepped ones."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cluster import Cluster, Function
from tests.support.loop_calls import body_of
from tests.support.nested_walks import nested
from tests.support.random_walks import PARAMS, RESIDENT
from tests.support.synthetic import one_walk
from tests.unit.placement.test_regions import FORKED, around, planned
from tests.unit.worker.test_resident import INPUTS, agree, both, small, told
from tests.unit.worker.test_telling import loop_run
from walkgraph.abi.calls import Call, StateKey
from walkgraph.engine.loops.loop_runs import LoopDone
from walkgraph.engine.loops.spec import Anew, LoopCall
from walkgraph.graph.catalogue import Catalogue, StateUse
from walkgraph.graph.document import Graph
from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan
from walkgraph.worker.core import Core
from walkgraph.worker.events import RunLoop
from walkgraph.worker.loops.lowering import MOST
from walkgraph.worker.observe.call_aggregates import calls_of
from walkgraph.worker.observe.launch_groups import LaunchGroup
from walkgraph.worker.observe.observing import held_values

QUICK = settings(max_examples=60)


@QUICK
@given(nested(), st.integers(0, 99))
def test_unrolled_loops_do_what_stepped_ones_do(graph: Graph, seed: int) -> None:
    fast = agree(graph, [0] * len(graph.nodes), seed)
    loops = {loop.name: loop for loop in fast.plan.walks[0].loops}
    assert loops["r"].resident, loops["r"].why
    roots = {loop.name for loop in loops.values() if loop.resident and loop.within < 0}
    assert {call.loop for call in fast.loops} <= roots < loops.keys()


# ── runs whose parameters leave nothing to unroll, or too much ──────────────────────────────────


@QUICK
@given(nested(("1", "n - 2", "n")), st.integers(0, 99))
def test_loops_inside_may_have_no_iterations(graph: Graph, seed: int) -> None:
    """Such a run has them by themselves."""
    agree(graph, [0] * len(graph.nodes), seed)


def entered(times: str, **params: int) -> list[str]:
    """Names of the loops that a device runs, of `outer` with `inner` in it."""
    inner = {"loop": "inner", "times": times, "body": ["v"]}
    plan = planned({"body": [{"loop": "outer", "times": "2", "body": ["u", inner]}], "edges": [["v.out", "@out.o"]]})
    cluster = Cluster(plan, dict.fromkeys("uvw", lambda call: {"out": call.iteration}))
    cluster.start("r", one_walk(plan, "w"), params, INPUTS)
    cluster.run()
    return [*(call.loop for call in cluster.loops), *(failure.message for failure in cluster.failures)]


@pytest.mark.parametrize(("count", "loops"), [(MOST - 1, ["outer"]), (MOST, ["inner"] * 2), (1, ["outer"]), (0, [])])
def test_a_body_of_too_many_uses_runs_as_its_inner_loops(count: int, loops: list[str]) -> None:
    assert entered("n", n=count) == loops


def test_a_count_without_a_value_fails_where_the_loop_is_come_to() -> None:
    (message,) = entered("n // m", n=1, m=0)
    assert "an expression has no value" in message


# ── what can't be known before ──────────────────────────────────────────────────────────────────

INNER: dict[str, Any] = {"loop": "inner", "times": "2", "body": ["v"]}
NODES: dict[str, Any] = {"u": {"component": "test.mix"}, "v": {"component": "test.mix"}}


IN_TURN = [["@in.x", "u.c"], ["v.out", "u.c"], ["u.out", "v.c"]]


def nest(edges: list[Any], nodes: dict[str, Any] | None = None, *, required: bool = False) -> Any:
    """Each call waits for all earlier ones, so that a stepped run fails at the same place."""
    walk = {"body": [{"loop": "l", "times": "3", "body": ["u", INNER]}], "edges": [*IN_TURN, *edges]}
    return small(required, nodes=NODES | (nodes or {}), walk=walk)


OUT = {"from": "u.out", "to": "@out.o", "each": True}


def failing(plans: tuple[Plan, Plan], serve: Function) -> Cluster:
    """Resident, after a stepped run, which does what it can of the iteration that fails."""
    fast, slow = (Cluster(plan, dict.fromkeys("uv", serve)) for plan in plans)
    for cluster, plan in zip((fast, slow), plans, strict=True):
        cluster.start("r", one_walk(plan, "w"), PARAMS, INPUTS)
        cluster.run()
    assert fast.failures == slow.failures
    done = fast.loops[0].times
    whole = [told(call) for call in slow.calls if call.iteration[0] < done]
    assert [told(call) for call in fast.calls] == whole
    assert [at for at, _ in fast.emitted["r", "o"]] == [(i,) for i in range(done)]
    return fast


def test_a_parameter_may_have_no_value_in_an_iteration_inside() -> None:
    nodes = {"v": {"component": "test.mix", "params": {"time": "=1 / (3 - @loop.inner - @loop.l)"}}}
    fast = failing(nest([OUT], nodes), lambda call: {"out": call.params["time"]})
    assert fast.loops[0].times == 2
    assert [use.varying for use in fast.loops[0].uses] == [{}, {"time": (1 / 3, 1 / 2)}, {"time": (1 / 2, 1.0)}]
    assert len(fast.failures) == 1


def test_a_port_without_a_value_is_named_with_its_iteration_inside() -> None:
    edges = [OUT, ["@in.x", "u.a"], {"from": "@in.xs", "to": "v.a", "each": True}]
    fast = failing(nest(edges, required=True), lambda call: {"out": call.iteration})
    assert [(e.port, e.iteration) for e in fast.failures] == [("a", (2, 0))]
    plans = nest([OUT, ["@in.x", "u.a"], ["v.out", "v.a"]], required=True)
    found: list[Any] = []
    for plan in plans:
        cluster = Cluster(plan, dict.fromkeys("uv", lambda call: {"out": 1}))
        cluster.start("r", one_walk(plan, "w"), PARAMS, INPUTS)
        cluster.run()
        assert not cluster.loops
        found.append([(e.port, e.iteration) for e in cluster.failures])
    assert found == [[("a", (0, 0))]] * 2


def test_parameters_inside_read_both_indices() -> None:
    nodes = {"v": {"component": "test.mix", "params": {"time": "=@loop.index + 10 * n", "word": "=@loop.inner"}}}
    fast, _ = both(nest([OUT], nodes), lambda call: {"out": call.params["seed"]})
    assert [(use.inner, use.params.get("time"), use.params.get("word")) for use in body_of(fast.loops[0])] == [
        ((), 0.0, ""),
        ((0,), 20, 0),
        ((1,), 21, 1),
    ]


# ── states that begin anew ──────────────────────────────────────────────────────────────────────

KEPT = StateUse(slot="s", kind="tensor", optional=True)
KEEPING: Catalogue = {"test.mix": replace(RESIDENT["test.mix"], states=(KEPT,))}


def keeping(cluster: Cluster) -> Any:
    """Nodes that append to their state, and give what it then holds."""

    def serve(call: Call) -> dict[str, Any]:
        if "s" not in call.states:
            return {"out": call.inputs}
        key = Rank(0), call.states["s"]
        had = cluster.states.get(key, "empty")
        cluster.states[key] = (had, f"{call.node}{call.inputs.get('a', '')}")
        return {"out": cluster.states[key]}

    return serve


def run_keeping(walk: dict[str, Any], rest: dict[str, Any], *, resident: bool, seed: int = 0) -> Cluster:
    plan = planned(walk, components=KEEPING, resident=resident, **rest)
    functions: dict[str, Any] = {}
    cluster = Cluster(plan, functions, seed)
    functions |= dict.fromkeys("uvw", keeping(cluster))
    cluster.start("r", one_walk(plan, "w"), PARAMS, INPUTS)
    cluster.run()
    assert not cluster.failures
    assert cluster.done("r") == {0, 1}
    return cluster


FORK = {"fork": "main", "into": "copy"}
DEEP = {"loop": "inner", "times": "2", "body": ["v"]}
COLLECTED = [["@loop.index", "v.a"], {"from": "v.out", "to": "@out.o", "collect": True}, ["w.out", "@out.p"]]


@pytest.mark.parametrize("after", [{"use": "u", "as": "after"}, {"use": "v", "as": "after"}])
@pytest.mark.parametrize("seed", range(3))
def test_a_fork_in_the_loop_is_made_once_and_every_iteration_begins_with_the_copy(after: Any, seed: int) -> None:
    walk = {"body": ["w", around("u", FORK, DEEP), after], "edges": COLLECTED}
    fast, slow = (run_keeping(walk, FORKED, resident=flag, seed=seed) for flag in (True, False))
    (loop,) = fast.loops
    assert loop.anew == {StateKey("r", "copy"): Anew(StateKey("r", "main"), 2)}
    assert [use.node for use in loop.spec.uses] == ["u", "v", "v"]
    alike(fast, slow)
    (_, values), *_ = fast.emitted["r", "o"]
    first = (("empty", "w"), "v0")
    assert values == [first, (first, "v1")] * 5


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_is_made_again_where_a_loop_around_changes_its_source(seed: int) -> None:
    walk = {"body": [{"loop": "around", "times": "3", "body": ["w", around("u", FORK, DEEP)]}], "edges": COLLECTED}
    fast, slow = (run_keeping(walk, FORKED, resident=flag, seed=seed) for flag in (True, False))
    assert [(call.loop, call.iteration) for call in fast.loops] == [("l", (i,)) for i in range(3)]
    alike(fast, slow)
    (_, values), *_ = fast.emitted["r", "o"]
    assert values[-1] == ((((("empty", "w"), "w"), "w"), "v0"), "v1")


def alike(fast: Cluster, slow: Cluster) -> None:
    assert fast.emitted == slow.emitted
    assert fast.states == slow.states
    assert sorted(map(told, fast.calls)) == sorted(map(told, slow.calls))


def test_a_state_of_an_iteration_is_empty_in_each_and_goes_with_the_loop() -> None:
    rest = {"v": {"states": {"s": "s"}}, "states": {"s": {"kind": "tensor", "scope": "iteration", "width": "n + 1"}}}
    loop = around("u", DEEP, {"use": "v", "as": "v2"})
    outs = [*COLLECTED[:2], {"from": "v2.out", "to": "@out.p", "collect": True}]
    walk = {"body": [{"loop": "around", "times": "2", "body": [loop, "w"]}], "edges": outs}
    fast, slow = (run_keeping(walk, rest, resident=flag) for flag in (True, False))
    assert [(call.loop, call.iteration) for call in fast.loops] == [("l", (0,)), ("l", (1,))]
    keys = [StateKey("r", "s", (0, i)) for i in range(2)]
    assert [call.anew for call in fast.loops] == [{key: Anew(None, 3)} for key in keys]
    assert fast.emitted == slow.emitted
    (_, values), *_ = fast.emitted["r", "p"]
    assert values == [((("empty", "v0"), "v1"), "v")] * 10
    assert fast.dropped == keys


# ── what is made ready before there is a run, and what is told ──────────────────────────────────


def called(call: LoopCall) -> list[Any]:
    shapes = [[replace(i, value=None) for i in use.inputs] for use in body_of(call)]
    return [
        (use.node, use.name, use.inner, inputs, sorted(use.states))
        for use, inputs in zip(body_of(call), shapes, strict=True)
    ]


def task(n: int) -> dict[str, Any]:
    params = {"n": {"type": "integer", "default": n}}
    return {"outputs": ["o"], "params": params, "steps": [{"walk": "w", "with": {"x": 1}}]}


def test_templates_have_the_sizes_of_the_tasks() -> None:
    inner = {"loop": "inner", "times": "n", "body": ["v"]}
    edges = [["@in.x", "u.a"], {"from": "u.many", "to": "v.a", "each": True}, ["v.out", "v.b"], *COLLECTED[1:2]]
    body = ["w", around("u", FORK, inner, times="n + 3")]
    tasks = {"one": task(2), "same": task(2), "other": task(4), "large": task(MOST)}
    plan = planned({"body": body, "edges": edges}, components=KEEPING, tasks=tasks, **FORKED)
    templates = list(Core(plan, Rank(0)).loops())
    assert [len(call.uses) for call in templates] == [3, 5]
    assert [call.spec.usual for call in templates] == [(5, 7, MOST + 3)] * 2
    assert [anew.width for call in templates for anew in call.anew.values()] == [2, 4]
    cluster = Cluster(plan, {})
    cluster.start("r", one_walk(plan, "w"), {"n": 4}, INPUTS)
    functions = cluster._functions
    assert isinstance(functions, dict)
    functions |= dict.fromkeys("uvw", lambda call: {"out": 1, "many": [1] * 9})
    cluster.run()
    (call,) = cluster.loops
    assert called(call) == called(templates[1])
    assert (call.spec.usual, call.spec.outputs) == (templates[1].spec.usual, templates[1].spec.outputs)


@pytest.mark.parametrize("when", ["@loop.inner < 1", "@loop.inner > 8", "@loop.l != @loop.inner", "@loop.l > 3"])
def test_what_is_collected_over_all_loops_leaves_out_what_is_not_called(when: str) -> None:
    """The engine gives nothing of an instance that no iteration calls."""
    body = ["u", INNER | {"body": [{"use": "v", "when": when}]}]
    edges = [{"from": "v.out", "to": "@out.o", "collect": True}, ["u.out", "@out.p"]]
    emitted: list[Any] = []
    for flag in (True, False):
        plan = planned({"body": [around(*body)], "edges": edges}, resident=flag)
        cluster = Cluster(plan, {name: lambda call: {"out": call.iteration} for name in "uv"})
        cluster.start("r", one_walk(plan, "w"), PARAMS, INPUTS)
        cluster.run()
        assert not cluster.failures
        assert [call.loop for call in cluster.loops] == ["l"] * flag
        emitted.append(cluster.emitted)
    assert emitted[0] == emitted[1]


def test_a_wide_state_that_holds_nothing_yet_is_told_with_its_width() -> None:
    kept = StateUse(slot="s", kind="paged_kv", optional=True)
    catalogue = {"test.mix": replace(RESIDENT["test.mix"], states=(kept,))}
    rest: dict[str, Any] = {
        "v": {"states": {"s": "s"}},
        "states": {"s": {"kind": "paged_kv", "width": "n", "capacity": "n"}},
    }
    plan = planned({"body": [around("u", "v")], "edges": []}, components=catalogue, tasks={"one": task(4)}, **rest)
    (template,) = Core(plan, Rank(0)).loops()
    assert (template.anew, list(template.widths.values())) == ({}, [4])
    assert run_of(plan).widths == {StateKey("r", "s"): PARAMS["n"]}


def test_templates_leave_out_what_indices_inside_leave_out() -> None:
    body = ["u", INNER | {"times": "n", "body": ["v", {"use": "w", "when": "@loop.index > 0 and @loop.inner < 2"}]}]
    edges = [["v.out", "w.a"], ["w.out", "v.b"], {"from": "w.out", "to": "last.a", "collect": True}]
    walk = {"body": [around(*body, {"use": "u", "as": "last"})], "edges": edges}
    plan = planned(walk, tasks={"one": task(PARAMS["n"])})
    (template,) = Core(plan, Rank(0)).loops()
    call = run_of(plan)
    assert called(template) == called(call)
    assert [use.active is None for use in template.uses] == [use.active is None for use in body_of(call)]
    assert not all(use.active is None for use in call.uses)


def run_of(plan: Any) -> LoopCall:
    cluster = Cluster(plan, dict.fromkeys("uvw", lambda call: {"out": 1}))
    cluster.start("r", one_walk(plan, "w"), PARAMS, INPUTS)
    cluster.run()
    (call,) = cluster.loops
    return call


def test_uses_inside_are_told_under_their_name_and_summed() -> None:
    body = ["u", INNER | {"times": "3", "body": ["v", {"use": "w", "when": "@loop.l > 0 and @loop.inner > 0"}]}]
    call = run_of(planned({"body": [around(*body)]}))
    assert [use.name for use in call.spec.uses] == ["u", *["v", "w"] * 3]
    done = LoopDone(call, {}, None, 4, stopped=False, busy=0.0, queued=0.0, batch=1)
    assert [(use.name, count) for use, count in calls_of(done)] == [("u", 4), ("v", 12), ("w", 6)]
    uses = LaunchGroup("w", "l", [loop_run(call).member]).uses(tuple(range(len(call.uses))))
    assert (uses.names, uses.nodes) == (("u", "v", "w"),) * 2


def test_what_a_held_loop_was_given_is_told_once_for_all_iterations_inside() -> None:
    edges = [["@in.x", "v.a"], ["@in.x", "u.a"], ["v.out", "v.b"]]
    plan = planned({"body": [around("u", INNER)], "edges": edges})
    call = run_of(plan)
    told_of = list(held_values(plan, one_walk(plan, "w").steps, RunLoop(call)))
    assert [(one.source, one.value) for one in told_of] == [("u.a", 5), ("v.a", 5)]
