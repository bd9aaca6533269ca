"""One version of a deployment: its documents, its process, its runs.

A version knows neither the other versions nor the stored state: `switching` decides when it starts and ends.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Self

import anyio.to_thread
import msgspec
import structlog

from walkgraph.conductor.runs.watching import Places
from walkgraph.errors import WalkgraphError
from walkgraph.graph.catalogue import is_task
from walkgraph.graph.document import Graph
from walkgraph.placement.document import named_hosts
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.succession import same_processes
from walkgraph.placement.tables import Plan
from walkgraph.service.calls.task_calls import TaskCalls
from walkgraph.service.deployments.asking import Asking, Waits
from walkgraph.service.deployments.judging import FindHosts, Judged, deployable, judge
from walkgraph.service.deployments.supervisor import Process, Spawn, State, Supervisor
from walkgraph.service.deployments.task_graphs import TaskGraphs
from walkgraph.service.deployments.version_runs import VersionRuns
from walkgraph.service.http.problems import Unavailable
from walkgraph.service.observe.hub import Hub
from walkgraph.service.observe.watching import Watched
from walkgraph.service.outward.serving import OutwardCalls
from walkgraph.service.runs.runs import LiveRun, Runs
from walkgraph.service.shutdown import Shutdown
from walkgraph.settings import Settings
from walkgraph.store.tables import Deployment
from walkgraph.wire import messages as m
from walkgraph.wire.fault_points import read_fault
from walkgraph.wire.processes.host_hardware import HostsUnknown, addresses_of, is_lost, network_of
from walkgraph.wire.processes.host_network import HostNetwork
from walkgraph.wire.questions import Move
from walkgraph.wire.spec import DeploymentSpec, Limits

ASK_SECONDS = 5.0
"""Timeout of a question to a conductor, which answers between two events."""

_numbers = count(1)
"""Numbers of versions and of questions to them, since the service's start."""

_log = structlog.get_logger("walkgraph.deployments")


