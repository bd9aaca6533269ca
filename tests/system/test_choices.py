"""Choices with real processes on two ranks: a branch in each iteration, steps by a result, and no call of any other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.deployment import KV_BYTES, Deployment, deployed
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.check import check
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice

pytestmark = pytest.mark.asyncio(loop_scope="session")

NODES: dict[str, Any] = {
    "judge": {"component": "synthetic.compare", "params": {"at": 10}},
    "less": {"component": "synthetic.constant", "params": {"value": -7}},
    "lower": {"component": "synthetic.add"},
    "double": {"component": "synthetic.add"},
    "last": {"component": "synthetic.compare", "params": {"at": 5}},
    "high": {"component": "synthetic.add"},
    "low": {"component": "synthetic.add"},
    "both": {"component": "synthetic.add"},
}
"""Those of the branches are on two ranks: `double` and `high` on rank 1."""
DOCUMENT: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "choices",
    "nodes": NODES,
    "walks": {
        "swing": {
            "inputs": {"start": "scalar: int"},
            "body": [
                {
                    "loop": "l",
                    "times": "rounds",
                    "body": [
                        "judge",
                        {"choose": "judge.reached", "cases": {"true": ["less", "lower"], "false": ["double"]}},
                    ],
                },
                "last",
            ],
            "merges": {"next": ["lower.sum", "double.sum"]},
            "edges": [
                ["@in.start", "judge.value"],
                ["@merge.next", "judge.value"],
                ["judge.value", "lower.a"],
                ["less.value", "lower.b"],
                ["judge.value", "double.a"],
                ["judge.value", "double.b"],
                {"from": "@merge.next", "to": "@out.each", "each": True},
                ["@merge.next", "last.value"],
            ],
            "results": {"value": "last.value", "high": "last.reached"},
        },
        **{
            name: {
                "inputs": {"value": "scalar: int"},
                "body": [name],
                "edges": [["@in.value", f"{name}.a"], *([[f"{name}.sum", "@out.end"]] if name == "both" else [])],
                "results": {"value": f"{name}.sum"},
            }
            for name in ("high", "low", "both")
        },
    },
    "tasks": {
        "go": {
            "outputs": ["each", "end"],
            "params": {
                "start": {"type": "integer", "default": 3},
                "rounds": {"type": "integer", "default": 4, "min": 1, "max": 100},
            },
            "steps": [
                {"walk": "swing", "with": {"start": "@task.start"}},
                {
                    "choose": "swing.high",
                    "cases": {"true": [{"walk": "high", "as": "taken", "with": {"value": "swing.value"}}]},
                    "otherwise": [{"walk": "low", "as": "taken", "with": {"value": "swing.value"}}],
                },
                {"walk": "both", "with": {"value": "taken.value"}},
            ],
        }
    },
}


def by_the_book(start: int, rounds: int) -> list[int]:
    found, value = list[int](), start
    for _ in range(rounds):
        value = value - 7 if value >= 10 else value + value
        found.append(value)
    return found


async def test_branches_on_two_ranks_take_turns() -> None:
    graph = codec.load(DOCUMENT)
    assert check(DOCUMENT, catalogue()).ok, check(DOCUMENT, catalogue()).errors
    groups = (Group(nodes=("*",), ranks=(0,)), Group(nodes=("double", "high"), ranks=(1,)))
    ranks = tuple(RankDevice(rank=rank, device="cpu") for rank in (0, 1))
    plan = assemble(Assignment(graph, Placement(name="two", groups=groups, ranks=ranks)), catalogue())
    kept = tuple(msgspec.structs.replace(rank, kv_bytes=KV_BYTES) for rank in plan.ranks)
    async with deployed(graph, msgspec.structs.replace(plan, ranks=kept)) as deployment:
        asked = [(start, rounds) for start in (1, 3, 12, 40) for rounds in (1, 4, 9)]
        for run, start, wanted in [(submit(deployment, *one), one[0], by_the_book(*one)) for one in asked]:
            end = await deployment.end(run)
            assert end.error is None
            assert dict(deployment.outputs[run]) == {"each": wanted, "end": [wanted[-1]]}
            calls = {time.node: time.calls for time in end.times}
            lowered = sum(value >= 10 for value in [start, *wanted[:-1]])
            counts = {"lower": lowered, "double": len(wanted) - lowered, "both": 1}
            counts |= {"high": int(wanted[-1] >= 5), "low": int(wanted[-1] < 5)}
            assert {node: calls.get(node, 0) for node in counts} == counts, "a branch not taken makes no call"


def submit(deployment: Deployment, start: int, rounds: int) -> str:
    return deployment.submit("go", {"start": start, "rounds": rounds})
