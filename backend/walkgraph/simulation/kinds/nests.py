"""Several deployments whose tasks call each other, with a simulated service between them, made from a seed.

    NestWorld(seed).run() ──> Outcome, or a Violation that names the seed

Pages are scarce and few runs may be admitted at a time, so that runs that wait would block those that they wait for if
anything let them. All must end nevertheless, without deadlines.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from walkgraph.components import catalogue
from walkgraph.errors import ErrorInfo
from walkgraph.graph import codec
from walkgraph.graph.check import check
from walkgraph.graph.checks.called import WithTasks
from walkgraph.graph.document import Graph
from walkgraph.ids import RunId
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.simulation.client import Chances
from walkgraph.simulation.deployment import SimulatedDeployment
from walkgraph.simulation.processes import REAL_PARTS, WorldParts
from walkgraph.simulation.rank.states import PAGE_TOKENS
from walkgraph.simulation.reference.synthetic import twins
from walkgraph.simulation.reference.task_nests import NestedTask, documents, random_tasks, wanted
from walkgraph.simulation.scenarios import Scenario
from walkgraph.simulation.simulator import Simulator
from walkgraph.simulation.world import LIMITS, READY_SECONDS, REST_SECONDS, Outcome
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits
from walkgraph.worker.io import values

GRAPHS = ("a", "b", "c")
MOST_RUNS = 6
"""Most runs of clients in a world."""
SPREAD_SECONDS = 0.2
SERVICE_SECONDS = 0.001
"""Longest time that the service takes with a message."""


class NestChances(NamedTuple):
    """Probabilities per run, or per world."""

    abort: float = 0.1
    deadline: float = 0.1
    kill: float = 0.1
    """A process of each deployment may be killed."""
    fail: float = 0.05
    """The first death of a process fails its deployment."""
    undeploy: float = 0.15
    """A deployment is stopped while others may call it."""


CALM = NestChances(0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class NestedRun:
    id: RunId
    number: int
    """The number of its task."""
    submit: m.Submit
    call: m.CallTask | None = None
    """The call that it serves; None for a client's run."""
    parent: "NestedRun | None" = None
    open: dict[RunId, "NestedRun"] = field(default_factory=dict[RunId, "NestedRun"])
    """The runs that it waits for."""
    outputs: dict[str, Any] = field(default_factory=dict[str, Any])
    over: bool = False
    error: ErrorInfo | None = None
    aborted: bool = False


