"""One version of a deployment: the documents it is made from, its process, its runs, and the task that keeps it so.

A process that ends is started anew, after 0.5 s, doubling to 8 s; five times a minute at most. A version knows nothing
of other versions, nor of what is wanted: `deployments` says when it starts and when it ends.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol, Self

import anyio.to_thread
import msgspec
import structlog

from walkgraph.conductor.runs.watching import Places
from walkgraph.errors import ErrorInfo, WalkgraphError
from walkgraph.graph.document import Graph
from walkgraph.ids import RunId
from walkgraph.placement.tables import Plan
from walkgraph.service.deployments.judging import Judged, deployable, judge
from walkgraph.service.http.problems import Unavailable
from walkgraph.service.observe.hub import Hub
from walkgraph.service.observe.watching import Watched
from walkgraph.service.runs.runs import LiveRun, Runs, paused_of
from walkgraph.settings import Settings
from walkgraph.store.tables import Deployment
from walkgraph.wire import messages as m
from walkgraph.wire.spec import DeploymentSpec, Limits

BACKOFF_FIRST = 0.5
BACKOFF_LAST = 8.0
MAX_RESTARTS = 5
RESTART_WINDOW = 60.0
ASK_SECONDS = 5.0
"""A conductor answers what it is asked between two events."""

_numbers = count(1)
"""Of versions and of questions to them, since this service began."""

_log = structlog.get_logger("walkgraph.deployments")


class Process(Protocol):
    """A running deployment process."""

    pid: int

    @property
    def alive(self) -> bool: ...

    def send(self, message: m.ToConductor) -> None: ...

    async def stop(self, grace: float) -> None: ...


Spawn = Callable[[Path, DeploymentSpec, Callable[[m.FromConductor], None], Callable[[int], None]], Awaitable[Process]]


@dataclass(frozen=True)
class Around:
    """What every version of every deployment works with."""

    settings: Settings
    spawn: Spawn
    runs: Runs
    hub: Hub
    reserved: Callable[[], list[Plan]]
    """Plans of all versions that hold memory."""
    draining: Callable[[], bool]
    run_ended: Callable[[LiveRun], None]
    telemetry_address: str | None = None


@dataclass(frozen=True)
class Documents:
    """What a version is made from, as it was given."""

    graph_name: str
    graph: dict[str, Any]
    placement_name: str
    placement: dict[str, Any]

    @classmethod
    def of(cls, row: Deployment) -> Self:
        return cls(
            row.graph_name,
            msgspec.json.decode(row.graph_text),
            row.placement_name,
            msgspec.json.decode(row.placement_text),
        )

    def row(self, id_: str, created_at: float) -> Deployment:
        return Deployment(
            id=id_,
            graph_name=self.graph_name,
            graph_text=msgspec.json.encode(self.graph).decode(),
            placement_name=self.placement_name,
            placement_text=msgspec.json.encode(self.placement).decode(),
            created_at=created_at,
        )


class Version:
    def __init__(
        self,
        id_: str,
        documents: Documents,
        directory: Path,
        around: Around,
        changed: Callable[["Version"], None],
        watched: Watched,
        judged: Judged | None = None,
    ) -> None:
        """`directory`: of its process, shared with no other living version. `changed` is called at every change of
        `status`. `watched`: the deployment's. `judged`: None where it is still to be judged on this start of the
        service."""
        self.id = id_
        """The deployment's."""
        self.documents = documents
        self.directory = directory
        self.label = f"{id_} v{next(_numbers)}"
        """What its telemetry calls it."""
        self.graph: Graph | None = judged.graph if judged else None
        """None until it was judged on this start."""
        self.plan: Plan | None = judged.plan if judged else None
        self.status = m.Status(state="starting", ranks=())
        self.restarts = 0
        self.process: Process | None = None
        self.runs: dict[RunId, LiveRun] = {}
        self._around = around
        self._changed = changed
        self._watched = watched
        self._asked: dict[int, asyncio.Future[m.SessionsTold]] = {}
        self._places: Places | None = None
        self._unwanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        return self.status.state

    @property
    def holds_memory(self) -> bool:
        """Or is about to."""
        return self.state == "starting" or (self.process is not None and self.state != "failed")

    def start(self, after: Awaitable[None] | None = None) -> None:
        """Begin to keep it running; returns at once. `after` is waited for first."""
        self._task = asyncio.create_task(self._supervise(after), name=f"deployment {self.id}")
        self._task.add_done_callback(self._ended)

    async def stop(self, grace: float, reason: str | None) -> None:
        """Let its runs finish for up to `grace` seconds, then end it; `reason` None leaves its last status."""
        # The task is not cancelled: it may be about to start the process, and then stops it itself.
        self._unwanted.set()
        if self.process is not None:
            await self.process.stop(grace)
        if self._task is not None:
            await asyncio.wait([self._task])
        self.lose_runs()
        if reason is not None:
            self._tell("stopped", reason)

    def fail(self, reason: str) -> None:
        """Give it up; it is for the caller to stop it."""
        self._unwanted.set()
        self._tell("failed", reason)

    def not_serving(self) -> Unavailable:
        """What is to be raised for who asks it something."""
        if self.state == "failed":
            reason = (self.status.reason or "its log says why").rstrip(".")
            message = f"the deployment `{self.id}` has failed ({reason}); deploy it anew"
            return Unavailable(message, "refused", retryable=False)
        return Unavailable(f"the deployment `{self.id}` is {self.state}; try again when it is ready")

    def submit(self, message: m.Submit) -> LiveRun:
        """Hand a run over. Raises Unavailable where it isn't serving."""
        if self.process is None or self.state not in ("ready", "degraded"):
            raise self.not_serving()
        run = LiveRun(message, self.id, self.process.send)
        self.process.send(message)
        self.runs[run.id] = run
        self._around.runs.add(run)
        return run

    async def sessions(self, end: str | None = None) -> m.SessionsTold:
        """What it keeps between runs; `end`: this one is to be over. Raises Unavailable where it isn't serving, or
        doesn't answer."""
        if self.process is None or self.state not in ("ready", "degraded"):
            raise self.not_serving()
        number = next(_numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self.process.send(m.AskSessions(number=number, end=end))
            async with asyncio.timeout(ASK_SECONDS):
                return await self._asked[number]
        except TimeoutError:
            raise Unavailable(f"the deployment `{self.id}` has not answered in time; try again") from None
        finally:
            del self._asked[number]

    @property
    def places(self) -> Places | None:
        """Where it can be looked at; None until it was judged on this start."""
        if self._places is None and self.plan is not None:
            self._places = Places(self.plan)
        return self._places

    def tell_watched(self) -> None:
        """What is wanted to be seen has changed."""
        if self.process is None or self.places is None:
            return
        try:
            self.process.send(self._watched.message(self.places))
        except WalkgraphError as error:
            # It is told as a whole: the next change, or start, makes up for it.
            _log.warning("deployment not told what to watch", deployment=self.id, reason=str(error))

    def lose_runs(self) -> None:
        """End what runs with an error that says to try again."""
        error = ErrorInfo(
            code="shutting_down" if self._around.draining() or not self._wanted else "worker_lost",
            message="the deployment ended before this run did; try again",
            retryable=True,
        )
        for run in list(self.runs.values()):
            run.take(m.Finished(run=run.id, error=error, seconds=time.time() - run.created_at))
            self._note(run)

    def ranks(self) -> list[dict[str, Any]]:
        devices = {entry.rank: entry.device for entry in self.plan.ranks} if self.plan else {}
        found = [msgspec.to_builtins(rank) | {"device": devices.get(rank.rank)} for rank in self.status.ranks]
        for rank in found:
            rank.pop("type", None)
        return found

    def public(self) -> dict[str, Any]:
        """As the version that is to come."""
        return {
            "state": self.state,
            "reason": self.status.reason,
            "ranks": self.ranks(),
            "graph": self.documents.graph_name,
            "placement": self.documents.placement_name,
            "restarts": self.restarts,
            "digest": self.plan.digest if self.plan else None,
        }

    # ── keeping it so ───────────────────────────────────────────────────────────────────────────

    @property
    def _wanted(self) -> bool:
        return not self._unwanted.is_set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A defect of the service ends the keeping of this version: nobody may wait for it any more."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("deployment not kept running", deployment=self.id, exc_info=error)
            self._tell("failed", "the service failed while it started this; its log says why")

    async def _supervise(self, after: Awaitable[None] | None) -> None:
        if after is not None:
            await after
        restarts: deque[float] = deque()
        backoff = BACKOFF_FIRST
        while self._wanted:
            ended = await self._serve()
            if not self._wanted or ended is None or self.state == "failed":
                return
            now = time.monotonic()
            restarts.append(now)
            while restarts[0] < now - RESTART_WINDOW:
                restarts.popleft()
            if len(restarts) > MAX_RESTARTS:
                self._tell("failed", f"it ended {len(restarts)} times in a minute; see its log")
                return
            backoff = BACKOFF_FIRST if len(restarts) == 1 else min(backoff * 2, BACKOFF_LAST)
            self.restarts += 1
            self._tell("starting", f"its process ended (exit code {ended}); starting it again")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._unwanted.wait(), backoff)

    async def _serve(self) -> int | None:
        """Start it and wait for its end; the exit code, or None where it can't be started."""
        exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        try:
            spec = self._spec(self.plan or await self._judge())
            self.process = await self._around.spawn(self.directory, spec, self._take, exited.set_result)
        except WalkgraphError as error:
            self._tell("failed", str(error))
            return None
        except OSError as error:
            _log.error("deployment not started", deployment=self.id, exc_info=error)
            self._tell("failed", "its process could not be started; the service's log says why")
            return None
        _log.info("deployment started", deployment=self.id, pid=self.process.pid)
        if self.places and self._watched.message(self.places) != m.Watch(level=spec.telemetry_level):
            self.tell_watched()
        if not self._wanted:
            await self.process.stop(0)
        code = await exited
        _log.info("deployment ended", deployment=self.id, code=code)
        self.process = None
        self.lose_runs()
        return code

    async def _judge(self) -> Plan:
        """After a restart of the service the package, or the machine, may be another one."""
        documents, roots = self.documents, self._around.settings.checkpoint_roots
        reserved = self._around.reserved()
        judged = await anyio.to_thread.run_sync(judge, documents.graph, documents.placement, reserved, roots)
        self.plan = deployable(judged)
        self.graph = judged.graph
        return self.plan

    def _spec(self, plan: Plan) -> DeploymentSpec:
        settings = self._around.settings
        return DeploymentSpec(
            name=self.id,
            graph=self.documents.graph,
            plan=plan,
            checkpoint_roots=tuple(str(root) for root in settings.checkpoint_roots),
            telemetry_address=self._around.telemetry_address,
            telemetry_name=self.label,
            telemetry_level=self._watched.level,
            batch_invariant=settings.batch_invariant,
            limits=Limits(queue=settings.queue_limit, load_deadline=settings.start_timeout),
        )

    def _take(self, message: m.FromConductor) -> None:
        match message:
            case m.Status():
                # What failed stays so when its process is told to end.
                if (self.state, message.state) != ("failed", "stopped"):
                    self.status = message
                    self._changed(self)
            case m.Accepted() | m.Output() | m.Rejected() | m.Finished():
                run = self.runs.get(message.run)
                if run is not None:
                    run.take(message)
                    self._note(run)
            case m.SessionsTold():
                asked = self._asked.get(message.number)
                if asked is not None and not asked.done():
                    asked.set_result(message)
            case m.Paused() | m.Resumed():
                run = self.runs.get(message.run)
                if run is not None:
                    run.paused = message if isinstance(message, m.Paused) else None
                    state = paused_of(run)
                    frame = {"type": "resumed"} if state is None else {"type": "paused", **state}
                    self._around.hub.publish(self.id, {**frame, "run": run.id})

    def _note(self, run: LiveRun) -> None:
        if run.finished is not None and self.runs.pop(run.id, None) is not None:
            self._around.runs.ended(run)
            self._around.run_ended(run)
            frame = {"run": run.id, "task": run.task, "state": run.state, "seconds": run.finished.seconds}
            self._around.hub.publish(self.id, {"type": "run", **frame})

    def _tell(self, state: Any, reason: str) -> None:
        self.status = m.Status(state=state, ranks=(), reason=reason)
        _log.info("deployment", deployment=self.id, state=state, reason=reason)
        self._changed(self)
