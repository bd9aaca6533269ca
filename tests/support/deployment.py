"""A real deployment in tests: processes on CPU ranks, and their messages."""

import asyncio
import contextlib
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tests.support.fork_server import shared_forks
from walkgraph.components import catalogue
from walkgraph.conductor.client import DeploymentProcess, DeploymentSpec, ForkServing, Limits
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.ids import RunId
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice, decode
from walkgraph.placement.tables import Plan
from walkgraph.wire import messages as m
from walkgraph.wire.processes.host_network import HostNetwork

ROOT = Path(__file__).parents[2]
KV_BYTES = 8 * 1024 * 1024


def graph_named(name: str) -> Graph:
    return codec.load((ROOT / "graphs" / f"{name}.json").read_bytes())


def plan_named(name: str, ranks: int = 2, transport: str | None = None) -> tuple[Graph, Plan]:
    """A bundled graph on one CPU rank, or on its bundled placement of two, which send by `transport`."""
    graph = graph_named(name)
    if ranks == 2:
        placement = decode(json.loads((ROOT / "placements" / f"{name}_two_ranks.json").read_text()))
    else:
        group = Group(nodes=("*",), ranks=(0,))
        placement = Placement(name="one", groups=(group,), ranks=(RankDevice(rank=0, device="cpu"),))
    placement = placement.model_copy(update={"transport": transport})
    made = assemble(Assignment(graph, placement), catalogue())
    kept = tuple(msgspec.structs.replace(rank, kv_bytes=KV_BYTES) for rank in made.ranks)
    return graph, msgspec.structs.replace(made, ranks=kept)


class Deployment:
    """A client's view of a deployment: statuses, outputs by run, ends by run."""

    def __init__(self) -> None:
        self.process: DeploymentProcess
        self.directory: Path
        """The folder of its sockets."""
        self.messages: list[m.FromConductor] = []
        self.outputs: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        self.finished: dict[str, m.Finished] = {}
        self.rejected: dict[str, m.Rejected] = {}
        self.exit_code: int | None = None
        self._numbers = count()
        self._changed = asyncio.Event()

    @property
    def status(self) -> m.Status:
        assert self.process.status is not None
        return self.process.status

    def pid(self, rank: int) -> int:
        found = next(status.pid for status in self.status.ranks if status.rank == rank)
        assert found is not None
        return found

    def submit(self, task: str, params: Mapping[str, Any] | None = None, **fields: Any) -> str:
        run = RunId(f"run{next(self._numbers)}")
        inputs: dict[str, Sequence[m.Value]] = fields.pop("inputs", {})
        self.process.send(m.Submit(run=run, task=task, params=dict(params or {}), inputs=inputs, **fields))
        return run

    async def ready(self, seconds: float = 300.0) -> None:
        await self.until(lambda: self.process.status is not None and self.status.state == "ready", seconds)

    async def end(self, run: str, seconds: float = 300.0) -> m.Finished:
        await self.until(lambda: run in self.finished or run in self.rejected, seconds)
        assert run not in self.rejected, self.rejected[run]
        return self.finished[run]

    async def until(self, holds: Callable[[], bool], seconds: float = 300.0) -> None:
        """Wait for messages until something holds."""
        async with asyncio.timeout(seconds):
            while not holds():
                assert self.exit_code is None, "the deployment has ended"
                self._changed.clear()
                await self._changed.wait()

    def take(self, message: m.FromConductor) -> None:
        self.messages.append(message)
        match message:
            case m.Output():
                values = self.outputs[message.run][message.name]
                assert message.index == len(values), "outputs are numbered without gaps"
                assert message.run not in self.finished, "nothing comes after the end"
                values.append(plain(message.value))
            case m.Finished():
                assert message.run not in self.finished, "a run ends once"
                self.finished[message.run] = message
            case m.Rejected():
                self.rejected[message.run] = message
            case _:
                pass
        self._changed.set()

    def exited(self, code: int) -> None:
        self.exit_code = code
        self._changed.set()


def plain(value: m.Value) -> Any:
    match value:
        case m.Small():
            return value.value
        case m.Blob():
            return value.data
        case m.InlineTensor():
            return np.frombuffer(value.data, value.dtype).reshape(value.shape).tolist()
        case m.Many():
            return [plain(item) for item in value.items]
        case _:
            return value


@asynccontextmanager
async def deployed(
    graph: Graph,
    plan: Plan,
    limits: Limits | None = None,
    telemetry: str | None = None,
    ready: bool = True,
    forks: ForkServing | None = None,
    network: HostNetwork | None = None,
) -> AsyncIterator[Deployment]:
    """`forks`: what its workers are forked from, if not from the server that tests share."""
    deployment = Deployment()
    with tempfile.TemporaryDirectory(prefix="wg") as folder:
        spec = DeploymentSpec(
            name=graph.name,
            graph=codec.dump(graph),
            plan=plan,
            limits=limits or Limits(),
            telemetry_address=telemetry,
            network=network,
        )
        deployment.directory = Path(folder) / "d"
        start = DeploymentProcess.start
        deployment.process = await start(
            forks or shared_forks(), deployment.directory, spec, deployment.take, deployment.exited
        )
        try:
            if ready:
                await deployment.ready()
            yield deployment
        finally:
            await deployment.process.stop(0)
            log = (deployment.directory / "deployment.log").read_text()
            if log:
                print(log)  # shown by pytest when the test fails


class Standing:
    """Deployments that tests of several files share, each started when it is first asked for.

    A test leaves one as it found it: it serves, and holds nothing. The names of sessions are each test's own.
    """

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._there: dict[tuple[str, int], Deployment] = {}

    async def __call__(self, name: str, kv_bytes: int = KV_BYTES) -> Deployment:
        """A bundled graph on two ranks, ready."""
        if (name, kv_bytes) not in self._there:
            graph, plan = plan_named(name)
            ranks = tuple(msgspec.structs.replace(rank, kv_bytes=kv_bytes) for rank in plan.ranks)
            entered = deployed(graph, msgspec.structs.replace(plan, ranks=ranks))
            self._there[name, kv_bytes] = await self._stack.enter_async_context(entered)
        found = self._there[name, kv_bytes]
        await found.ready()
        return found


def workers_of(conductor: int) -> list[int]:
    """The processes that were forked for a conductor: they hold the other end of its pipe."""
    pipes = _pipes(conductor)
    return [pid for pid in children(shared_forks().pid) if pipes & _pipes(pid)]


def _pipes(pid: int) -> set[str]:
    """Names of the pipes that a process has, less its standard files; none of one that has ended."""
    found = set[str]()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                name = str(file.readlink())
                if int(file.name) > 2 and name.startswith("pipe:"):
                    found.add(name)
    return found


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Still:
    """Detects idle processes: none of their main threads has run during the last few calls."""

    CALLS = 20

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids, self._seen = pids, dict.fromkeys(pids, "")
        self._calls = 0

    def __call__(self) -> bool:
        seen = {
            pid: Path(f"/proc/{pid}/status").read_text().partition("voluntary_ctxt_switches")[2] for pid in self._pids
        }
        self._calls = self._calls + 1 if seen == self._seen else 0
        self._seen = seen
        return self._calls >= self.CALLS


def is_gone(pid: int) -> bool:
    """No such process, or one that has ended and waits to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


FOREIGN = ("PostgreSQL.", ".org.chromium.", "sem.")
"""How segments begin that other tests' programs make meanwhile: database servers, browsers, pools of processes."""


def shared_memory() -> set[str]:
    """Segments that have a name."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith(FOREIGN)}  # noqa: PTH208