class NestWorld:
    def __init__(self, seed: int, *, chances: NestChances | None = None, parts: WorldParts = REAL_PARTS) -> None:
        self._simulator = Simulator("nests", seed)
        self._chance, self._chances = self._simulator.chance, chances or NestChances()
        self._tasks = random_tasks(self._chance, GRAPHS[: self._chance.randint(1, len(GRAPHS))])
        self._pages = {task.graph: self._chance.randint(8, 16) for task in self._tasks}
        self._runs: dict[RunId, NestedRun] = {}
        self._states: dict[str, str] = {}
        self._failed = False
        """A deployment has failed."""
        self._gone: set[str] = set()
        """Deployments that were stopped."""
        self._planned = 0
        self._deployments = self._deployed(parts)

    def run(self) -> Outcome:
        deployments = self._deployments.values()
        for one in deployments:
            one.begin()
        self._until(lambda: set(self._states.values()) == {"ready"}, READY_SECONDS, "not all are ready")
        for number in range(self._chance.randint(1, MOST_RUNS)):
            self._after(self._chance.random() * SPREAD_SECONDS, partial(self._ask, number))
        for one in deployments:
            one.processes.disturb()
        if self._simulator.apart.random() < self._chances.undeploy:
            self._after(self._simulator.apart.random() * 2 * SPREAD_SECONDS, self._undeploy)
        self._until(lambda: not self._planned and all(run.over for run in self._runs.values()), REST_SECONDS, "a nest")
        self._until(lambda: all(map(_rests, deployments)), REST_SECONDS, "they don't come to rest")
        if kept := [line for one in deployments if not one.exited for line in one.left()]:
            raise self._simulator.fail("; ".join(kept))
        ends = Counter(self._checked(run) for run in self._runs.values() if run.parent is None)
        return Outcome(ends, self._simulator.counts, self._simulator.now)

    # ── deployments ──

    def _deployed(self, parts: WorldParts) -> dict[str, SimulatedDeployment]:
        given = documents(self._tasks)
        known = WithTasks(catalogue(), given)
        calm = Chances(unloadable=0.0, kill=self._chances.kill, hang=0.0, stall=0.0, fail=self._chances.fail)
        made: dict[str, SimulatedDeployment] = {}
        for name, document in given.items():
            if problems := check(document, known).errors:
                raise self._simulator.fail(f"the graph `{name}` has problems: {problems}")
            graph = codec.load(document)
            plan = assemble(Assignment(graph, self._placed(graph)), known)
            scenario = Scenario(name, graph, plan, partial(twins, graph), (), self._pages[name])
            tell = partial(self._take, name)
            made[name] = SimulatedDeployment(self._simulator, scenario, calm, parts, self._limits, tell)
        return made

    def _placed(self, graph: Graph) -> Placement:
        ranks = self._chance.randint(1, 2)
        apart = tuple(name for name in graph.nodes if name != "kv" and self._chance.randrange(ranks))
        groups = (Group(nodes=("*",), ranks=(0,)), *([Group(nodes=apart, ranks=(1,))] if apart else []))
        devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(1 + bool(apart)))
        return Placement(name="simulated", groups=groups, ranks=devices)

    def _limits(self, fragile: bool) -> Limits:
        limits = replace(LIMITS, restarts=0) if fragile else LIMITS
        return replace(limits, running=self._chance.choice((1, 1, 2, 4, 256)))

    def _undeploy(self) -> None:
        """Stops a deployment. The service refuses calls of its tasks from now on."""
        name = self._simulator.apart.choice(sorted(self._deployments))
        self._simulator.counts["deployments lost while others may call them"] += 1
        self._gone.add(name)
        self._deployments[name].send(m.Stop())

    # ── clients ──

    def _ask(self, number: int) -> None:
        chance, task = self._chance, self._chance.randrange(len(self._tasks))
        deadline = 0.02 + chance.random() if chance.random() < self._chances.deadline else None
        self._submit(
            RunId(f"r{number}"),
            task,
            m.Submit(
                run=RunId(f"r{number}"),
                task=self._tasks[task].name,
                params={},
                inputs={},
                deadline=deadline,
                priority=chance.choice((0, 0, 0, 1, 2)),
            ),
        )
        if chance.random() < self._chances.abort:
            self._after(chance.random() * 0.5, lambda: self._abort(self._runs[RunId(f"r{number}")]))

    def _abort(self, run: NestedRun) -> None:
        if not run.over:
            run.aborted = True
            self._to(run, m.Abort(run=run.id))

    # ── the service ──

    def _submit(
        self,
        name: RunId,
        number: int,
        submit: m.Submit,
        call: m.CallTask | None = None,
        parent: NestedRun | None = None,
    ) -> None:
        run = self._runs[name] = NestedRun(name, number, submit, call, parent)
        if parent is not None:
            parent.open[name] = run
        self._to(run, submit)

    def _to(self, run: NestedRun, message: m.ToConductor) -> None:
        if isinstance(message, m.Submit) and self._tasks[run.number].graph in self._gone:
            refused = ErrorInfo(code="not_found", message="its deployment was stopped")
            self._after(self._chance.random() * SERVICE_SECONDS, lambda: self._end(run, refused))
            return
        deployment = self._deployments[self._tasks[run.number].graph]
        self._after(self._chance.random() * SERVICE_SECONDS, lambda: deployment.send(message))

    def _take(self, deployment: str, message: m.FromConductor) -> None:
        if isinstance(message, m.Status):
            self._states[deployment] = message.state
            self._failed = self._failed or message.state == "failed"
            return
        if isinstance(message, m.Answered):
            return
        run = self._runs[message.run]
        match message:
            case m.CallTask():
                self._call(run, message)
            case m.Output():
                run.outputs[message.name] = values.unpack(message.value)
            case m.Rejected(error=error):
                self._end(run, error)
            case m.Finished(error=error):
                self._end(run, error)
            case _:
                pass

    def _call(self, run: NestedRun, call: m.CallTask) -> None:
        self._simulator.counts["calls of tasks"] += 1
        if run.over:
            return
        given = call.value.items if isinstance(call.value, m.Named) else {}
        number = next(i for i, one in enumerate(self._tasks) if f"{one.graph}/{one.name}" == call.task)
        name = RunId(f"{run.id}.{len(self._runs)}")
        submit = m.Submit(
            run=name,
            task=self._tasks[number].name,
            params={key: values.unpack(value) for key, value in given.items()} | dict(call.params),
            inputs={},
            outputs=call.outputs or None,
            priority=run.submit.priority,
            deadline=call.deadline,
            depth=run.submit.depth + 1,
        )
        self._simulator.counts[f"runs {submit.depth} deep"] += 1
        self._submit(name, number, submit, call, run)

    def _end(self, run: NestedRun, error: ErrorInfo | None) -> None:
        if run.over:
            raise self._simulator.fail("it ends twice", run.id)
        run.over, run.error = True, error
        for child in run.open.values():
            self._abort(child)
        call, parent = run.call, run.parent
        if call is None or parent is None:
            return
        parent.open.pop(run.id, None)
        if parent.over:
            return
        answer = m.TaskAnswer(
            run=call.run,
            rank=call.rank,
            step=call.step,
            use=call.use,
            iteration=call.iteration,
            outputs={name: values.pack(value) for name, value in run.outputs.items()} if error is None else {},
            error=error,
            called=run.id,
        )
        self._to(parent, answer)

    # ── time and checks ──

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._planned += 1
        self._simulator.after(seconds, lambda: self._act(act))

    def _act(self, act: Callable[[], None]) -> None:
        self._planned -= 1
        act()

    def _until(self, done: Callable[[], bool], seconds: float, otherwise: str) -> None:
        end = self._simulator.now + seconds
        while not done():
            if self._simulator.now > end or not self._simulator.step():
                open_ = [run.id for run in self._runs.values() if not run.over]
                standing = "; ".join(f"{name}: {one.standing()}" for name, one in self._deployments.items())
                raise self._simulator.fail(f"{otherwise} does not end: open runs {open_}; {standing}")

    def _checked(self, run: NestedRun) -> str:
        right = wanted(self._tasks, run.number, self._pages, PAGE_TOKENS)
        if run.error is None:
            given = run.outputs.get("sum"), run.outputs.get("token")
            if right.errors or given != (right.sum, right.token):
                raise self._simulator.fail(f"it gives {given}, and should give {right}", run.id)
            return "done"
        fitting = {
            "shutting_down": bool(self._gone),
            "not_found": bool(self._gone),
            "refused": self._failed or "refused" in right.errors,
            "cancelled": run.aborted,
            "deadline_exceeded": run.submit.deadline is not None,
            "worker_lost": any(one.processes.lost for one in self._deployments.values()),
        }
        if not fitting.get(run.error.code, run.error.code in right.errors):
            message = f"it ends with `{run.error.code}`, which nothing led to: {run.error.message}"
            raise self._simulator.fail(message, run.id)
        return run.error.code


def _rests(deployment: SimulatedDeployment) -> bool:
    return deployment.exited or deployment.at_rest()


def tasks_of(seed: int) -> list[NestedTask]:
    """The tasks of a seed's world."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    return random_tasks(chance, GRAPHS[: chance.randint(1, len(GRAPHS))])
