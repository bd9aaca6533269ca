"""Streams that end on a chunk's border, over processes: the answer depends on the values, never on who was faster."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from tests.support.deployment import KV_BYTES, ROOT, deployed
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.placement.assemble import assemble
from walkgraph.placement.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan

WINDOWS = [6.0 + 8 * i for i in range(9)]
"""Sums of four of 0 to 19, two apart; the last one ends where the numbers do."""
CASES: tuple[tuple[str, dict[str, Any], dict[str, list[float]]], ...] = (
    ("batches", {"items": 9}, {"batches": [3, 12, 21, 0]}),
    ("batches", {"items": 9, "stop_at": 0}, {"batches": [0]}),
    ("chain", {"items": 20}, {"windows": [*WINDOWS, 70], "chain": [sum(WINDOWS) + 70]}),
    ("in_a_row", {"items": 20}, {"windows": [*WINDOWS, 70], "totals": [20, 52, 84, 116, 140, 0]}),
)
"""Task, parameters, outputs."""
TIMES = 30


def three_ranks() -> tuple[Graph, Plan]:
    """The bundled graph with one more task: windows in a row with pairs of their sums."""
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
    graph = codec.load(json.dumps(found).encode())
    groups = (
        Group(nodes=("*",), ranks=(0,)),
        Group(nodes=("batch_sum", "window_sum"), ranks=(1,)),
        Group(nodes=("chain_sum", "pair_sum"), ranks=(2,)),
    )
    ranks = tuple(RankDevice(rank=rank, device="cpu") for rank in range(3))
    plan = assemble(Assignment(graph, Placement(name="three", groups=groups, ranks=ranks)), catalogue())
    return graph, replace(plan, ranks=tuple(replace(rank, kv_bytes=KV_BYTES) for rank in plan.ranks))


async def test_a_stream_that_ends_on_a_border_gives_one_answer() -> None:
    async with deployed(*three_ranks()) as deployment:
        for task, params, wanted in CASES:
            runs = [deployment.submit(task, params) for _ in range(TIMES)]
            for run in runs:
                assert (await deployment.end(run)).error is None
            answers = [{name: [value for [value] in deployment.outputs[run][name]] for name in wanted} for run in runs]
            assert answers == [wanted] * TIMES
