"""What is wanted is in the store; this brings it about and keeps it so: one supervising task per deployment.

create   judge, write the wanted state, start            (nothing is started, or written, that can't be deployed)
keep     a deployment process that ends is started anew, after 0.5 s, doubling to 8 s; five times a minute at most
delete   forget the wanted state, drain, stop
"""

import asyncio
import contextlib
import hashlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import anyio.to_thread
import msgspec
import structlog

from walkgraph.errors import Conflict, ErrorInfo, InvalidInput, NotFound, Overloaded, RunFailed, WalkgraphError
from walkgraph.graph.document import Graph, Task
from walkgraph.ids import RunId
from walkgraph.placement.tables import Plan
from walkgraph.service.hub import Hub
from walkgraph.service.judging import deployable, judge
from walkgraph.service.problems import Unavailable
from walkgraph.service.runs import LiveRun, Runs
from walkgraph.settings import Settings
from walkgraph.store import queries
from walkgraph.store.session import Store
from walkgraph.store.tables import Deployment
from walkgraph.wire import messages as m
from walkgraph.wire.spec import DeploymentSpec, Limits

BACKOFF_FIRST = 0.5
BACKOFF_LAST = 8.0
MAX_RESTARTS = 5
RESTART_WINDOW = 60.0

_log = structlog.get_logger("walkgraph.deployments")


class Process(Protocol):
    """A running deployment process."""

    pid: int

    @property
    def alive(self) -> bool: ...

    def send(self, message: m.ToConductor) -> None: ...

    async def stop(self, grace: float) -> None: ...


Spawn = Callable[[Path, DeploymentSpec, Callable[[m.FromConductor], None], Callable[[int], None]], Awaitable[Process]]


