"""Chunks follow from a stream's values alone: on one rank and on several, in any order of arrival, against a twin."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.cluster import Cluster
from tests.support.synthetic import functions, lanes
from walkgraph.abi.calls import Call
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.ids import Rank
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan
from walkgraph.simulation.reference.naive_chunks import NaiveChunk, naive_chunks
from walkgraph.wire import messages as m

DOCUMENT = (Path(__file__).parents[3] / "graphs" / "synthetic_streams.json").read_text()
APART = (("pace", "limit", "item"), ("window_sum", "padded_sum"), ("chain_sum",))
"""The three partitions."""


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    size = draw(st.integers(1, 5))
    found: dict[str, Any] = draw(
        st.sampled_from(
            [
                {"policy": "fixed", "size": size},
                {"policy": "sliding", "window": size, "stride": draw(st.integers(1, size))},
                {"policy": "left_context", "chunk": size, "context": draw(st.integers(0, 4))},
                {"policy": "whole"},
            ]
        )
    )
    if found["policy"] != "whole" and draw(st.booleans()):
        found["first"] = draw(st.integers(1, size))
    return found


def placed(
    graph: Graph, *parts: Sequence[str], walks: Sequence[tuple[str, str, int]] = (), resident: bool = True
) -> Plan:
    """A rank for each part, the rest on the first; `walks`: node, Walk and the rank that it has there."""
    groups = [Group(nodes=("*",), ranks=(0,))]
    groups += [Group(nodes=tuple(part), ranks=(rank,)) for rank, part in enumerate(parts)]
    groups += [Group(nodes=(node,), ranks=(rank,), walks=(walk,)) for node, walk, rank in walks]
    ranks = tuple(RankDevice(rank=rank, device="cpu") for rank in range(max(len(parts), 2 if walks else 1)))
    placement = Placement(format="walkgraph/placement@1", name="p", groups=tuple(groups), ranks=ranks)
    return assemble(Assignment(graph, placement), catalogue(), resident=resident)


def shown(call: Call) -> NaiveChunk:
    chunk = call.chunks["items"]
    values = tuple(call.inputs.get("items", ()))
    assert len(values) == chunk.valid
    absent = chunk.index < 0 or not (values or chunk.last)
    return NaiveChunk(values, chunk.context, chunk.first, chunk.last, absent)


def served(graph: Graph, seen: dict[str, list[NaiveChunk]]) -> dict[str, Callable[[Call], dict[str, Any]]]:
    """Consumers that note their chunks, and give the count of a chunk's items."""

    def note(call: Call) -> dict[str, Any]:
        chunk = shown(call)
        seen.setdefault(call.node, []).append(chunk)
        return {"sum": float(len(chunk.values))}

    noting = dict.fromkeys(("batch_sum", "window_sum", "padded_sum", "chain_sum"), note)
    return {**functions(graph), **noting}


def run(cluster: Cluster, walks: list[tuple[str, bool]], items: int, **params: int) -> None:
    itinerary = lanes(cluster.plan, walks)
    cluster.start("r", itinerary, {"items": items, "stop_at": 2**31 - 1, "work": 0, "side": 1, **params}, {})
    cluster.run()
    assert cluster.failures == []
    assert cluster.done("r") == set(itinerary.ranks), {r: c.waiting_for("r") for r, c in cluster.cores.items()}


def document(**chunks: dict[str, Any]) -> dict[str, Any]:
    found = json.loads(DOCUMENT)
    for stream in found["streams"]:
        stream["chunks"] = chunks.get(stream["name"], stream["chunks"])
    found["tasks"]["chain"]["steps"]["end"][0]["per"] = "chunk"
    return found


def load(document: dict[str, Any]) -> Graph:
    return codec.load(json.dumps(document).encode())


def of(policy: dict[str, Any], values: Sequence[float], absent: int = 0) -> list[NaiveChunk]:
    numbers = {name: number for name, number in policy.items() if isinstance(number, int)}
    return naive_chunks(policy["policy"], numbers, values, absent)


@pytest.mark.parametrize("ranks", [1, 3])
@given(policies(), policies(), st.integers(0, 12), st.integers(0, 2**16), st.floats(0, 1))
@settings(max_examples=15)
def test_streams_in_a_row_are_those_of_the_twin(
    ranks: int, first: dict[str, Any], second: dict[str, Any], items: int, seed: int, begun: float
) -> None:
    graph = load(document(windows=first, sums=second))
    seen: dict[str, list[NaiveChunk]] = {}
    cluster = Cluster(placed(graph, *APART[:ranks]), served(graph, seen), seed, begun=begun)
    run(cluster, [("produce", False), ("windows", True), ("chain", True)], items)
    chunks = of(first, range(items))
    assert seen["window_sum"] == chunks
    assert seen["chain_sum"] == of(second, [len(chunk.values) for chunk in chunks])


