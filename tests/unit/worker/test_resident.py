"""Device loops do the same as stepped ones: equal calls, outputs, results and failures, with far fewer events."""

import gc
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.support.cluster import Cluster
from tests.support.random_walks import PARAMS, REASONS, RESIDENT, followed, graphs, mix, plain
from tests.support.synthetic import functions, lanes, one_walk
from walkgraph.abi.calls import Call
from walkgraph.components import catalogue
from walkgraph.engine.loops.spec import Items
from walkgraph.graph import codec
from walkgraph.graph.catalogue import Param
from walkgraph.graph.document import Graph, Item
from walkgraph.ids import Rank, RunId
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan
from walkgraph.simulation.reference.reference_walk import loop_ends, run_walk
from walkgraph.wire import messages as m
from walkgraph.worker.core import Core
from walkgraph.worker.events import Arrived, CallDone, Ref, RunCall, RunLoop, Send, Started
from walkgraph.worker.walk.run_streams import Outgoing

INPUTS = {"x": 5, "xs": [7, 8]}
QUICK = settings(max_examples=80)


def placed(graph: Graph, ranks: list[int], *, resident: bool) -> Plan:
    groups = tuple(Group(nodes=(node,), ranks=(rank,)) for node, rank in zip(graph.nodes, ranks, strict=False))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(3))
    placement = Placement(name="random", groups=(Group(nodes=("*",), ranks=(0,)), *groups), ranks=devices)
    return assemble(Assignment(graph, placement), RESIDENT, resident=resident)


def walked(graph: Graph, ranks: list[int], seed: int, *, resident: bool) -> Cluster:
    plan = placed(graph, ranks, resident=resident)
    cluster = Cluster(plan, {name: served(name) for name in graph.nodes}, seed)
    itinerary = one_walk(plan, "w")
    cluster.start("r", itinerary, PARAMS, INPUTS)
    cluster.run()
    assert not cluster.failures
    assert cluster.done("r") == set(itinerary.ranks)
    return cluster


def served(name: str) -> Any:
    function = mix(name)
    return lambda call: dict(function(call.inputs, call.iteration))


def told(call: Call) -> str:
    inputs = sorted((port, plain(value)) for port, value in call.inputs.items())
    return repr((call.node, call.iteration, inputs, dict(call.params), call.states, call.seed))


def calm(items: Sequence[Item]) -> tuple[Item, ...]:
    """Without conditions: most of these make a loop stepped."""
    return tuple(_calm(item) for item in items)


def _calm(item: Item) -> Item:
    change: dict[str, Any] = {"when": None}
    for name in ("body", "parallel", "sequence"):
        if hasattr(item, name):
            change[name] = calm(getattr(item, name))
    return item.model_copy(update=change)


def ends(cluster: Cluster) -> dict[str, tuple[int, str]]:
    """Loop -> iterations and why it ended, for loops that one rank ends."""
    told = [one for report in cluster.reports if isinstance(report, m.RankDone) for one in report.loops]
    names = [one.loop for one in told]
    return {one.loop: (one.iterations, one.reason) for one in told if names.count(one.loop) == 1}


def results(cluster: Cluster) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for core in cluster.cores.values():
        for run in core._runs.values():  # type: ignore[attr-defined]
            found |= {name: plain(value) for name, value in run.steps.results.values.items()}
    return found


@QUICK
@given(graphs(), st.booleans(), st.just([]) | st.lists(st.integers(0, 2), min_size=12, max_size=12), st.integers(0, 99))
def test_resident_loops_do_what_stepped_ones_do(graph: Graph, calmed: bool, ranks: list[int], seed: int) -> None:
    if calmed:
        walk = graph.walks["w"]
        graph = graph.model_copy(update={"walks": {"w": walk.model_copy(update={"body": calm(walk.body)})}})
    agree(graph, ranks, seed)