class Managed:
    """One wanted deployment: what it was made from, how it is, and its unfinished runs."""

    def __init__(self, row: Deployment) -> None:
        self.id = row.id
        self.graph_name = row.graph_name
        self.graph_document: dict[str, Any] = msgspec.json.decode(row.graph_text)
        self.placement_name = row.placement_name
        self.placement_document: dict[str, Any] = msgspec.json.decode(row.placement_text)
        self.created_at = row.created_at
        self.graph: Graph | None = None
        """None until it was judged on this start."""
        self.plan: Plan | None = None
        self.status = m.Status(state="starting", ranks=())
        self.restarts = 0
        self.process: Process | None = None
        self.runs: dict[RunId, LiveRun] = {}
        self.unwanted = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()
        """Set, and replaced, at every change of `status`."""
        self.revision = 0
        """Counts the changes."""

    @property
    def state(self) -> str:
        return self.status.state

    async def changed_after(self, revision: int, seconds: float) -> None:
        """Returns once there was a change after `revision`, or after `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.revision <= revision:
                    await self.changed.wait()

    @property
    def wanted(self) -> bool:
        return not self.unwanted.is_set()

    def tasks(self) -> dict[str, Task]:
        if self.graph is None:
            raise Unavailable(f"the deployment `{self.id}` is {self.state}; try again when it is ready")
        return self.graph.tasks

    def public(self) -> dict[str, Any]:
        ranks = [msgspec.to_builtins(rank) | {"device": self._device(rank.rank)} for rank in self.status.ranks]
        for rank in ranks:
            rank.pop("type", None)
        return {
            "id": self.id,
            "graph": self.graph_name,
            "placement": self.placement_name,
            "state": self.state,
            "revision": self.revision,
            "reason": self.status.reason,
            "ranks": ranks,
            "running": self.status.running,
            "waiting": self.status.waiting,
            "restarts": self.restarts,
            "created_at": self.created_at,
            "tasks": list(self.graph.tasks) if self.graph else [],
            "digest": self.plan.digest if self.plan else None,
        }

    def _device(self, rank: int) -> str | None:
        ranks = self.plan.ranks if self.plan else ()
        return next((entry.device for entry in ranks if entry.rank == rank), None)


class Deployments:
    def __init__(
        self, settings: Settings, store: Store, runs: Runs, hub: Hub, spawn: Spawn, telemetry_address: str | None = None
    ) -> None:
        self._settings = settings
        self._store = store
        self._runs = runs
        self._hub = hub
        self._spawn = spawn
        self._telemetry_address = telemetry_address
        self._managed: dict[str, Managed] = {}
        self._changing = asyncio.Lock()
        self.draining = False

    # ── wanted state ────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Bring back everything that is wanted. Returns at once; `get` shows how far it is."""
        for row in await self._store.read(queries.list_deployments):
            self._keep(Managed(row))

    async def create(
        self, id_: str, graph_name: str, graph: Any, placement_name: str, placement: Any | None
    ) -> Managed:
        """Raises Unprocessable with every problem, Conflict for an id that is taken."""
        async with self._changing:
            if self.draining:
                raise Unavailable("the service is shutting down")
            if id_ in self._managed:
                raise Conflict(f"there is a deployment `{id_}` already; undeploy it first, or choose another name")
            roots = self._settings.checkpoint_roots
            judged = await anyio.to_thread.run_sync(judge, graph, placement, self.plans(), roots)
            made = deployable(judged)
            row = Deployment(
                id=id_,
                graph_name=graph_name,
                graph_text=msgspec.json.encode(graph).decode(),
                placement_name=placement_name,
                placement_text=msgspec.json.encode(judged.placement_document).decode(),
                created_at=time.time(),
            )
            await self._store.write(queries.add_deployment, row)
            await self._store.write(queries.add_version, "graph", graph_name, row.graph_text, f"deployed as {id_}")
            managed = Managed(row)
            managed.graph, managed.plan = judged.graph, made
            self._keep(managed)
            return managed

    async def delete(self, id_: str, grace: float) -> None:
        """Forget it, let its runs finish for up to `grace` seconds, stop it."""
        managed = self.get(id_)
        await self._store.write(queries.delete_deployment, id_)
        await self._stop(managed, grace)
        self._managed.pop(id_, None)

    async def close(self, grace: float) -> None:
        """Stop all, still wanted."""
        self.draining = True
        await asyncio.gather(*(self._stop(managed, grace) for managed in list(self._managed.values())))

    def listed(self) -> list[Managed]:
        """Oldest first."""
        return sorted(self._managed.values(), key=lambda managed: managed.created_at)

    def get(self, id_: str) -> Managed:
        found = self._managed.get(id_)
        if found is None:
            known = ", ".join(f"`{name}`" for name in self._managed) or "none"
            raise NotFound(f"there is no deployment `{id_[:64]}`; there are: {known}")
        return found

    def plans(self) -> list[Plan]:
        """Of what is starting, and so does not show in the free memory yet."""
        return [managed.plan for managed in self._managed.values() if managed.plan and managed.state == "starting"]

    # ── runs ────────────────────────────────────────────────────────────────────────────────────

    def submit(self, managed: Managed, submit: m.Submit) -> LiveRun:
        """Hand a run over. Raises Unavailable where it isn't serving, Overloaded where its queue is full."""
        if self.draining:
            raise Unavailable("the service is shutting down")
        if managed.process is None or managed.state not in ("ready", "degraded"):
            raise Unavailable(f"the deployment `{managed.id}` is {managed.state}; try again when it is ready")
        if len(managed.runs) >= self._settings.queue_limit:
            raise Overloaded(
                f"the deployment `{managed.id}` has {len(managed.runs)} unfinished runs; try again shortly"
            )
        run = LiveRun(submit, managed.id, managed.process.send)
        managed.process.send(submit)
        managed.runs[run.id] = run
        self._runs.add(run)
        return run

    async def drain(self, seconds: float) -> None:
        """Take nothing new; returns when no run is unfinished, or after `seconds`."""
        self.draining = True
        waits = [asyncio.create_task(_ended(run)) for run in self._runs.unfinished]
        if waits:
            _, late = await asyncio.wait(waits, timeout=seconds)
            for task in late:
                task.cancel()

    # ── keeping it so ───────────────────────────────────────────────────────────────────────────

    def _keep(self, managed: Managed) -> None:
        self._managed[managed.id] = managed
        managed.task = asyncio.create_task(self._supervise(managed), name=f"deployment {managed.id}")

    async def _supervise(self, managed: Managed) -> None:
        restarts: deque[float] = deque()
        backoff = BACKOFF_FIRST
        while managed.wanted:
            ended = await self._serve(managed)
            if not managed.wanted or ended is None or managed.state == "failed":
                return
            now = time.monotonic()
            restarts.append(now)
            while restarts[0] < now - RESTART_WINDOW:
                restarts.popleft()
            if len(restarts) > MAX_RESTARTS:
                self._tell(managed, "failed", f"it ended {len(restarts)} times in a minute; see its log")
                return
            backoff = BACKOFF_FIRST if len(restarts) == 1 else min(backoff * 2, BACKOFF_LAST)
            managed.restarts += 1
            self._tell(managed, "starting", f"its process ended (exit code {ended}); starting it again")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(managed.unwanted.wait(), backoff)

    async def _serve(self, managed: Managed) -> int | None:
        """Start it and wait for its end; the exit code, or None where it can't be started."""
        exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        try:
            plan = managed.plan or await self._judge_again(managed)
            managed.process = await self._spawn(
                self._directory(managed.id),
                self._spec(managed, plan),
                lambda message: self._take(managed, message),
                exited.set_result,
            )
        except WalkgraphError as error:
            self._tell(managed, "failed", str(error))
            return None
        except OSError as error:
            _log.error("deployment not started", deployment=managed.id, exc_info=error)
            self._tell(managed, "failed", "its process could not be started; the service's log says why")
            return None
        _log.info("deployment started", deployment=managed.id, pid=managed.process.pid)
        if not managed.wanted:
            await managed.process.stop(0)
        code = await exited
        _log.info("deployment ended", deployment=managed.id, code=code)
        managed.process = None
        self._lose_runs(managed)
        return code

    async def _judge_again(self, managed: Managed) -> Plan:
        """After a restart of the service the package, or the machine, may be another one."""
        judged = await anyio.to_thread.run_sync(judge, managed.graph_document, managed.placement_document, self.plans())
        made = deployable(judged)
        managed.graph, managed.plan = judged.graph, made
        return made

    def _spec(self, managed: Managed, plan: Plan) -> DeploymentSpec:
        return DeploymentSpec(
            name=managed.id,
            graph=managed.graph_document,
            plan=plan,
            checkpoint_roots=tuple(str(root) for root in self._settings.checkpoint_roots),
            telemetry_address=self._telemetry_address,
            limits=Limits(queue=self._settings.queue_limit, load_deadline=self._settings.start_timeout),
        )

    def _directory(self, id_: str) -> Path:
        # Short, whatever the id: unix sockets lie in it.
        return self._settings.home / "d" / hashlib.sha256(id_.encode()).hexdigest()[:10]

    def _take(self, managed: Managed, message: m.FromConductor) -> None:
        match message:
            case m.Status():
                managed.status = message
                self._announce(managed)
            case m.Accepted() | m.Output() | m.Rejected() | m.Finished():
                run = managed.runs.get(message.run)
                if run is not None:
                    run.take(message)
                    self._note(managed, run)

    def _note(self, managed: Managed, run: LiveRun) -> None:
        if run.finished is not None and managed.runs.pop(run.id, None) is not None:
            self._runs.ended(run)
            frame = {"run": run.id, "task": run.task, "state": run.state, "seconds": run.finished.seconds}
            self._hub.publish(managed.id, {"type": "run", **frame})

    def _lose_runs(self, managed: Managed) -> None:
        error = ErrorInfo(
            code="shutting_down" if self.draining or not managed.wanted else "worker_lost",
            message="the deployment ended before this run did; try again",
            retryable=True,
        )
        for run in list(managed.runs.values()):
            run.take(m.Finished(run=run.id, error=error, seconds=time.time() - run.created_at))
            self._note(managed, run)

    def _tell(self, managed: Managed, state: Any, reason: str) -> None:
        managed.status = m.Status(state=state, ranks=(), reason=reason)
        _log.info("deployment", deployment=managed.id, state=state, reason=reason)
        self._announce(managed)

    def _announce(self, managed: Managed) -> None:
        managed.revision += 1
        managed.changed.set()
        managed.changed = asyncio.Event()
        self._hub.publish(managed.id, {"type": "deployment", **managed.public()})

    async def _stop(self, managed: Managed, grace: float) -> None:
        # The task is not cancelled: it may be about to start the process, and then stops it itself.
        managed.unwanted.set()
        if managed.process is not None:
            await managed.process.stop(grace)
        if managed.task is not None:
            await asyncio.wait([managed.task])
        self._lose_runs(managed)
        self._tell(managed, "stopped", "the service is shutting down" if self.draining else "undeployed")


async def _ended(run: LiveRun) -> None:
    with contextlib.suppress(RunFailed, InvalidInput):
        await run.ended()
