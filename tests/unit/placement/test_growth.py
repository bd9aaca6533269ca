"""Large documents: the work of `check` and `plan` grows with their size, not with its square."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from walkgraph.components import catalogue, families
from walkgraph.graph.check import check
from walkgraph.graph.reading.guard import MAX_ITEMS_OF_ONE
from walkgraph.placement.document import default_placement
from walkgraph.placement.hardware import find_hardware
from walkgraph.placement.plan import plan
from walkgraph.placement.sizes import find_sizes
from walkgraph.resources import bundled

Document = dict[str, Any]
DRAW = {"walk": "draw", "with": {"idea": "@task.idea", "pass": "@task.idea"}}


def document(name: str) -> Document:
    return json.loads(bundled("graphs")[name].read_text(encoding="utf-8"))


def with_steps(steps: list[Any]) -> Document:
    found = document("synthetic_passes")
    params = {"idea": {"type": "integer", "default": 1}}
    found["tasks"]["long"] = {"outputs": ["picture"], "params": params, "steps": steps}
    return found


def steps(count: int) -> Document:
    """Each takes results of two before it."""
    names = [f"s{i}" for i in range(count)]
    taken = [{"idea": f"{before}.picture", "pass": f"s{i // 2}.picture"} for i, before in enumerate(names[:-1])]
    rest = [{"walk": "draw", "as": name, "with": one} for name, one in zip(names[1:], taken, strict=True)]
    return with_steps([{**DRAW, "as": "s0"}, *rest])


def choices(count: int) -> Document:
    return with_steps([{"choose": "@task.idea", "cases": {"1": [DRAW]}, "otherwise": [DRAW]}] * count)


def firsts(count: int) -> Document:
    return with_steps([{"first": [{**DRAW, "when": f"idea > {i}"} for i in range(count)]}])


def uses(count: int) -> Document:
    found = document("synthetic_search")
    walk = found["walks"]["search"]
    walk["body"] += [{"use": "known", "as": f"k{i}"} for i in range(count)]
    walk["edges"] += [["@in.start", f"k{i}.first"] for i in range(count)]
    return found


def chain(count: int) -> Document:
    found = with_steps([{"walk": "long", "with": {"a": "@task.idea"}}])
    names = [f"n{i}" for i in range(count)]
    found["nodes"] |= {name: {"component": "synthetic.add"} for name in names}
    edges = [["@in.a", "n0.a"], ["@in.a", "n0.b"], [f"{names[-1]}.sum", "@out.picture"]]
    edges += [[f"{one}.sum", f"{other}.{port}"] for one, other in pairwise(names) for port in "ab"]
    found["walks"]["long"] = {"inputs": {"a": "scalar: int"}, "body": names, "edges": edges}
    return found


def by_value(count: int) -> Document:
    """Choices side by side, by one value."""
    return _chosen(count, [])


def by_merge(count: int) -> Document:
    """Choices one after the other, each by what the one before has given."""
    return _chosen(count, [f"@merge.m{i}" for i in range(count)])


def _chosen(count: int, merged: list[str]) -> Document:
    found = with_steps([{"walk": "long", "with": {"a": "@task.idea"}}])
    given = ["@in.a", *(merged or ["@in.a"] * count)]
    found["nodes"] |= {f"{side}{i}": {"component": "synthetic.add"} for i in range(count) for side in "yn"}
    found["walks"]["long"] = {
        "inputs": {"a": "scalar: int"},
        "body": [{"choose": given[i], "cases": {"1": [f"y{i}"]}, "otherwise": [f"n{i}"]} for i in range(count)],
        "merges": {f"m{i}": [f"y{i}.sum", f"n{i}.sum"] for i in range(count)},
        "edges": [
            *([given[i], f"{side}{i}.{port}"] for i in range(count) for side in "yn" for port in "ab"),
            [f"@merge.m{count - 1}", "@out.picture"],
        ],
    }
    return found


def calls(value: Document) -> int:
    """Python functions called by check and plan."""
    count = 0

    def on(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    hardware = find_hardware()
    known, sizes = catalogue(), find_sizes(families())
    sys.setprofile(on)
    try:
        report = check(value, known)
        assert report.graph is not None
        assert not report.errors
        made = plan(report.graph, default_placement(report.graph, hardware), hardware, known, sizes)
    finally:
        sys.setprofile(None)
    assert made.plan is not None
    return count


@pytest.mark.parametrize("make", [steps, choices, firsts, uses, chain, by_value, by_merge])
def test_twice_the_document_takes_about_twice_the_work(make: Callable[[int], Document]) -> None:
    calls(make(1))  # what is imported and cached once
    least, some, twice = (calls(make(count)) for count in (1, 61, 121))
    assert (twice - least) / (some - least) < 2.4


@pytest.mark.parametrize(
    ("make", "pointer"), [(steps, "/tasks/long/steps"), (uses, "/walks/search/body")], ids=["steps", "uses"]
)
def test_one_list_of_too_many_items_is_refused(make: Callable[[int], Document], pointer: str) -> None:
    (problem,) = check(make(MAX_ITEMS_OF_ONE + 1), catalogue()).problems
    assert (problem.code, problem.pointer) == ("too_large", pointer)