def test_why_a_loop_ended_is_told() -> None:
    """The names stop at other times, some for a reason of their own; the last one never within its two passes."""
    found: set[tuple[int, str]] = set()
    for name in (f"b{i}" for i in range(12)):
        for times in ("2", "12"):
            loop = {"loop": "l", "times": times, "until": f"{name}.stop", "body": [name]}
            edges = [["@in.x", f"{name}.a"], [f"{name}.out", f"{name}.a"]]
            walk = {"inputs": {"x": "scalar"}, "body": [loop], "edges": edges}
            nodes = {name: {"component": "test.mix"}}
            graph = codec.load({"format": "walkgraph/graph@1", "name": "g", "nodes": nodes, "walks": {"w": walk}})
            fast = agree(graph, [], 0)
            assert fast.plan.walks[0].loops[0].resident
            found.add(ends(fast)["l"])
    assert {reason for _, reason in found} == {"stop", "odd", "bound"}
    assert {times for times, reason in found if reason == "bound"} == {2}


@pytest.mark.parametrize("ending", [f"b{i}" for i in range(6)])
def test_a_loop_drops_only_values_of_its_own_uses(ending: str) -> None:
    """The loop inside runs on the device, and stands in the outer one as a single use. The names stop at times."""
    stepped = {"choose": "@in.x", "cases": {"5": ["c"]}}
    body = [{"loop": "inner", "times": "2", "body": ["a"]}, ending, stepped]
    outer = {"loop": "outer", "times": "3", "until": f"{ending}.stop", "drop_last": True, "body": body}
    edges = [[f"{ending}.out", f"{ending}.a"], {"from": "a.out", "to": "@out.all", "collect": True}]
    walk = {"inputs": {"x": "scalar"}, "body": [outer], "edges": edges}
    nodes = {name: {"component": "test.mix"} for name in ("a", ending, "c")}
    agree(codec.load({"format": "walkgraph/graph@1", "name": "g", "nodes": nodes, "walks": {"w": walk}}), [], 0)


@QUICK
@given(followed(), st.lists(st.integers(0, 2), min_size=4, max_size=4), st.integers(0, 99))
def test_what_follows_a_core_does_what_it_does_when_stepped(graph: Graph, others: list[int], seed: int) -> None:
    """The core on one rank, the others where it suits."""
    free = iter(others)
    fast = agree(graph, [0 if name[0] == "c" else next(free) for name in graph.nodes], seed)
    loop = next(loop for loop in fast.plan.walks[0].loops if loop.name == "l")
    assert loop.resident, loop.why


def agree(graph: Graph, ranks: list[int], seed: int) -> Cluster:
    """Resident, stepped and by the book; the first of these."""
    book = graph.walks["w"], {name: mix(name) for name in graph.nodes}, PARAMS, INPUTS
    (expected, _), ended = run_walk(*book), loop_ends(*book, REASONS)
    fast, slow = (walked(graph, ranks, seed, resident=resident) for resident in (True, False))
    emitted = {n: sorted((at, plain(v)) for at, v in values) for (_, n), values in fast.emitted.items()}
    assert emitted == {name: sorted(values) for name, values in expected.items() if values}
    assert sorted(map(told, fast.calls)) == sorted(map(told, slow.calls))
    assert results(fast) == results(slow)
    shared = {loop.name for loop in fast.plan.walks[0].loops if loop.until_else} - ends(slow).keys()
    assert ends(fast) == ends(slow) == {name: end for name, end in ended.items() if name not in shared}
    assert not slow.loops
    return fast


# ── the synthetic graphs: streams, states, failures ─────────────────────────────────────────────

ROOT = Path(__file__).parents[3]
STEPS = {name: replace(c, resident=True, host=False) for name, c in catalogue().items() if name.startswith("synthetic")}
STEPS["synthetic.chunk_sum"] = replace(STEPS["synthetic.chunk_sum"], itemwise=("items",))


def drawn(name: str, **changes: Any) -> Graph:
    document = json.loads((ROOT / "graphs" / f"{name}.json").read_text())
    for path, value in changes.items():
        *keys, last = path.split("__")
        inner: Any = document
        for key in keys:
            inner = inner[int(key) if key.isdigit() else key]
        inner[last] = value
    return codec.load(json.dumps(document).encode())


def plan_of(graph: Graph, *, resident: bool = True) -> Plan:
    placement = Placement(
        name="one", groups=(Group(nodes=("*",), ranks=(0,)),), ranks=(RankDevice(rank=0, device="cpu"),)
    )
    return assemble(Assignment(graph, placement), STEPS, resident=resident)


STREAM = {"items": 40, "stop_at": 2**31 - 1, "work": 0, "side": 1}


