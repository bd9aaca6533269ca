"""A loop in a loop on the device against the same loops stepped by the worker, and against plain arithmetic."""

import json
from typing import Any

import torch

from benchmarks._runtime import InProcess, bundled_graph, placed
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.resources import bundled

SEARCHES: list[dict[str, Any]] = [
    {},
    {"seed": 3, "horizon": 2, "rounds": 1, "ways": 1, "known": 1},
    {"seed": 4, "horizon": 5, "ways": 3, "known": 17, "goal": 700.5},
    {"seed": 5, "horizon": 5, "ways": 3, "known": 15, "rounds": 9, "goal": 700.5},
    {"seed": 6, "rounds": 4, "known": 31},
]


def searched(requests: list[dict[str, Any]], *, resident: bool, graph: Graph | None = None) -> list[list[torch.Tensor]]:
    graph = graph or bundled_graph("synthetic_search")
    made = placed(graph, "cpu", resident=resident, kv_bytes=1 << 22)
    assert made.walks[0].loops[0].resident is resident, made.walks[0].loops[0].why
    here = InProcess(graph, made)
    for number, params in enumerate(requests):
        here.submit(f"r{number}", "search", params)
    here.serve()
    values = [here.taken(f"r{number}").values for number in range(len(requests))]
    here.engine.states.audit()
    free, total = here.engine.pools.pages()
    assert free == total
    return values


def test_a_search_is_the_same_on_the_device_and_stepped() -> None:
    together, stepped = (searched(SEARCHES, resident=flag) for flag in (True, False))
    for number, (params, fast, slow) in enumerate(zip(SEARCHES, together, stepped, strict=True)):
        (alone,) = searched([params], resident=True)
        rounds = params.get("rounds", 6)
        assert len(fast) == len(slow) == len(alone) == rounds + 1, number
        for one, other, third in zip(by_shape(fast), by_shape(slow), by_shape(alone), strict=True):
            assert torch.equal(one, other), number
            assert torch.equal(one, third), number


def test_a_round_may_begin_with_empty_sequences() -> None:
    document = json.loads(bundled("graphs")["synthetic_search"].read_text())
    walk = document["walks"]["search"]
    document["states"]["tries"]["scope"] = "iteration"
    document["nodes"]["level"] = {"component": "synthetic.tensor", "params": {"n": "=ways"}}
    walk["body"][3]["body"][1] = {"use": "try", "as": "opening"}
    walk["body"].insert(0, "level")
    walk["edges"] += [
        ["@in.start", "level.value"],
        ["level.items", "opening.items"],
        ["opening.items", "try.before"],
    ]
    graph = codec.load(json.dumps(document).encode())
    together, stepped = (searched(SEARCHES, resident=flag, graph=graph) for flag in (True, False))
    for fast, slow in zip(together, stepped, strict=True):
        assert all(map(torch.equal, by_shape(fast), by_shape(slow)))
    assert not torch.equal(by_shape(together[0])[0], by_shape(searched([{}], resident=True)[0])[0])


def by_shape(values: list[torch.Tensor]) -> list[torch.Tensor]:
    """How far off each round was, then the way: a stepped run may tell the last two in another order."""
    return sorted(values, key=lambda value: value.shape != (1,))


def test_a_search_does_what_plain_arithmetic_does() -> None:
    params = {"rounds": 1, "horizon": 3, "ways": 1, "reach": 0, "start": 2, "known": 4, "goal": 50}
    (found,) = searched([params], resident=True)
    known, marks, before = [2.0, 3.0, 4.0, 5.0], list[float](), 0.0
    for step in range(3):
        known.append(2 + before / 4)
        before = sum(known) + 4 + step
        marks.append(before)
    far, way = by_shape(found)
    assert way.tolist() == [2.0] * 3
    assert far.tolist() == [abs(sum(marks) - 50)]


def test_rounds_draw_other_ways() -> None:
    one, other = searched([{"seed": 1, "reach": 100}, {"seed": 2, "reach": 100}], resident=True)
    assert len({float(value) for value in by_shape(one)[:-1]}) > 1
    assert not torch.equal(by_shape(one)[-1], by_shape(other)[-1])


def test_what_the_task_asks_for_by_its_defaults_is_made_ready_before() -> None:
    made = placed(bundled_graph("synthetic_search"), "cpu", kv_bytes=1 << 22)
    here = InProcess(bundled_graph("synthetic_search"), made)
    groups = here.engine.loops.groups
    ready = {group.key for group in groups}
    here.submit("r", "search", {"rounds": 9, "reach": 1.5})
    here.serve()
    assert {group.key for group in groups} == ready
    assert len(ready) == 1
    here.submit("other", "search", {"ways": 5})
    here.serve()
    assert len(groups) == 2
