"""One version of a deployment: the documents it is made from, its process, its runs.

A version knows nothing of other versions, nor of what is wanted: `switching` says when it starts and when it ends.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Self

import anyio.to_thread
import msgspec
import structlog

from walkgraph.conductor.runs.watching import Places
from walkgraph.errors import WalkgraphError
from walkgraph.graph.document import Graph
from walkgraph.placement.tables import Plan
from walkgraph.service.deployments.judging import Judged, deployable, judge
from walkgraph.service.deployments.supervisor import Process, Spawn, State, Supervisor
from walkgraph.service.deployments.version_runs import VersionRuns
from walkgraph.service.http.problems import Unavailable
from walkgraph.service.observe.hub import Hub
from walkgraph.service.observe.watching import Watched
from walkgraph.service.runs.runs import LiveRun, Runs
from walkgraph.service.shutdown import Shutdown
from walkgraph.settings import Settings
from walkgraph.store.tables import Deployment
from walkgraph.wire import messages as m
from walkgraph.wire.fault_points import read_fault
from walkgraph.wire.spec import DeploymentSpec, Limits

ASK_SECONDS = 5.0
"""A conductor answers what it is asked between two events."""

_numbers = count(1)
"""Of versions and of questions to them, since this service began."""

_log = structlog.get_logger("walkgraph.deployments")


@dataclass(frozen=True)
class Around:
    """What every version of every deployment works with."""

    settings: Settings
    spawn: Spawn
    runs: Runs
    hub: Hub
    shutdown: Shutdown
    reserved: Callable[[], list[Plan]]
    """Plans of all versions that hold memory."""
    run_ended: Callable[[LiveRun], None]
    telemetry_address: str | None = None
    judging: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held from what is reserved to the plan that is reserved next: two at once would count the same memory as free."""


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
        self.runs = VersionRuns(id_, around.runs, around.hub, around.run_ended)
        self._around = around
        self._changed = changed
        self._watched = watched
        self._asked: dict[int, asyncio.Future[m.SessionsTold]] = {}
        self._places: Places | None = None
        self._supervisor = Supervisor(self)

    @property
    def state(self) -> str:
        return self.status.state

    @property
    def process(self) -> Process | None:
        """None while there is none."""
        return self._supervisor.process

    @property
    def restarts(self) -> int:
        """How often its process was started anew."""
        return self._supervisor.restarts

    @property
    def holds_memory(self) -> bool:
        """Or is about to."""
        return self.state == "starting" or (self.process is not None and self.state != "failed")

    @property
    def places(self) -> Places | None:
        """Where it can be looked at; None until it was judged on this start."""
        if self._places is None and self.plan is not None:
            self._places = Places(self.plan)
        return self._places

    def start(self, after: Awaitable[None] | None = None) -> None:
        """Begin to keep it running; returns at once. `after` is waited for first."""
        self._supervisor.start(after)

    async def stop(self, grace: float, reason: str | None) -> None:
        """Let its runs finish for up to `grace` seconds, then end it; `reason` None leaves its last status."""
        await self._supervisor.stop(grace)
        self.runs.lose(shutting_down=True)
        if reason is not None:
            self.tell("stopped", reason)

    def fail(self, reason: str) -> None:
        """Give it up; it is for the caller to stop it."""
        self._supervisor.give_up()
        self.tell("failed", reason)

    def not_serving(self) -> Unavailable:
        """What is to be raised for who asks it something."""
        if self.state == "failed":
            reason = (self.status.reason or "its log says why").rstrip(".")
            message = f"the deployment `{self.id}` has failed ({reason}); deploy it anew"
            return Unavailable(message, "refused", retryable=False)
        return Unavailable(f"the deployment `{self.id}` is {self.state}; try again when it is ready")

    def submit(self, message: m.Submit) -> LiveRun:
        """Hand a run over. Raises Unavailable where it isn't serving."""
        return self.runs.submit(message, self._serving_process().send)

    async def sessions(self, end: str | None = None) -> m.SessionsTold:
        """What it keeps between runs; `end`: this one is to be over. Raises Unavailable where it isn't serving, or
        doesn't answer."""
        process = self._serving_process()
        number = next(_numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            process.send(m.AskSessions(number=number, end=end))
            async with asyncio.timeout(ASK_SECONDS):
                return await self._asked[number]
        except TimeoutError:
            raise Unavailable(f"the deployment `{self.id}` has not answered in time; try again") from None
        finally:
            del self._asked[number]

    def tell_watched(self) -> None:
        """Pass on what is wanted to be seen."""
        if self.process is None or self.places is None:
            return
        try:
            self.process.send(self._watched.message(self.places))
        except WalkgraphError as error:
            # It is told as a whole: the next change, or start, makes up for it.
            _log.warning("deployment not told what to watch", deployment=self.id, reason=str(error))

    # ── for its supervisor ──────────────────────────────────────────────────────────────────────

    async def launch(self, exited: Callable[[int], None]) -> tuple[Process, DeploymentSpec]:
        """Start its process. Raises WalkgraphError where it can't be deployed any more."""
        around = self._around
        if self.plan is None:
            # After a restart of the service the package, or the machine, may be another one.
            documents, roots = self.documents, around.settings.checkpoint_roots
            async with around.judging:
                reserved = around.reserved()
                judged = await anyio.to_thread.run_sync(judge, documents.graph, documents.placement, reserved, roots)
                self.plan = deployable(judged)
                self.graph = judged.graph
        spec = self._spec(self.plan)
        return await around.spawn(self.directory, spec, self._take, exited), spec

    def started(self, spec: DeploymentSpec) -> None:
        """Tell its process what is watched, where the spec doesn't say so."""
        if self.places and self._watched.message(self.places) != m.Watch(level=spec.telemetry_level):
            self.tell_watched()

    def ended(self) -> None:
        """End its runs."""
        self.runs.lose(shutting_down=self._around.shutdown.begun or not self._supervisor.wanted)

    def tell(self, state: State, reason: str) -> None:
        """Change its status."""
        self.status = m.Status(state=state, ranks=(), reason=reason)
        _log.info("deployment", deployment=self.id, state=state, reason=reason)
        self._changed(self)

    def _serving_process(self) -> Process:
        if self.process is None or self.state not in ("ready", "degraded"):
            raise self.not_serving()
        return self.process

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
            fault=None if settings.fault is None else read_fault(settings.fault),
            limits=Limits(queue=settings.queue_limit, load_deadline=settings.start_timeout),
        )

    def _take(self, message: m.FromConductor) -> None:
        match message:
            case m.Status():
                # What failed stays so when its process is told to end.
                if (self.state, message.state) != ("failed", "stopped"):
                    self.status = message
                    self._changed(self)
            case m.SessionsTold():
                asked = self._asked.get(message.number)
                if asked is not None and not asked.done():
                    asked.set_result(message)
            case _:
                self.runs.take(message)
