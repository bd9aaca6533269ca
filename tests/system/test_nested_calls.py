"""With real processes, on a pool that holds one run: runs wait for runs of the same deployment, and all end right."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.support import deployment as support
from tests.support.deployment import Deployment, deployed
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.check import check
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.service.values import tensors
from walkgraph.simulation.reference.task_nests import NestedTask, documents, wanted
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits

pytestmark = pytest.mark.asyncio(loop_scope="session")

SMALL = 1 << 15
"""Bytes of a pool that holds one run."""
ROOM = 700
TASKS = [
    NestedTask("t0", "a", 5, ROOM, (1, 1), in_row=False, fails=False),
    NestedTask("t1", "a", 7, ROOM, (2, 2), in_row=True, fails=False),
    NestedTask("t2", "a", 11, ROOM, (3,), in_row=True, fails=False),
    NestedTask("t3", "a", 13, ROOM, (4,), in_row=False, fails=False),
    NestedTask("t4", "a", 17, ROOM, (), in_row=False, fails=False),
]


class Serving(Deployment):
    """Runs the calls of its runs in itself, as the service does."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, m.CallTask] = {}
        self.depths: dict[str, int] = {}

    def take(self, message: m.FromConductor) -> None:
        super().take(message)
        match message:
            case m.CallTask():
                self._begin(message)
            case m.Finished(run=run) if run in self.calls:
                self._answer(self.calls[run], run, message)
            case _:
                pass

    def _begin(self, call: m.CallTask) -> None:
        given = call.value.items if isinstance(call.value, m.Named) else {}
        params: dict[str, Any] = {key: tensors.scalar_of(value, "") for key, value in given.items()}
        depth = self.depths.get(call.run, 0) + 1
        run = self.submit(call.task.partition("/")[2], params, outputs=call.outputs, depth=depth)
        self.calls[run], self.depths[run] = call, depth

    def _answer(self, call: m.CallTask, run: str, end: m.Finished) -> None:
        outputs: dict[str, m.Value] = {
            name: m.Small(value=values[-1] if isinstance(values[-1], int) else values[-1][0])
            for name, values in self.outputs[run].items()
        }
        answer = m.TaskAnswer(
            run=call.run,
            rank=call.rank,
            step=call.step,
            use=call.use,
            iteration=call.iteration,
            outputs={} if end.error else outputs,
            error=end.error,
            called=run,
        )
        self.process.send(answer)


@asynccontextmanager
async def nesting(monkeypatch: pytest.MonkeyPatch, ranks: int, running: int) -> AsyncIterator[Serving]:
    """All tasks in one deployment; on two ranks, what isn't the cache is apart."""
    monkeypatch.setattr(support, "Deployment", Serving)
    document = documents(TASKS)["a"]
    assert check(document, catalogue()).ok
    graph = codec.load(document)
    apart = tuple(name for name in graph.nodes if name != "kv") if ranks == 2 else ()
    groups = (Group(nodes=("*",), ranks=(0,)), *([Group(nodes=apart, ranks=(1,))] if apart else []))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(ranks))
    plan = assemble(Assignment(graph, Placement(name="nests", groups=groups, ranks=devices)), catalogue())
    kept = tuple(msgspec.structs.replace(rank, kv_bytes=SMALL) for rank in plan.ranks)
    async with deployed(graph, msgspec.structs.replace(plan, ranks=kept), Limits(running=running)) as found:
        assert isinstance(found, Serving)
        yield found


@pytest.mark.parametrize(("ranks", "running"), [(1, 256), (2, 1)])
async def test_runs_that_wait_for_each_other_in_one_pool_end_right(
    monkeypatch: pytest.MonkeyPatch, ranks: int, running: int
) -> None:
    async with nesting(monkeypatch, ranks, running) as nests:
        runs = [(nests.submit(f"t{number}"), number) for number in (0, 2, 4, 1)]
        for run, number in runs:
            end = await nests.end(run)
            assert end.error is None, end.error
            right = wanted(TASKS, number, {"a": 1_000_000}, 16)
            given = {name: values[-1] for name, values in nests.outputs[run].items()}
            assert given["sum"] == right.sum
            assert given["token"] in (right.token, [right.token])
        assert max(nests.depths.values()) == 4
        two = (await nests.end(nests.submit("t4", {"room": 2 * ROOM}))).error
        assert two is not None
        assert two.code == "refused", "the pool doesn't hold two of them"
        await nests.until(lambda: nests.status.running == 0)