@pytest.mark.parametrize("ranks", [1, 2])
@given(st.integers(1, 4), st.integers(0, 9), st.integers(0, 6), st.integers(0, 2**16))
@settings(max_examples=15)
def test_what_continues_after_done_is_that_of_the_twin(
    ranks: int, size: int, items: int, extra: int, seed: int
) -> None:
    policy = {"policy": "fixed", "size": size, "continue_after_done": True}
    graph = load(document(padded=policy))
    seen: dict[str, list[NaiveChunk]] = {}
    cluster = Cluster(placed(graph, *APART[:ranks]), served(graph, seen), seed)
    run(cluster, [("produce", False), ("padded", False)], items, extra=extra)
    numbers = {"size": size}
    assert seen.get("padded_sum", []) == naive_chunks("fixed", numbers, range(items), absent=99)[: items + extra]


# ── several steps into one stream ──


def two_steps() -> Graph:
    """Two Walks give numbers to one stream: `before` 100, 101 ..., then `produce` 0, 1 ..."""
    found = document()
    found["walks"]["before"] = found["walks"]["produce"]
    stream = next(one for one in found["streams"] if one["name"] == "batches")
    stream["walks"] = ["before", "produce"]
    return load(found)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("apart", [False, True])
def test_a_stream_has_the_items_of_its_steps_in_the_order_of_the_steps(apart: bool, seed: int) -> None:
    """Also where each step gives them from another rank."""
    graph = two_steps()
    seen: dict[str, list[NaiveChunk]] = {}
    elsewhere = [(node, "produce", 1) for node in APART[0]] if apart else []
    plan = placed(graph, walks=elsewhere) if apart else placed(graph)
    given = served(graph, seen)
    given["item"] = lambda call: {"items": call.inputs["value"] + (100.0 if call.walk == "before" else 0.0)}
    cluster = Cluster(plan, given, seed)
    itinerary = lanes(plan, [("before", False), ("produce", False), ("batches", True)])
    # The first two are one list of steps.
    steps = tuple(replace(step, partition=max(step.partition, 1)) for step in itinerary.steps)
    cluster.start("r", replace(itinerary, steps=steps), {"items": 20, "stop_at": 2**31 - 1, "work": 0, "side": 1}, {})
    cluster.run()
    assert cluster.done("r") == set(itinerary.ranks), {r: c.waiting_for("r") for r, c in cluster.cores.items()}
    values = [*(100.0 + i for i in range(20)), *map(float, range(20))]
    assert seen["batch_sum"] == naive_chunks("fixed", {"size": 3}, values)


# ── closing chunks ──


def vocoding(output: str = "sum") -> Graph:
    """Two uses in a row, in a loop over chunks."""
    found = document()
    found["nodes"]["other_sum"] = {"component": "synthetic.chunk_sum"}
    walk = found["walks"]["batches"]
    walk["body"].append("other_sum")
    walk["edges"][1] = ["batch_sum.sum", "other_sum.items"]
    walk["edges"].append([f"other_sum.{output}", "@out.batches"])
    return load(found)


def needing(plan: Plan, *nodes: str) -> Plan:
    changed = tuple(replace(node, required=("items",)) if node.name in nodes else node for node in plan.nodes)
    return replace(plan, nodes=changed)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("items", [0, 9, 10])
