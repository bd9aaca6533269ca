"""Streams that end on a chunk's border, and outputs of several ranks, over processes: the answer depends on the values,
never on who was faster."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from tests.support.deployment import KV_BYTES, ROOT, deployed
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan

WINDOWS = [6.0 + 8 * i for i in range(9)]
"""Sums of four of 0 to 19, two apart; the last one ends where the numbers do."""
CASES: tuple[tuple[str, dict[str, Any], dict[str, list[float]]], ...] = (
    ("batches", {"items": 9}, {"batches": [3, 12, 21, 0]}),
    ("batches", {"items": 9, "stop_at": 0}, {"batches": [0]}),
    ("chain", {"items": 20}, {"windows": [*WINDOWS, 70], "chain": [sum(WINDOWS) + 70]}),
    ("in_turn", {"items": 4, "work": 20}, {"numbers": [*range(4), *range(8)]}),
    ("in_a_row", {"items": 20}, {"windows": [*WINDOWS, 70], "totals": [20, 52, 84, 116, 140, 0]}),
)
"""Task, parameters, outputs."""
TIMES = 30


def three_ranks() -> tuple[Graph, Plan]:
    """The bundled graph with two more tasks: windows in a row with pairs of their sums, and two steps that send one
    output from two ranks, the first one slowly."""
    found = json.loads((ROOT / "graphs" / "synthetic_streams.json").read_text())
    found["nodes"]["pair_sum"] = {"component": "synthetic.chunk_sum"}
    found["walks"]["pairs"] = {
        "body": ["pair_sum"],
        "edges": [["@stream.pairs", "pair_sum.items"], ["pair_sum.sum", "@out.totals"]],
    }
    chunks = {"policy": "fixed", "size": 2}
    found["streams"].append({"name": "pairs", "from": "window_sum.sum", "walks": ["windows"], "chunks": chunks})
    chain = found["tasks"]["chain"]
    steps = {**chain["steps"], "end": [{"walk": "pairs", "per": "chunk"}]}
    found["tasks"]["in_a_row"] = {**chain, "outputs": ["windows", "totals"], "steps": steps}
    found["nodes"] |= {"early": found["nodes"]["pace"], "late": {"component": "synthetic.delay", "params": {"work": 0}}}
    for name, times in ("early", "items"), ("late", "2 * items"):
        edges = [["@loop.index", f"{name}.value"], {"from": f"{name}.value", "to": "@out.numbers", "each": True}]
        found["walks"][name] = {"body": [{"loop": "count", "times": times, "body": [name]}], "edges": edges}
    found["tasks"]["in_turn"] = {**chain, "outputs": ["numbers"], "steps": [{"walk": "early"}, {"walk": "late"}]}
    graph = codec.load(json.dumps(found).encode())
    groups = (
        Group(nodes=("*",), ranks=(0,)),
        Group(nodes=("batch_sum", "window_sum", "late"), ranks=(1,)),
        Group(nodes=("chain_sum", "pair_sum"), ranks=(2,)),
    )
    ranks = tuple(RankDevice(rank=rank, device="cpu") for rank in range(3))
    plan = assemble(Assignment(graph, Placement(name="three", groups=groups, ranks=ranks)), catalogue())
    return graph, replace(plan, ranks=tuple(replace(rank, kv_bytes=KV_BYTES) for rank in plan.ranks))


def flat(values: list[Any]) -> list[float]:
    return [number for value in values for number in (value if isinstance(value, list) else [value])]


async def test_streams_and_outputs_of_several_ranks_give_one_answer() -> None:
    async with deployed(*three_ranks()) as deployment:
        for task, params, wanted in CASES:
            runs = [deployment.submit(task, params) for _ in range(TIMES)]
            for run in runs:
                assert (await deployment.end(run)).error is None
            answers = [{name: flat(deployment.outputs[run][name]) for name in wanted} for run in runs]
            assert answers == [wanted] * TIMES