def streamed(name: str, seed: int, params: dict[str, Any], *, resident: bool, chunked: bool = True) -> Cluster:
    graph = drawn("synthetic_streams")
    plan = plan_of(graph, resident=resident)
    cluster = Cluster(plan, functions(graph), seed)
    cluster.start("r", lanes(plan, [("produce", False), (name, chunked)]), params, {})
    cluster.run()
    assert cluster.done("r") == {0}, cluster.cores[plan.ranks[0].rank].standing("r")
    return cluster


@pytest.mark.parametrize("name", ["batches", "windows", "contexts"])
@pytest.mark.parametrize("stop_at", [0, 1, 17, 2**31 - 1])
@pytest.mark.parametrize("seed", range(3))
def test_streams_get_the_same_items_under_credit(name: str, stop_at: int, seed: int) -> None:
    fast, slow = (streamed(name, seed, STREAM | {"stop_at": stop_at}, resident=flag) for flag in (True, False))
    assert [loop.loop for loop in fast.loops] == ["items"]
    assert fast.loops[0].allowed is not None
    assert fast.emitted == slow.emitted
    produced = [[call for call in one.calls if call.node == "item"] for one in (fast, slow)]
    assert [told(call) for call in produced[0]] == [told(call) for call in produced[1]]


@pytest.mark.parametrize("stop_at", [0, 1, 17, 2**31 - 1])
@pytest.mark.parametrize("seed", range(3))
def test_a_loop_that_reads_a_stream_reads_what_a_stepped_one_does(stop_at: int, seed: int) -> None:
    """Item by item, and nothing once the stream has ended."""
    params = STREAM | {"stop_at": stop_at, "extra": 4}
    fast, slow = (streamed("padded", seed, params, resident=flag, chunked=False) for flag in (True, False))
    assert {loop.loop for loop in fast.loops} == {"items", "padded"}
    assert not slow.loops
    assert fast.emitted == slow.emitted
    read = [[told(call) for call in one.calls if call.node == "padded_sum"] for one in (fast, slow)]
    assert read[0] == read[1]
    assert len(read[0]) == 44


def test_a_whole_stream_comes_when_it_suits() -> None:
    fast, slow = (streamed("whole", 0, STREAM, resident=flag, chunked=False) for flag in (True, False))
    assert (fast.loops[0].grain, fast.loops[0].allowed) == (0, None)
    assert fast.emitted == slow.emitted


def test_items_of_one_chunk_travel_in_one_message() -> None:
    graph = drawn("synthetic_streams")
    core = Core(plan_of(graph), Rank(0))
    itinerary = lanes(core.plan, [("produce", False), ("batches", True)])
    commands = core.handle(Started(RunId("r"), itinerary, STREAM | {"seed": 0}, {}))
    call = next(command.call for command in commands if isinstance(command, RunLoop))
    (key,) = (out.key for out in call.spec.outputs)
    commands = core.handle(Items(call, 0, 3, {key: [*torch.arange(3.0).view(3, 1)]}))
    (sums,) = (command.call for command in commands if isinstance(command, RunCall))
    assert torch.equal(sums.inputs["items"], torch.tensor([0.0, 1.0, 2.0]))
    assert sums.chunks["items"].valid == 3


def test_items_for_another_rank_are_one_message_and_single_ones_are_as_ever() -> None:
    graph = drawn("synthetic_streams")
    groups = (Group(nodes=("*",), ranks=(0,)), Group(nodes=("batch_sum",), ranks=(1,)))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(2))
    plan = assemble(Assignment(graph, Placement(name="two", groups=groups, ranks=devices)), STEPS)
    cores = [Core(plan, Rank(rank)) for rank in range(2)]
    itinerary = lanes(plan, [("produce", False), ("batches", True)])
    start = Started(RunId("r"), itinerary, STREAM | {"seed": 0}, {})
    call = next(command.call for command in cores[0].handle(start) if isinstance(command, RunLoop))
    assert (call.grain, call.offset) == (3, 0)
    cores[1].handle(start)
    (key,) = (out.key for out in call.spec.outputs)
    values = torch.arange(4.0).view(4, 1)
    many, one = (
        [
            c
            for c in cores[0].handle(Items(call, first, stop - first, {key: [*values[first:stop]]}))
            if isinstance(c, Send)
        ]
        for first, stop in ((0, 3), (3, 4))
    )
    assert [(c.message.index, c.message.count, tuple(c.value.shape)) for c in many] == [(0, 3, (3, 1))]
    assert [(c.message.index, c.message.count, tuple(c.value.shape)) for c in one] == [(3, 1, (1,))]
    run = next(c for c in cores[1].handle(Arrived(many[0].message, many[0].value)) if isinstance(c, RunCall))
    assert torch.equal(run.call.inputs["items"], torch.tensor([0.0, 1.0, 2.0]))


