"""The client of a simulated world: what it asks and when, what it has got, and whether that is right."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from walkgraph.errors import ErrorInfo
from walkgraph.ids import RunId
from walkgraph.simulation.random_walks import plain
from walkgraph.simulation.scenarios import Request, Scenario
from walkgraph.simulation.simulator import Simulator
from walkgraph.wire import messages as m
from walkgraph.wire.watching import Break
from walkgraph.worker.io import values


class Chances(NamedTuple):
    """How much a world is disturbed: the share of runs, or of worlds, to which a thing happens."""

    abort: float = 0.2
    deadline: float = 0.15
    hold: float = 0.08
    pause: float = 0.12
    breakpoint: float = 0.1
    kill: float = 0.15
    hang: float = 0.02
    stall: float = 0.1
    stop: float = 0.1
    most_runs: int = 4


SPREAD_SECONDS = 0.4
"""In which the runs of a world are asked."""
PATIENCE_SECONDS = 0.3
"""After which who has paused a run lets it go on."""


@dataclass(slots=True)
class AskedRun:
    """What the client knows of one run."""

    id: RunId
    request: Request
    at: float
    deadline: float | None
    accepted: bool = False
    rejected: ErrorInfo | None = None
    finished: m.Finished | None = None
    finished_at: float = 0.0
    aborted: bool = False
    paused: bool = False
    was_paused: bool = False
    outputs: dict[str, list[Any]] = field(default_factory=lambda: defaultdict[str, list[Any]](list))

    @property
    def over(self) -> bool:
        return self.finished is not None or self.rejected is not None


class SimulatedClient:
    def __init__(
        self,
        scenario: Scenario,
        chances: Chances,
        simulator: Simulator,
        send: Callable[[m.ToConductor], None],
    ) -> None:
        self.runs: dict[str, AskedRun] = {}
        self.status: m.Status | None = None
        self.planned = 0
        """Acts to come."""
        self.stopping = False
        self._scenario, self._chances, self._send = scenario, chances, send
        self._simulator, self._chance, self._counts = simulator, simulator.chance, simulator.counts

    # ── what it does ──

    def begin(self) -> None:
        """Plan the world's runs, from now on."""
        chance, chances = self._chance, self._chances
        if chance.random() < chances.breakpoint:
            self._after(0.0, self._break)
        for number in range(1 + chance.randrange(chances.most_runs)):
            request = chance.choice(self._scenario.requests)
            self._after(chance.random() * SPREAD_SECONDS, lambda n=number, r=request: self._submit(n, r))

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self.planned += 1
        self._simulator.after(seconds, lambda: self._act(act))

    def _act(self, act: Callable[[], None]) -> None:
        self.planned -= 1
        act()

    def _submit(self, number: int, request: Request) -> None:
        chance, chances, run = self._chance, self._chances, RunId(f"r{number}")
        deadline = 0.02 + chance.random() * 0.5 if chance.random() < chances.deadline else None
        hold = chance.random() < chances.hold
        self.runs[run] = AskedRun(run, request, self._simulator.now, deadline)
        if chance.random() < chances.abort:
            self._after(chance.random() * 0.2, lambda: self._abort(run))
        if hold or chance.random() < chances.pause:
            self._after(chance.random() * 0.1, lambda: self._steer(run, "pause"))
        self._send(
            m.Submit(
                run=run,
                task=request.task,
                params=dict(request.params),
                inputs=request.packed,
                priority=chance.randrange(3),
                deadline=deadline,
                session=_session(run) if request.session else None,
                hold=hold,
            )
        )

    def _abort(self, run: str) -> None:
        self.runs[run].aborted = True
        self._send(m.Abort(run=RunId(run), reason=self._chance.choice(("cancelled", "disconnected"))))

    def _steer(self, run: str, action: Literal["pause", "resume", "step", "iteration"]) -> None:
        asked = self.runs[run]
        if asked.over:
            return
        asked.was_paused = True
        self._send(m.Steer(run=RunId(run), action=action, call=None))
        if action != "resume":
            following = self._chance.choice(("step", "step", "iteration", "resume", "resume"))
            self._after(self._chance.random() * PATIENCE_SECONDS, lambda: self._steer(run, following))

    def _let_go(self, run: AskedRun) -> None:
        if run.paused:
            self._steer(run.id, "resume")

    def _end_session(self, run: AskedRun) -> None:
        """What it keeps is given back; runs may wait for that."""
        self._send(m.AskSessions(number=0, end=_session(run.id)))

    def _break(self) -> None:
        """Runs stop before calls of one use, until it is taken back."""
        walk = self._chance.choice(self._scenario.plan.walks)
        uses = [use.name for use in walk.uses if use.op == "call"]
        if uses and not walk.name.startswith("move:"):
            self._send(m.Watch(breaks=(Break(id="b", walk=walk.name, use=self._chance.choice(uses)),)))
            self._after(SPREAD_SECONDS, self._unbreak)

    def _unbreak(self) -> None:
        self._send(m.Watch())

    def stop(self) -> None:
        self.stopping = True
        self._send(m.Stop())

    @property
    def over(self) -> bool:
        """All that was planned was done, and all that was asked is over."""
        return not self.planned and all(run.over for run in self.runs.values())

    # ── what it gets ──

    def take(self, message: m.FromConductor) -> None:
        if isinstance(message, m.Status):
            self.status = message
            return
        if isinstance(message, m.SessionsTold):
            return
        run = self.runs.get(message.run)
        if run is None:
            raise self._simulator.fail("something comes of a run that was never asked", message.run)
        match message:
            case m.Accepted():
                self._once(run, accepted=run.accepted)
                run.accepted = True
            case m.Rejected(error=error):
                self._once(run, accepted=run.accepted)
                run.rejected = error
            case m.Output():
                self._output(run, message)
            case m.Paused():
                self._open(run, "is paused")
                run.paused = run.was_paused = True
                self._after(2 * PATIENCE_SECONDS, lambda: self._let_go(run))
            case m.Resumed():
                self._open(run, "goes on")
                run.paused = False
            case m.Finished():
                self._open(run, "ends")
                run.finished, run.finished_at, run.paused = message, self._simulator.now, False
                if run.request.session:
                    self._after(PATIENCE_SECONDS * self._chance.random(), lambda: self._end_session(run))

    def _once(self, run: AskedRun, *, accepted: bool) -> None:
        if accepted or run.rejected is not None:
            raise self._simulator.fail("it is judged twice", run.id)

    def _open(self, run: AskedRun, what: str) -> None:
        if not run.accepted or run.finished is not None:
            state = "after its end" if run.finished is not None else "before it was accepted"
            raise self._simulator.fail(f"it {what} {state}", run.id)

    def _output(self, run: AskedRun, message: m.Output) -> None:
        self._open(run, f"gives `{message.name}`")
        given = run.outputs[message.name]
        if message.index != len(given):
            raise self._simulator.fail(f"`{message.name}` {message.index} comes as number {len(given)}", run.id)
        given.append(plain(values.unpack(message.value)))

    # ── whether it is right ──

    def check(self, run: AskedRun, *, lost: bool) -> str:
        """The code with which a run has ended, `done` if well. `lost`: a rank was lost while it ran."""
        error = run.rejected or (run.finished.error if run.finished else None)
        self._check_outputs(run, whole=error is None)
        if error is None:
            if run.request.fails:
                raise self._simulator.fail("it ends well though a node failed", run.id)
            return "done"
        fitting = {
            "cancelled": run.aborted,
            "deadline_exceeded": run.deadline is not None and run.finished_at >= run.at + run.deadline,
            "worker_lost": lost,
            "node_error": run.request.fails,
            "numeric_error": run.request.fails,
            "shutting_down": self.stopping,
        }
        if not fitting.get(error.code, False):
            raise self._simulator.fail(f"it ends with `{error.code}`, which nothing led to: {error.message}", run.id)
        return error.code

    def _check_outputs(self, run: AskedRun, *, whole: bool) -> None:
        wanted = run.request.outputs
        for name in {*wanted, *run.outputs}:
            given, right = run.outputs.get(name, []), list(wanted.get(name, ()))
            if given != (right if whole else right[: len(given)]):
                raise self._simulator.fail(f"`{name}` is {given}, by the book {right}", run.id)


def _session(run: str) -> str:
    return f"of {run}"
