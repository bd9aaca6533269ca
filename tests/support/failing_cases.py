"""Deployments and their requests for `failing`: what the data plane does, each on two ranks or more."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tests.support.deployment import KV_BYTES, ROOT, graph_named
from tests.support.forked import plan_on_three
from tests.system.test_choices import DOCUMENT as CHOOSING
from tests.unit.worker.test_asked_tasks import CALLED, CALLING
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.checks.called import WithTasks
from walkgraph.graph.document import Graph
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import decode
from walkgraph.placement.tables import Plan
from walkgraph.wire import messages as m


class Case:
    """The deployment and its requests."""

    def __init__(
        self, graph: Graph, plan: Plan, task: str, params: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> None:
        self.graph, self.plan, self.task, self.params, self.inputs = graph, plan, task, params, inputs


def shapes(steps: int) -> Case:
    """The starter's request, its guidance on ranks of their own."""
    graph = graph_named("shapes")
    placement = decode(json.loads((ROOT / "placements" / "shapes_cfg3_cpu.json").read_text()))
    made = assemble(Assignment(graph, placement), catalogue())
    kept = tuple(msgspec.structs.replace(rank, kv_bytes=KV_BYTES) for rank in made.ranks)
    prompt = {"prompt": (m.Small(value="a red circle on white"),)}
    plan = msgspec.structs.replace(made, ranks=kept)
    return Case(graph, plan, "text_to_image", {"steps": steps, "seed": 3, "cfg_interval_low": 0.0}, prompt)


def streams(items: int) -> Case:
    """Every rank sends to every other."""
    return Case(*plan_on_three(), "all", {"items": items, "seed": 3}, {})


def passes(count: int) -> Case:
    """Steps that loop, leg by leg, with a choice in the second Walk's rank; each pass crosses both ranks."""
    return apart("synthetic_passes", ("step", "critic", "main"), "redraw", {"most": count, "seed": 3})


def rambling(count: int) -> Case:
    """Passes over a cache that grows, on another rank than the prompt."""
    return apart("synthetic_passes", ("step", "critic", "main"), "ramble", {"passes": count, "times": 2, "seed": 3})


def choices(rounds: int) -> Case:
    """A branch in each iteration, and one of the steps, on either rank by a value."""
    return case_of(codec.load(CHOOSING), ("double", "high"), "go", {"start": 3, "rounds": rounds, "seed": 3})


def calls(count: int) -> Case:
    """A node that is a task of another graph, called in each iteration from another rank than takes what it gives."""
    return case_of(codec.load(CALLING), ("end",), "go", {"n": count, "seed": 3}, {"called": CALLED})


def search(rounds: int) -> Case:
    """A loop with a loop inside it, copies of a cache, and values that are collected; half of it on another rank."""
    return apart("synthetic_search", ("spread", "choose"), "search", {"rounds": rounds, "horizon": 2, "seed": 3})


def apart(name: str, nodes: Sequence[str], task: str, params: Mapping[str, Any]) -> Case:
    return case_of(graph_named(name), nodes, task, params)


def case_of(
    graph: Graph,
    nodes: Sequence[str],
    task: str,
    params: Mapping[str, Any],
    called: Mapping[str, Mapping[str, Any]] | None = None,
) -> Case:
    """A graph with these nodes on rank 1, and all others on rank 0. `called`: the graphs whose tasks it calls."""
    others = sorted(set(graph.nodes) - set(nodes))
    groups = [{"nodes": [*part], "ranks": [rank]} for rank, part in enumerate((others, nodes))]
    ranks = [{"rank": rank, "device": "cpu"} for rank in (0, 1)]
    given = {"format": "walkgraph/placement@1", "name": "apart", "graph": graph.name, "groups": groups, "ranks": ranks}
    known = WithTasks(catalogue(), called) if called else catalogue()
    made = assemble(Assignment(graph, decode(given)), known)
    kept = tuple(msgspec.structs.replace(rank, kv_bytes=KV_BYTES) for rank in made.ranks)
    return Case(graph, msgspec.structs.replace(made, ranks=kept), task, params, {})


CASES: Mapping[str, Callable[[int], Case]] = {
    "shapes": shapes,
    "streams": streams,
    "passes": passes,
    "rambling": rambling,
    "search": search,
    "choices": choices,
    "calls": calls,
}
