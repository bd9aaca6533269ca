"""The synthetic tasks end to end on simulated ranks, compared with numbers worked out by hand."""

import json
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.local import LocalDeployment
from tests.support.synthetic import functions
from walkgraph.abi.calls import Call, StateKey
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import decode
from walkgraph.placement.itinerary import expand
from walkgraph.resources import bundled

Kept = tuple[list[int], int]
"""Tokens and position of a cache."""


def attend(cluster: Cluster, call: Call) -> dict[str, Any]:
    walk = next(walk for walk in cluster.plan.walks if walk.name == call.walk)
    place: tuple[Any, StateKey] = (walk.uses[call.use].rank, call.states["kv"])
    tokens, position = cluster.states.get(place, ([], 0))
    ((port, given),) = call.inputs.items()
    new = given if isinstance(given, list) else [given]
    steps = {"ids": len(new), "token": 1, "block": 1, "scratch": 0}[port]
    kept: Kept = ([*tokens, *new], position + steps)
    if port != "scratch":
        cluster.states[place] = kept
    token = (sum(kept[0]) + kept[1]) % 997
    return {"token": token, "stop": token == call.params["stop_token"]}


def run(graph_name: str, task: str, **asked: Any) -> dict[str, list[Any]]:
    """Output -> every value that left, after a run on the graph's two ranks."""
    graph = codec.load(bundled("graphs")[graph_name].read_bytes())
    placement = decode(json.loads(bundled("placements")[f"{graph_name}_two_ranks"].read_text()))
    plan = assemble(Assignment(graph, placement), catalogue())
    params = {name: param.default for name, param in graph.tasks[task].params.items()} | {"seed": 0} | asked
    itinerary = expand(graph, plan, task, params, {})
    served = functions(graph)
    cluster = Cluster(plan, served)
    for name, node in graph.nodes.items():
        if node.component == "synthetic.attend":
            served[name] = lambda call: attend(cluster, call)
        if node.component == "synthetic.tokens":
            served[name] = lambda call: {"ids": [call.inputs.get("first", 0) + i for i in range(call.params["n"])]}
    cluster.start("run", itinerary, params, {})
    cluster.run()
    assert cluster.done("run") == set(itinerary.ranks)
    return {name: [value for _, value in values] for (_, name), values in cluster.emitted.items()}


def grown(tokens: list[int], position: int, times: int) -> list[int]:
    """The tokens that a cache generates from here on, one per step."""
    written: list[int] = []
    for _ in range(times):
        position += 1
        written.append((sum(tokens) + position) % 997)
        tokens = [*tokens, written[-1]]
    return written


def test_nested_hands_its_rows_on_to_another_walk() -> None:
    # row r: s + (s+1) + (s+3) + (s+6) = 4s + 10, where s is 10 + r plus the row before
    assert run("synthetic_loops", "nested") == {"row": [50, 254, 1074], "last": [272], "total": [50 + 254 + 1074]}


def test_climb_drops_the_value_at_the_limit() -> None:
    assert run("synthetic_loops", "climb", start=2, limit=6) == {"value": [3, 4, 5], "passes": [3]}


def test_skip_adds_in_every_second_iteration() -> None:
    assert run("synthetic_loops", "skip", times=7) == {"sum": [4]}


def test_streams_chain_through_three_partitions() -> None:
    found = run("synthetic_streams", "chain", items=6)
    assert found["chain"] == [sum(found["windows"])]
    assert found["windows"][:2] == [0 + 1 + 2 + 3, 2 + 3 + 4 + 5]


def test_writing_goes_on_from_what_was_read() -> None:
    first = 1 + 2 + 3 + 4 + 4
    assert run("synthetic_states", "write") == {"token": grown([1, 2, 3, 4, first], 4, 6)}
    assert run("synthetic_states", "write", stop_token=119) == {"token": [29, 59]}


def test_a_look_leaves_no_trace() -> None:
    found = run("synthetic_states", "peek")
    assert found["once"] == found["again"]


@pytest.mark.parametrize("times", [1, 6])
def test_a_fork_parts_ways_on_two_ranks(times: int) -> None:
    found = run("synthetic_states", "part_ways", times=times)
    read, first = [1, 2, 3, 4], 14
    aside = [*read, 1, 2, 3]
    told = sum(aside) + 5
    assert found["main"] == grown([*read, first], 4, times)
    assert found["copy"] == grown([*aside, told], 5, times)


def number(value: Any) -> float:
    return float(value.item() if hasattr(value, "item") else value)


TASKS = [("loops", task) for task in ("nested", "climb", "count", "skip")]
TASKS += [("streams", task) for task in ("batches", "windows", "contexts", "padded", "chain", "all")]
TASKS += [("states", task) for task in ("write", "part_ways", "remember")]


@pytest.mark.parametrize(("name", "task"), TASKS)
def test_the_operators_agree_with_their_twins(name: str, task: str) -> None:
    graph_name = f"synthetic_{name}"
    graph = codec.load(bundled("graphs")[graph_name].read_bytes())
    local = LocalDeployment(graph, decode(json.loads(bundled("placements")[f"{graph_name}_two_ranks"].read_text())))
    local.submit("run", task, {})
    local.run()
    assert not local.failed
    found = {output: [number(value) for value in values] for output, values in local.outputs["run"].items()}
    assert found == {output: [number(value) for value in values] for output, values in run(graph_name, task).items()}