def test_what_has_nothing_to_work_on_in_a_closing_chunk_is_skipped(items: int, seed: int) -> None:
    """On other ranks too, whatever they hear first."""
    graph = vocoding()
    plan = needing(placed(graph, APART[0], ("batch_sum",), ("other_sum",)), "batch_sum", "other_sum")
    cluster = Cluster(plan, {**functions(graph), "other_sum": lambda call: {"sum": call.inputs["items"]}}, seed)
    run(cluster, [("produce", False), ("batches", True)], items)
    assert [value for _, value in cluster.emitted["r", "batches"]] == [3.0, 12.0, 21.0, 9.0][: -(-items // 3)]


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_loop_that_has_nothing_to_work_on_in_a_closing_chunk_is_skipped(
    seed: int, apart: bool, resident: bool
) -> None:
    """With what follows it."""
    found = document()
    found["nodes"] |= {"flow": {"component": "synthetic.euler"}, "look": {"component": "synthetic.chunk_sum"}}
    found["walks"]["batches"] = {
        "body": ["batch_sum", {"loop": "flow", "times": "3", "body": ["flow", "look"]}],
        "edges": [
            ["@stream.batches", "batch_sum.items"],
            ["batch_sum.sum", "flow.items"],
            ["flow.items", "flow.items"],
            ["flow.items", "look.items"],
            {"from": "look.sum", "to": "@out.batches", "each": True},
        ],
    }
    graph = load(found)
    parts = (APART[0], ("batch_sum",), ("flow", "look")) if apart else ()
    plan = needing(placed(graph, *parts, resident=resident), "batch_sum", "look")
    made = {
        **functions(graph),
        "batch_sum": lambda call: {"sum": call.inputs["items"]},
        "flow": lambda call: {"items": call.inputs["items"]},
        "look": lambda call: {"sum": call.inputs["items"]},
    }
    cluster = Cluster(plan, made, seed)
    run(cluster, [("produce", False), ("batches", True)], 6)
    assert {loop.loop for loop in cluster.loops} == ({"flow"} if resident else set())
    sent = [([0, 1, 2], i) for i in range(3)] + [([3, 4, 5], i) for i in range(3)]
    assert [(list(value), at[1]) for at, value in cluster.emitted["r", "batches"]] == sent


@pytest.mark.parametrize("seed", range(4))
def test_a_port_that_holds_nothing_in_another_chunk_fails_the_run(seed: int) -> None:
    graph = vocoding()
    plan = needing(placed(graph, APART[0], ("batch_sum",), ("other_sum",)), "other_sum")
    made = {**functions(graph), "batch_sum": lambda call: {}}
    cluster = Cluster(plan, made, seed)
    itinerary = lanes(plan, [("produce", False), ("batches", True)])
    cluster.start("r", itinerary, {"items": 9, "stop_at": 2**31 - 1, "work": 0, "side": 1}, {})
    cluster.run()
    [error] = cluster.failures
    assert (error.node, error.port) == ("other_sum", "items")


@pytest.mark.parametrize("empty", ["", b"", torch.zeros(0), torch.zeros(0, 3)], ids=["text", "bytes", "row", "rows"])
def test_what_is_empty_is_not_sent_from_a_chunk(empty: Any) -> None:
    graph = load(document())
    given = {**functions(graph), "batch_sum": lambda call: {"sum": call.inputs.get("items", empty)}}
    cluster = Cluster(placed(graph), given)
    run(cluster, [("produce", False), ("batches", True)], 6)
    assert [list(value) for _, value in cluster.emitted["r", "batches"]] == [[0, 1, 2], [3, 4, 5]]
    assert len([call for call in cluster.calls if call.node == "batch_sum"]) == 3


def test_what_is_empty_is_sent_where_it_is_the_whole_answer() -> None:
    graph = load(document())
    cluster = Cluster(placed(graph), {**functions(graph), "whole_sum": lambda _: {"sum": ""}})
    run(cluster, [("produce", False), ("whole", False)], 0)
    assert [value for _, value in cluster.emitted["r", "whole"]] == [""]


def test_the_stream_that_comes_in_chunks_ends_the_loop_over_them() -> None:
    """Not one that the Walk reads as a whole beside it, wherever its edge stands."""
    found = document()
    found["nodes"]["other_sum"] = {"component": "synthetic.chunk_sum"}
    walk = found["walks"]["batches"]
    walk["body"].insert(0, "other_sum")
    walk["edges"].insert(0, ["@stream.whole", "other_sum.items"])
    graph = load(found)
    cluster = Cluster(placed(graph), functions(graph))
    run(cluster, [("produce", False), ("batches", True)], 7)
    assert [value for _, value in cluster.emitted["r", "batches"]] == [3.0, 12.0, 6.0]


# ── errors ──


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("begun", [0.0, 1.0])
@pytest.mark.parametrize("apart", [False, True])
def test_a_producer_that_fails_sends_no_end(apart: bool, begun: float, seed: int) -> None:
    """Not even where its last call was followed before it failed."""
    graph = load(document(batches={"policy": "fixed", "size": 1}))
    seen: dict[str, list[NaiveChunk]] = {}
    given = served(graph, seen)
    if not begun:
        given["item"] = _fails
    plan = placed(graph, APART[0], ("batch_sum",)) if apart else placed(graph)
    cluster = Cluster(plan, given, seed, begun=begun, faulty="item")
    itinerary = lanes(plan, [("produce", False), ("batches", True)])
    cluster.start("r", itinerary, {"items": 1, "stop_at": 2**31 - 1, "work": 0, "side": 1}, {})
    cluster.run()
    assert len(cluster.failures) == 1
    assert not any(chunk.last for chunk in seen.get("batch_sum", ()))
    assert not any(isinstance(message, m.StreamDone) for message in cluster.sent)
    assert Rank(0) not in cluster.done("r")


def _fails(call: Call) -> dict[str, Any]:
    raise ValueError("told to fail")