@dataclass(frozen=True)
class Around:
    """The services that all versions of all deployments share."""

    settings: Settings
    spawn: Spawn
    runs: Runs
    hub: Hub
    shutdown: Shutdown
    reserved: Callable[[], list[Plan]]
    """Plans of all versions that hold memory."""
    run_ended: Callable[[LiveRun], None]
    calls: TaskCalls
    outward: OutwardCalls
    waits: Waits
    graphs: TaskGraphs
    hosts: FindHosts
    telemetry_address: str | None = None
    judging: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held from reading the reserved memory until the new plan is reserved: otherwise two plans could count on the same
    memory. Waiters get it in their order: at the service's start the stored deployments come before any that is
    created then."""


@dataclass(frozen=True)
class Documents:
    """The documents of a version as they were given."""

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

    def placed(self, placement: dict[str, Any]) -> Self:
        """The same with this placement."""
        return replace(self, placement=placement)

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
        *,
        scratch: bool = False,
    ) -> None:
        """`directory`: the process's folder; no other living version has it. `changed` is called at every change of
        `status`. `watched`: the deployment's. `judged`: None if the documents are not judged yet since the service's
        start. `scratch`: it belongs to a scratch deployment."""
        self.id = id_
        """The deployment's id."""
        self.documents = documents
        self.directory = directory
        self.label = f"{id_} v{next(_numbers)}"
        """Its name in telemetry packets."""
        self.taking = TakingUp(self, changed)
        self._hardware = judged.hardware if judged else None
        """The hosts that were planned for, until its process is first started there."""
        self.graph: Graph | None = judged.graph if judged else None
        """None until it is judged after the service's start."""
        self.plan: Plan | None = judged.plan if judged else None
        self.status = m.Status(state="starting", ranks=())
        self.asking = Asking(self, around.waits)
        self.runs = VersionRuns(id_, around.runs, around.hub, around.run_ended, self.asking.waits)
        self._around = around
        self._changed = changed
        self._watched = watched
        self._scratch = scratch
        self.questions = Questions(self)
        self._places: tuple[Plan, Places] | None = None
        self._supervisor = Supervisor(self, has_run=judged is None)

    @property
    def state(self) -> str:
        return self.status.state

    @property
    def process(self) -> Process | None:
        """Its process; None while there is none."""
        return self._supervisor.process

    @property
    def restarts(self) -> int:
        """Restarts of its process."""
        return self._supervisor.restarts

    @property
    def holds_memory(self) -> bool:
        """True if it holds memory or is about to."""
        return self.state == "starting" or (self.process is not None and self.state != "failed")

    @property
    def places(self) -> Places | None:
        """Places for taps and breakpoints; None until it is judged after the service's start."""
        if self.plan is None:
            return None
        if self._places is None or self._places[0] is not self.plan:
            self._places = self.plan, Places(self.plan)
        return self._places[1]

    def start(self, after: Awaitable[None] | None = None) -> None:
        """Starts to keep its process running; returns at once. Waits for `after` first."""
        self._supervisor.start(after)

    async def stop(self, grace: float, reason: str | None) -> None:
        """Lets its runs finish for up to `grace` seconds, then ends it. With `reason` None it keeps its last status."""
        await self._supervisor.stop(grace)
        self.runs.lose(shutting_down=True)
        if reason is not None:
            self.tell("stopped", reason)

    def fail(self, reason: str) -> None:
        """Marks it as failed. The caller must stop it."""
        self._supervisor.give_up()
        self.tell("failed", reason)

    def not_serving(self) -> Unavailable:
        """The error for requests while it isn't serving."""
        if self.state == "failed":
            reason = (self.status.reason or "its log says why").rstrip(".")
            message = f"the deployment `{self.id}` has failed ({reason}); deploy it anew"
            return Unavailable(message, "refused", retryable=False)
        return Unavailable(f"the deployment `{self.id}` is {self.state}; try again when it is ready")

    def submit(self, message: m.Submit) -> LiveRun:
        """Submits a run. Raises Unavailable if it isn't serving."""
        return self.runs.submit(message, self.serving_process().send)

    def tell_watched(self) -> None:
        """Sends the taps, breakpoints and level to its process."""
        if self.process is None or self.places is None:
            return
        try:
            self.process.send(self._watched.message(self.places))
        except WalkgraphError as error:
            # Each message holds the whole state: the next change or start repeats it.
            _log.warning("deployment not told what to watch", deployment=self.id, reason=str(error))

    # ── for its supervisor ──────────────────────────────────────────────────────────────────────

    async def launch(self, exited: Callable[[int], None]) -> tuple[Process, DeploymentSpec]:
        """Starts its process. Raises WalkgraphError if it can no longer be deployed."""
        around = self._around
        hardware, self._hardware = self._hardware, None
        if self.plan is not None:
            hardware = hardware or await around.hosts()
            if hardware is not None and is_lost(self.plan, hardware):
                self.plan = None
        plan = self.plan
        if plan is None:
            plan, hardware = await self._judged()
        spec = self._spec(plan, None if hardware is None else network_of(plan, hardware))
        return await around.spawn(self.directory, spec, self._take, exited), spec

    async def _judged(self) -> tuple[Plan, Hardware | None]:
        """Judges documents that were right before: after a restart of the service, the package or the machine may have
        changed; after one of its process, a host may be lost. Raises HostsUnknown while it waits for hosts, and
        Unprocessable."""
        around, documents, roots = self._around, self.documents, self._around.settings.checkpoint_roots
        known = await around.graphs.around(documents.graph)
        async with around.judging:
            hardware = await around.hosts()
            if hardware is not None:
                addresses_of(named_hosts(documents.placement), hardware)
            given = documents.graph, documents.placement, around.reserved(), roots, hardware, known
            judged = await anyio.to_thread.run_sync(judge, *given)
            without = next((one for one in judged.placement_problems if one.code == "no_host"), None)
            if without is not None:
                raise HostsUnknown(without.message)
            self.plan = deployable(judged)
            self.graph = judged.graph
        return self.plan, hardware

    def started(self, spec: DeploymentSpec) -> None:
        """Sends the taps, breakpoints and level to its process if they differ from the spec's."""
        if self.places and self._watched.message(self.places) != m.Watch(level=spec.telemetry_level):
            self.tell_watched()

    def ended(self) -> None:
        """Ends its runs."""
        self.taking.lost()
        self.runs.lose(shutting_down=self._around.shutdown.begun or not self._supervisor.wanted)

    def tell(self, state: State, reason: str) -> None:
        """Changes its status."""
        self.status = m.Status(state=state, ranks=(), reason=reason)
        _log.info("deployment", deployment=self.id, state=state, reason=reason)
        self._changed(self)

    def serving_process(self) -> Process:
        """Its process. Raises Unavailable if it isn't serving."""
        if self.process is None or self.state not in ("ready", "degraded"):
            raise self.not_serving()
        return self.process

    def _spec(self, plan: Plan, network: HostNetwork | None) -> DeploymentSpec:
        settings, scratch = self._around.settings, self._scratch
        return DeploymentSpec(
            name=self.id,
            graph=self.documents.graph,
            plan=plan,
            checkpoint_roots=tuple(str(root) for root in settings.checkpoint_roots),
            telemetry_address=self._around.telemetry_address,
            telemetry_name=self.label,
            telemetry_level=self._watched.level,
            batch_invariant=settings.batch_invariant,
            numa_binding=settings.numa_binding,
            changing=scratch,
            shared_pages=settings.shared_pages == "deployment",
            network=network,
            fault=None if settings.fault is None else read_fault(settings.fault),
            limits=Limits(
                queue=settings.queue_limit,
                load_deadline=settings.start_timeout,
                kept_bytes=settings.kept_results,
            ),
        )

    def _take(self, message: m.FromConductor) -> None:
        match message:
            case m.Status():
                # A failed version stays failed when its process ends.
                if (self.state, message.state) != ("failed", "stopped"):
                    self.status = message
                    self._changed(self)
            case m.SessionsTold() | m.QueueTold():
                self.questions.told(message)
            case m.TakenUp():
                self.taking.told(message)
            case m.CallTask():
                run = self.runs.get(message.run)
                if run is not None:
                    around = self._around
                    calls = around.calls if is_task(message.task) else around.outward
                    calls.begin(self, run, message)
            case _:
                self.runs.take(message)