def test_the_phase_of_chunks_counts_what_was_sent_before() -> None:
    stream = next(s for s in plan_of(drawn("synthetic_streams")).streams if s.name == "windows")
    outgoing = Outgoing(stream, [0])
    assert outgoing.pace == (2, 0)
    outgoing.take_numbers(0, 3)
    assert outgoing.pace == (2, 1)
    odd = Outgoing(structs.replace(stream, settings={**stream.settings, "first": 1}), [0])
    assert odd.pace == (2, 1)


@pytest.mark.parametrize("passes", [2, 5])
def test_states_of_an_outer_loop_are_shared_by_the_iterations_inside(passes: int) -> None:
    params = {"times": 20, "limit": 5, "passes": passes}
    fast, slow = (loops_run("climb", params, {"start": 0}, resident=flag) for flag in (True, False))
    assert {loop.loop for loop in fast.loops} == {"passes"}
    assert fast.emitted == slow.emitted
    assert sorted(map(told, fast.calls)) == sorted(map(told, slow.calls))
    assert fast.dropped == slow.dropped


def loops_run(walk: str, params: dict[str, Any], inputs: dict[str, Any], *, resident: bool) -> Cluster:
    graph = drawn("synthetic_loops")
    plan = plan_of(graph, resident=resident)
    cluster = Cluster(plan, functions(graph))
    cluster.start("r", one_walk(plan, walk), params, inputs)
    cluster.run()
    assert cluster.done("r") == {0}
    return cluster


@pytest.mark.parametrize("at", [0, 3, 99])
def test_a_failing_iteration_fails_the_run_after_what_came_before_it(at: int) -> None:
    graph = drawn("synthetic_faults")
    ran: list[Cluster] = []
    for resident in (True, False):
        plan = plan_of(graph, resident=resident)
        cluster = Cluster(plan, functions(graph))
        cluster.start("r", one_walk(plan, "fail"), {"times": 6, "at": at, "work": 0, "side": 1}, {})
        cluster.run()
        ran.append(cluster)
    fast, slow = ran
    assert [e.message for e in fast.failures] == [e.message for e in slow.failures] == ["told to fail"][: at < 6]
    assert fast.emitted == slow.emitted
    assert fast.loops[0].grain == 1


# ── what can't be known before: sequences that run out, expressions without a value ─────────────


def small(required: bool = False, **document: Any) -> tuple[Plan, Plan]:
    """One node in one loop, resident and stepped."""
    component = RESIDENT["test.mix"]
    ports = tuple(replace(port, optional=not (required and port.name == "a")) for port in component.inputs)
    params = {"time": Param(type="number", default=0.0), "word": Param(type="string", default="")}
    made = {"test.mix": replace(component, inputs=ports, params=params)}
    walk = {"inputs": {"x": "scalar", "xs": "tensor"}, **document.pop("walk")}
    graph = codec.load(
        json.dumps({"format": "walkgraph/graph@1", "name": "small", "walks": {"w": walk}, **document}).encode()
    )
    placement = Placement(
        name="one", groups=(Group(nodes=("*",), ranks=(0,)),), ranks=(RankDevice(rank=0, device="cpu"),)
    )
    one, other = (assemble(Assignment(graph, placement), made, resident=flag) for flag in (True, False))
    return one, other


def both(plans: tuple[Plan, Plan], serve: Any, params: dict[str, Any] | None = None) -> tuple[Cluster, Cluster]:
    ran: list[Cluster] = []
    for plan in plans:
        cluster = Cluster(plan, {node.name: serve for node in plan.nodes})
        cluster.start("r", one_walk(plan, "w"), PARAMS | (params or {}), INPUTS)
        cluster.run()
        ran.append(cluster)
    fast, slow = ran
    assert fast.loops
    assert fast.failures == slow.failures
    kept = 1 if slow.failures else 0  # a stepped run finds out before it sends the last good iteration's value
    assert fast.emitted["r", "o"][: -kept or None] == slow.emitted["r", "o"]
    assert list(map(told, fast.calls)) == list(map(told, slow.calls))
    return fast, slow


