"""The core on the synthetic graphs: numbers that can be checked in the head, whatever the order of messages."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.cluster import Cluster
from tests.support.synthetic import functions, lanes, one_walk
from walkgraph.abi.calls import Call
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.ids import RunId
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice, decode
from walkgraph.placement.tables import Plan
from walkgraph.wire import messages as m
from walkgraph.worker.core import Core
from walkgraph.worker.events import Arrived, Cancelled, Release, Started

ROOT = Path(__file__).parents[3]


def graph(name: str) -> Graph:
    return codec.load((ROOT / "graphs" / f"{name}.json").read_bytes())


def plan_of(name: str | Graph, ranks: int) -> tuple[Graph, Plan]:
    found = graph(name) if isinstance(name, str) else name
    if ranks == 2:
        placement = decode(json.loads((ROOT / "placements" / f"{name}_two_ranks.json").read_text()))
    else:
        placement = Placement(
            format="walkgraph/placement@1",
            name="one",
            groups=(Group(nodes=("*",), ranks=(0,)),),
            ranks=(RankDevice(rank=0, device="cpu"),),
        )
    return found, assemble(Assignment(found, placement), catalogue())


def walk(name: str, ranks: int, seed: int, walk: str, params: dict[str, Any], inputs: dict[str, Any]) -> Cluster:
    found, plan = plan_of(name, ranks)
    cluster = Cluster(plan, functions(found), seed)
    itinerary = one_walk(plan, walk)
    cluster.start("r", itinerary, params, inputs)
    cluster.run()
    assert cluster.done("r") == set(itinerary.ranks), {r: c.standing("r") for r, c in cluster.cores.items()}
    return cluster


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_nested_loops(ranks: int, seed: int) -> None:
    cluster = walk("synthetic_loops", ranks, seed, "nested", {"rows": 3, "columns": 2}, {"start": 10})
    assert cluster.emitted["r", "row"] == [((0,), 21), ((1,), 65), ((2,), 155)]
    assert cluster.emitted["r", "last"] == [((), 78)]
    assert cluster.modalities == {"row": "scalar", "last": "scalar"}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_until_drops_the_last_and_inner_states_start_anew(ranks: int, seed: int) -> None:
    cluster = walk("synthetic_loops", ranks, seed, "climb", {"times": 20, "limit": 5, "passes": 3}, {"start": 0})
    assert [value for _, value in cluster.emitted["r", "value"]] == [1, 2, 3, 4]
    # Each climb passes twice (the first pass counts too), so the last token is 1 + 2.
    assert cluster.emitted["r", "passes"] == [((), 3)]
    counted = {call.states["count"] for call in cluster.calls if call.node == "pass_counter"}
    assert len(counted) == 5
    assert counted == set(cluster.dropped) & counted


@pytest.mark.parametrize("rows", [0, 1])
def test_empty_loops_leave_nothing(rows: int) -> None:
    cluster = walk("synthetic_loops", 2, 0, "nested", {"rows": rows, "columns": 1}, {"start": 1})
    assert len(cluster.emitted["r", "row"]) == rows
    assert len(cluster.emitted["r", "last"]) == rows


CONSUMERS = {
    "batches": [3, 12, 21, 19],
    "windows": [6, 14, 22, 30, 34],
    "contexts": [0, 6, 20, 35, 27],
}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", CONSUMERS)
@pytest.mark.parametrize("seed", range(3))
def test_streams_deliver_each_chunk_once(ranks: int, name: str, seed: int) -> None:
    found, plan = plan_of("synthetic_streams", ranks)
    cluster = Cluster(plan, functions(found), seed)
    itinerary = lanes(plan, [("produce", False), (name, True)])
    cluster.start("r", itinerary, {"items": 11, "stop_at": 2**31 - 1, "work": 0, "side": 1}, {})
    cluster.run()
    assert cluster.done("r") == set(itinerary.ranks), {r: c.standing("r") for r, c in cluster.cores.items()}
    assert [value for _, value in cluster.emitted["r", name]] == CONSUMERS[name]


def two_readers(when: str | None = None) -> tuple[Graph, Plan]:
    """`batches` is read by two uses; the second one perhaps skips."""
    document = json.loads((ROOT / "graphs" / "synthetic_streams.json").read_text())
    document["nodes"]["other_sum"] = {"component": "synthetic.chunk_sum"}
    walk = document["walks"]["batches"]
    walk["body"].append({"use": "other_sum", **({"when": when} if when else {})})
    walk["edges"] += [["@stream.batches", "other_sum.items"], ["other_sum.sum", "@out.other"]]
    return plan_of(codec.load(json.dumps(document).encode()), 1)


@pytest.mark.parametrize("seed", range(12))
def test_uses_that_read_one_stream_at_their_own_pace_get_the_same_chunks(seed: int) -> None:
    found, plan = two_readers()
    cluster = Cluster(plan, functions(found), seed)
    itinerary = lanes(plan, [("produce", False), ("batches", True)])
    cluster.start("r", itinerary, {"items": 40, "stop_at": 2**31 - 1, "work": 0, "side": 1}, {})
    cluster.run()
    assert cluster.done("r") == set(itinerary.ranks)
    one, other = ([value for _, value in cluster.emitted["r", name]] for name in ("batches", "other"))
    assert one == other == [9.0 * i + 3 for i in range(13)] + [39.0]


@pytest.mark.parametrize("when", ["items > 1000", "@loop.index > 2"])
def test_a_reader_that_skips_lets_the_stream_go_on(when: str) -> None:
    found, plan = two_readers(when)
    cluster = Cluster(plan, functions(found))
    itinerary = lanes(plan, [("produce", False), ("batches", True)])
    cluster.start("r", itinerary, {"items": 40, "stop_at": 2**31 - 1, "work": 0, "side": 1}, {})
    cluster.run()
    assert cluster.done("r") == set(itinerary.ranks)
    assert [value for _, value in cluster.emitted["r", "batches"]] == [9.0 * i + 3 for i in range(13)] + [39.0]


@pytest.mark.parametrize("stop_at", [0, 1, 5, 99])
@pytest.mark.parametrize("ranks", [1, 2])
def test_whole_stream_however_it_ends(ranks: int, stop_at: int) -> None:
    found, plan = plan_of("synthetic_streams", ranks)
    cluster = Cluster(plan, functions(found), stop_at)
    cluster.start(
        "r",
        lanes(plan, [("produce", False), ("whole", False)]),
        {"items": 11, "stop_at": stop_at, "work": 0, "side": 1},
        {},
    )
    cluster.run()
    assert [value for _, value in cluster.emitted["r", "whole"]] == [sum(range(min(stop_at, 11)))]


@pytest.mark.parametrize("seed", range(12))
def test_a_closing_chunk_without_items_calls_nothing_that_needs_them(seed: int) -> None:
    found, plan = plan_of("synthetic_streams", 2)
    nodes = tuple(replace(node, required=("items",)) if node.name == "batch_sum" else node for node in plan.nodes)
    plan = replace(plan, nodes=nodes)
    cluster = Cluster(plan, functions(found), seed)
    params = {"items": 9, "stop_at": 2**31 - 1, "work": 0, "side": 1}
    cluster.start("r", lanes(plan, [("produce", False), ("batches", True)]), params, {})
    cluster.run()
    assert cluster.failures == []
    assert [value for _, value in cluster.emitted["r", "batches"]] == [3, 12, 21]


def test_a_producer_waits_for_credit() -> None:
    found, plan = plan_of("synthetic_streams", 1)
    cluster = Cluster(plan, functions(found))
    itinerary = lanes(plan, [("produce", False), ("windows", True)])
    del cluster._functions["window_sum"]  # type: ignore[attr-defined]
    cluster.start("r", itinerary, {"items": 500, "stop_at": 2**31 - 1, "work": 0, "side": 1}, {})
    with pytest.raises(KeyError):
        cluster.run()
    cluster._functions["window_sum"] = lambda call: {}  # type: ignore[index]
    produced = [c for c in cluster.calls if c.node == "item"]
    assert len(produced) < 20


def test_failure_ends_the_run_once_and_others_go_on() -> None:
    found, plan = plan_of("synthetic_faults", 2)
    cluster = Cluster(plan, functions(found))
    for run, at in (("bad", 3), ("good", -1)):
        cluster.start(run, one_walk(plan, "fail"), {"times": 6, "at": at, "work": 0, "side": 1}, {})
    cluster.run()
    assert [error.message for error in cluster.failures] == ["told to fail"]
    assert len(cluster.emitted["good", "value"]) == 6
    assert cluster.done("good") == {0, 1}


def test_cancel_is_idempotent_and_late_messages_are_dropped() -> None:
    _, plan = plan_of("synthetic_loops", 2)
    core = Core(plan, plan.ranks[0].rank)
    itinerary = one_walk(plan, "nested")
    late = Arrived(m.Deliver(run=RunId("r"), step=0, edge=0, key=(), value=m.Absent()), 1)
    params = {"rows": 3, "columns": 2, "seed": 0}
    assert core.handle(Started(RunId("r"), itinerary, params, {"start": 1}))
    assert core.handle(Cancelled(RunId("r"))) == [Release(RunId("r"))]
    assert core.handle(Cancelled(RunId("r"))) == [Release(RunId("r"))]
    assert core.handle(late) == []
    assert core.handle(Started(RunId("r"), itinerary, params, {"start": 1})) == []
    assert core.runs == ()


def test_messages_may_come_before_the_start() -> None:
    found, plan = plan_of("synthetic_loops", 2)
    for seed in range(6):
        cluster = Cluster(plan, functions(found), seed)
        itinerary = one_walk(plan, "nested")
        event = Started(RunId("r"), itinerary, {"rows": 2, "columns": 2, "seed": 0}, {"start": 1})
        cluster._perform(plan.ranks[0].rank, cluster.cores[plan.ranks[0].rank].handle(event))  # type: ignore[attr-defined]
        cluster.run()
        cluster._perform(plan.ranks[1].rank, cluster.cores[plan.ranks[1].rank].handle(event))  # type: ignore[attr-defined]
        cluster.run()
        assert cluster.done("r") == {0, 1}


def sizes(value: Any, seen: set[int]) -> int:
    """Entries of all containers inside."""
    if id(value) in seen or isinstance(value, str | bytes | type):
        return 0
    seen.add(id(value))
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        inner = list(value)
    elif type(value).__module__.startswith("walkgraph.worker"):
        names = [n for kind in type(value).__mro__ for n in getattr(kind, "__slots__", ())] or list(vars(value))
        inner = [getattr(value, name) for name in names]
    return len(inner) + sum(sizes(one, seen) for one in inner)


@pytest.mark.parametrize(("ranks", "many"), [(1, 5_000), (2, 1_000)])
def test_what_is_kept_does_not_grow_with_iterations(ranks: int, many: int) -> None:
    found, plan = plan_of("synthetic_loops", ranks)
    kept: list[int] = []
    for times in (200, many):
        cores: list[Core] = []

        def measured(call: Call, cores: list[Core] = cores, end: int = times - 2) -> dict[str, Any]:
            if call.iteration == (end,):
                kept.append(sum(sizes(core, set()) for core in cores))
            return {"sum": call.inputs["a"] + call.inputs["b"]}

        cluster = Cluster(plan, {**functions(found), "grow": measured})
        cores.extend(cluster.cores.values())
        params = {"times": times, "limit": 10**9, "passes": 2}
        cluster.start("r", one_walk(plan, "climb"), params, {"start": 0})
        cluster.run()
        assert cluster.done("r")
    few, more = kept
    assert more <= 1.5 * few