def serves(plan: Plan | None, ranks: Iterable[m.RankStatus]) -> bool:
    """True if runs find replicas of all nodes on ranks that are ready."""
    ready = {rank.rank for rank in ranks if rank.state == "ready"}
    return plan is not None and any(ready.issuperset(one.ranks) for one in plan.alternatives)


class Questions:
    """Questions to the process of a version. Each raises Unavailable if it isn't serving, or doesn't answer."""

    def __init__(self, version: Version) -> None:
        self._version = version
        self._asked: dict[int, asyncio.Future[Any]] = {}

    async def sessions(self, end: str | None = None) -> m.SessionsTold:
        """The sessions that it keeps. `end`: a session to end."""
        return await self._answer(lambda number: m.AskSessions(number=number, end=end))

    async def queue(self, move: Move | None = None) -> m.QueueTold:
        """The runs that wait to be admitted. `move`: done before."""
        return await self._answer(lambda number: m.AskQueue(number=number, move=move))

    def told(self, message: m.SessionsTold | m.QueueTold) -> None:
        asked = self._asked.get(message.number)
        if asked is not None and not asked.done():
            asked.set_result(message)

    async def _answer(self, question: Callable[[int], m.Questions]) -> Any:
        process = self._version.serving_process()
        number = next(_numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            process.send(question(number))
            async with asyncio.timeout(ASK_SECONDS):
                return await self._asked[number]
        except TimeoutError:
            raise Unavailable(f"the deployment `{self._version.id}` has not answered in time; try again") from None
        finally:
            del self._asked[number]


@dataclass(frozen=True)
class _Content:
    """The documents that a version serves."""

    documents: Documents
    graph: Graph | None
    plan: Plan | None
    label: str


class TakingUp:
    """The state of a version's process that takes up other documents."""

    def __init__(self, version: Version, changed: Callable[[Version], None]) -> None:
        self._version, self._changed = version, changed
        self._former: _Content | None = None
        """The documents that it served before."""
        self._number = 0
        self._taken: asyncio.Future[None] | None = None
        """Waited for by whoever has begun it; None while nothing is being taken up."""

    def knows(self, label: str) -> bool:
        """True for the version's name in telemetry packets, and the one that it had before."""
        return label == self._version.label or (self._former is not None and label == self._former.label)

    def can(self, judged: Judged) -> bool:
        """True if the version's process can serve another plan without a new start."""
        version = self._version
        alive = version.process is not None and version.process.alive and version.state != "failed"
        if not alive or self._taken is not None or version.plan is None or judged.plan is None:
            return False
        return same_processes(version.plan, judged.plan)

    def begin(self, documents: Documents, judged: Judged) -> asyncio.Future[None]:
        """Has the process serve other documents; its runs are cancelled, and its sessions end. The result is there once
        it serves them. If it can't, the former ones go on, and the result is Unavailable."""
        version, plan = self._version, deployable(judged)
        if version.process is None:
            raise version.not_serving()
        self._number = next(_numbers)
        label = f"{version.id} v{self._number}"
        version.process.send(m.TakeUp(number=self._number, graph=documents.graph, plan=plan, telemetry_name=label))
        self._former = _Content(version.documents, version.graph, version.plan, version.label)
        self._serve(_Content(documents, judged.graph, plan, label))
        self._taken = asyncio.get_running_loop().create_future()
        return self._taken

    def told(self, message: m.TakenUp) -> None:
        """Handles the conductor's answer."""
        if self._taken is None or message.number != self._number or self._former is None:
            return
        if message.error is not None:
            self._serve(self._former)
            self._refuse(message.error.message)
        elif not self._taken.done():
            self._taken.set_result(None)
        self._taken = None
        self._version.tell_watched()
        self._changed(self._version)

    def lost(self) -> None:
        """Handles the end of the process; its next one serves the new documents."""
        self._refuse("its processes ended; run again")
        self._taken = None

    def _refuse(self, reason: str) -> None:
        if self._taken is not None and not self._taken.done():
            error = Unavailable(f"the graph can't be run: {reason}", "refused", retryable=False)
            self._taken.set_exception(error)

    def _serve(self, wanted: _Content) -> None:
        version = self._version
        version.documents, version.graph, version.plan = wanted.documents, wanted.graph, wanted.plan
        version.label = wanted.label
        version.asking.forget()