LOOP = {"loop": "l", "times": "5", "body": ["u"]}
OUT = {"from": "u.out", "to": "@out.o", "each": True}


def test_a_sequence_that_runs_out_fails_where_the_port_needs_a_value() -> None:
    edges = [{"from": "@in.xs", "to": "u.a", "each": True}, OUT]
    plans = small(required=True, nodes={"u": {"component": "test.mix"}}, walk={"body": [LOOP], "edges": edges})
    fast, _ = both(plans, lambda call: {"out": call.inputs["a"]})
    assert [(e.port, e.iteration) for e in fast.failures] == [("a", (2,))]
    assert [value for _, value in fast.emitted["r", "o"]] == [7, 8]


@pytest.mark.parametrize("stop", [1, 2])
def test_a_loop_that_ends_in_time_needs_no_further_slices(stop: int) -> None:
    edges = [{"from": "@in.xs", "to": "u.a", "each": True}, OUT]
    loop = LOOP | {"until": "u.stop"}
    plans = small(required=True, nodes={"u": {"component": "test.mix"}}, walk={"body": [loop], "edges": edges})
    fast, _ = both(plans, lambda call: {"out": call.inputs["a"], "stop": call.iteration[-1] == stop})
    assert len(fast.failures) == (stop == 2)


def test_a_required_port_without_a_value_fails_before_the_engine_is_asked() -> None:
    edges = [["u.out", "u.a"], OUT]
    plans = small(required=True, nodes={"u": {"component": "test.mix"}}, walk={"body": [LOOP], "edges": edges})
    found: list[Any] = []
    for plan in plans:
        cluster = Cluster(plan, {})
        cluster.start("r", one_walk(plan, "w"), PARAMS, INPUTS)
        cluster.run()
        assert not cluster.loops
        found.append(cluster.failures)
    assert found[0] == found[1] != []


@pytest.mark.parametrize("stop", [1, 3, 9])
def test_parameters_may_change_with_the_iteration_and_may_have_no_value(stop: int) -> None:
    nodes = {"u": {"component": "test.mix", "params": {"time": "=1 / (3 - @loop.index)", "word": "=word"}}}
    plans = small(nodes=nodes, walk={"body": [LOOP | {"until": "u.stop"}], "edges": [OUT]})
    fast, _ = both(plans, lambda c: {"out": c.params["time"], "stop": c.iteration[-1] == stop}, {"word": "w"})
    assert fast.loops[0].times == 3
    assert fast.loops[0].uses[0].varying == {"time": (1 / 3, 1 / 2, 1.0)}
    assert len(fast.failures) == (stop > 1)


# ── what it costs ───────────────────────────────────────────────────────────────────────────────


def test_the_way_through_a_loop_costs_the_same_however_long_it_is() -> None:
    def calls_of(times: int) -> int:
        nodes = {"u": {"component": "test.mix"}}
        edges = [["@in.x", "u.a"], ["u.out", "u.a"], ["u.out", "@out.o"]]
        plan, _ = small(nodes=nodes, walk={"body": [LOOP | {"times": str(times)}], "edges": edges})
        core, counted = Core(plan, Rank(0)), 0

        def count(frame: Any, event: str, argument: object) -> None:
            nonlocal counted
            counted += event == "call"

        started = Started(RunId("r"), one_walk(plan, "w"), PARAMS | {"seed": 0}, INPUTS)
        gc.disable()  # hypothesis counts collections in a function of its own
        sys.setprofile(count)
        try:
            (loop,) = core.handle(started)
            assert isinstance(loop, RunLoop)
            assert loop.call.times == times
            core.handle(CallDone(Ref("r", 0, 0, ()), {loop.call.spec.outputs[0].key: 1}, iterations=times))
        finally:
            sys.setprofile(None)
            gc.enable()
        assert core.runs == ("r",)
        return counted

    assert calls_of(1000) == calls_of(10) < 300
