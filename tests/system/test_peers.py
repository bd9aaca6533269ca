"""Ranks that start in any order know each other before their deployment is ready."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.support.deployment import KV_BYTES, Deployment, children, deployed, graph_named
from walkgraph.components import catalogue
from walkgraph.graph.document import Graph
from walkgraph.placement.assemble import assemble
from walkgraph.placement.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan

LONGEST = 60.0
"""Seconds for what takes one or two on an idle machine."""


def plan_on_three() -> tuple[Graph, Plan]:
    """Every rank sends to every other: items from 0 to 1 and 2, sums from 1 to 2, credit the other way."""
    graph = graph_named("synthetic_streams")
    groups = (
        Group(nodes=("*",), ranks=(0,)),
        Group(nodes=("window_sum",), ranks=(1,)),
        Group(nodes=("batch_sum", "context_sum", "whole_sum", "chain_sum"), ranks=(2,)),
    )
    ranks = tuple(RankDevice(rank=rank, device="cpu") for rank in range(3))
    made = assemble(Assignment(graph, Placement(name="three", groups=groups, ranks=ranks)), catalogue())
    kept = tuple(msgspec.structs.replace(rank, kv_bytes=KV_BYTES) for rank in made.ranks)
    return graph, msgspec.structs.replace(made, ranks=kept)


async def until(holds: Callable[[], bool]) -> None:
    """Of other processes, which nobody is told of."""
    async with asyncio.timeout(LONGEST):
        while not holds():
            await asyncio.sleep(0.005)


def asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "S"


async def hold_conductor(deployment: Deployment) -> None:
    """Stop it once it has started its workers, until all of them wait for what it says."""
    conductor = deployment.process.pid
    await until(lambda: len(children(conductor)) == 3)
    os.kill(conductor, signal.SIGSTOP)
    try:
        await until(lambda: len(list(deployment.directory.glob("rank*"))) == 3)
        await until(lambda: all(asleep(worker) for worker in children(conductor)))
    finally:
        os.kill(conductor, signal.SIGCONT)


async def ask_all(deployment: Deployment) -> None:
    """A task for each edge between ranks; all of them end well."""
    runs = [deployment.submit(task, {"items": 7}) for task in ("all", "chain")]
    for run in runs:
        assert (await deployment.end(run, LONGEST)).error is None


@pytest.mark.asyncio
async def test_what_comes_with_the_order_to_load_is_obeyed(held_rounds: int) -> None:
    """All ranks have said hello when the conductor goes on, so that each is told of the others in one frame."""
    for _ in range(held_rounds):
        async with deployed(*plan_on_three(), ready=False) as deployment:
            await hold_conductor(deployment)
            await deployment.ready(LONGEST)
            await ask_all(deployment)
