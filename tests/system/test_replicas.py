"""Replicas with real processes: a killed one takes its runs along, and no others."""

import os
import signal

import msgspec
import pytest

from tests.support.deployment import KV_BYTES, deployed, graph_named, workers_of
from tests.support.yardstick import patience
from walkgraph.components import catalogue
from walkgraph.ids import RunId
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.wire import messages as m

pytestmark = pytest.mark.asyncio(loop_scope="session")


def replicated(name: str, replicas: int = 2) -> Placement:
    ranks = tuple(range(replicas))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in ranks)
    return Placement(name=name, groups=(Group(nodes=("*",), ranks=ranks, replicas=replicas),), ranks=devices)


@pytest.mark.safety("R1")
async def test_a_killed_replica_ends_only_its_runs_and_serves_again() -> None:
    graph = graph_named("synthetic_loops")
    made = assemble(Assignment(graph, replicated(graph.name)), catalogue())
    plan = msgspec.structs.replace(
        made, ranks=tuple(msgspec.structs.replace(rank, kv_bytes=KV_BYTES) for rank in made.ranks)
    )
    async with deployed(graph, plan) as deployment:
        params = {"times": 10_000, "limit": 10_000, "passes": 64}
        sending = [deployment.submit("climb", params) for _ in range(8)]
        quiet = [deployment.submit("spin", {"times": 3_000}) for _ in range(4)]
        await deployment.until(lambda: all(deployment.outputs[run]["value"] for run in sending))
        os.kill(deployment.pid(1), signal.SIGKILL)
        await deployment.until(lambda: deployment.status.state == "degraded", patience(1.0))
        new = deployment.submit("count", {"stop_at": 3})
        assert (await deployment.end(new)).error is None
        lost = [run for run in sending if run in deployment.finished]
        assert len(lost) == 4, "half of them were on each"
        for error in (deployment.finished[run].error for run in lost):
            assert error is not None
            assert (error.code, error.retryable, error.rank) == ("worker_lost", True, 1)
        assert [(await deployment.end(run)).error for run in quiet] == [None] * 4
        await deployment.ready()
        assert len(workers_of(deployment.process.pid)) == 2
        for run in set(sending) - set(lost):
            assert run not in deployment.finished
            deployment.process.send(m.Abort(run=RunId(run)))
        await deployment.until(lambda: deployment.status.running == 0)
