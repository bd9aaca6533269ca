"""The client of a simulated world: sends requests, and checks what it receives."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from walkgraph.errors import ErrorInfo
from walkgraph.ids import RunId
from walkgraph.simulation.asked_run import AskedRun
from walkgraph.simulation.page import NO_PAGE, Page, SimulatedPage
from walkgraph.simulation.person import PATIENCE_SECONDS, SimulatedPerson
from walkgraph.simulation.reference.random_walks import plain
from walkgraph.simulation.scenarios import Scenario, ScenarioRequest
from walkgraph.simulation.simulator import Simulator
from walkgraph.wire import messages as m
from walkgraph.wire.totals import joined_ends
from walkgraph.wire.watching import Break, Level, Tap
from walkgraph.worker.io import values


class Chances(NamedTuple):
    """Probabilities of disturbances, per run, per restarted process or per world."""

    # Per run.
    abort: float = 0.2
    deadline: float = 0.15
    hold: float = 0.08
    pause: float = 0.12
    record: float = 0.05
    wrong: float = 0.03
    """They name an unknown task."""
    # Per restarted process.
    unloadable: float = 0.1
    # Per world.
    breakpoint: float = 0.1
    tap: float = 0.1
    kill: float = 0.15
    hang: float = 0.02
    stall: float = 0.1
    """A process stops for a while and then goes on."""
    telemetry: float = 0.25
    fail: float = 0.02
    """The first death of a process fails the deployment."""
    stop: float = 0.1
    """The deployment is stopped after it has come to rest."""
    shares: bool = False
    """Sequences that begin alike share pages."""
    most_runs: int = 4
    """Most runs that a world starts with; later runs of their sessions come on top."""


SPREAD_SECONDS = 0.4
"""Time within which the runs of a world are submitted."""
TWICE = 0.02
"""Share of runs that are submitted twice; the second message must be ignored."""
CHANGING_SECONDS = 0.02
"""Time after which a run is submitted that waits for another graph."""


OWNERS = ("", "ada", "bea")
"""Whose runs they are."""
OfRun = m.Accepted | m.Rejected | m.Output | m.CallTask | m.Paused | m.Resumed | m.Waits | m.Finished


class SimulatedClient:
    def __init__(
        self,
        scenario: Scenario,
        chances: Chances,
        simulator: Simulator,
        send: Callable[[m.ToConductor], None],
        page: Page = NO_PAGE,
        lost: Sequence[float] = (),
    ) -> None:
        """`page`: what a page does besides. `lost`: times at which ranks were lost."""
        self.runs: dict[str, AskedRun] = {}
        self.status: m.Status | None = None
        self.planned = 0
        """Number of planned acts."""
        self.stopping = False
        self.crowded = False
        """The deployment's queue is short, so that runs may be refused."""
        self._chances, self._send = chances, send
        self._simulator, self._chance, self._counts = simulator, simulator.chance, simulator.counts
        self.person = SimulatedPerson(self.runs, simulator, send, self._after)
        self.page = SimulatedPage(page, scenario, self.runs, self.person, simulator, send, lost)

    # ── acts ──

    def begin(self) -> None:
        """Plans the world's runs from now on."""
        chance, chances = self._chance, self._chances
        if chance.random() < chances.breakpoint + chances.tap:
            self._after(0.0, self._watch)
        for number in range(1 + chance.randrange(chances.most_runs)):
            # Where the graph is changed, what is requested depends on the one that is served then.
            request = None if self.page.does.others else chance.choice(self.page.drawing.served.requests)
            self._after(chance.random() * SPREAD_SECONDS, lambda n=number, r=request: self._submit(n, r))
        for act in self.page.acts():
            self._after(chance.random() * SPREAD_SECONDS, act)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self.planned += 1
        self._simulator.after(seconds, lambda: self._act(act))

    def _act(self, act: Callable[[], None]) -> None:
        self.planned -= 1
        act()

    def _submit(self, number: int, request: ScenarioRequest | None = None, after: AskedRun | None = None) -> None:
        """Submits a run, by default one of those that the graph is for. `after`: the previous run of its session."""
        if self.page.drawing.changing:
            self._after(CHANGING_SECONDS, lambda: self._submit(number, request, after))
            return
        chance, chances, run = self._chance, self._chances, RunId(f"r{number}")
        served, session = self.page.drawing.served.requests, f"of {run}"
        if after is not None and after.changes != self.page.drawing.changes:
            # Its session has ended with the former graph: one of that name begins anew.
            request = next((one for one in served if one.session), None)
            if request is None or after.session is None:
                return
            self._counts["sessions begun anew under another graph"] += 1
            session, after = after.session, None
            run = RunId(f"a{len(self.runs)}")  # several may have waited with the same number
        request = request or chance.choice(served)
        deadline = 0.02 + chance.random() * 0.5 if chance.random() < chances.deadline else None
        hold = chance.random() < chances.hold
        asked = self.runs[run] = AskedRun(run, request, self._simulator.now, deadline)
        asked.changes = self.page.drawing.changes
        asked.session = session if request.session else None
        asked.since = asked.at
        if after is not None:
            asked.session, asked.since, asked.follows = after.session, after.since, True
        asked.wrong = chance.random() < chances.wrong
        if chance.random() < chances.abort:
            self._after(chance.random() * 0.2, lambda: self._abort(run))
        if hold or chance.random() < chances.pause:
            self._after(chance.random() * 0.1, lambda: self._steer(run, "pause"))
        self._counts["deadlines"] += deadline is not None
        self._counts["runs held at their start"] += hold
        self._counts["runs in sessions"] += asked.session is not None
        submit = m.Submit(
            run=run,
            task="unknown" if asked.wrong else request.task,
            params=dict(request.params),
            inputs=request.packed,
            priority=chance.randrange(3),
            deadline=deadline,
            session=asked.session,
            record=chance.random() < chances.record,
            hold=hold,
            salt=self._simulator.apart.choice(OWNERS),
        )
        asked.submit = submit
        asked.twice = not self.crowded and chance.random() < TWICE
        for _ in range(1 + asked.twice):
            self._send(submit)

    def _abort(self, run: str) -> None:
        asked = self.runs[run]
        asked.aborted = True
        self._counts["aborts"] += 1
        if asked.waits:
            self.person.end(asked, ErrorInfo(code="cancelled", message="the run was cancelled"))
            return
        part = asked.submit.run if asked.submit is not None else RunId(run)
        self._send(m.Abort(run=part, reason=self._chance.choice(("cancelled", "disconnected"))))

    def _steer(self, run: str, action: Literal["pause", "resume", "step", "iteration"]) -> None:
        asked = self.runs[run]
        if asked.over or asked.waits or asked.submit is None:
            return
        asked.was_paused = True
        self._counts[f"{action}s asked"] += 1
        held = asked.paused.held if asked.paused is not None else ()
        call = self._chance.choice(held) if held and self._chance.random() < 0.5 else None
        self._send(m.Steer(run=asked.submit.run, action=action, call=None if action == "pause" else call))
        if action != "resume":
            following = self._chance.choice(("step", "step", "iteration", "resume", "resume"))
            self._after(self._chance.random() * PATIENCE_SECONDS, lambda: self._steer(run, following))

    def _let_go(self, run: AskedRun) -> None:
        if run.paused is not None:
            self._steer(run.id, "resume")

    def _leave(self, run: AskedRun) -> None:
        """Plans the next run of a finished run's session, or the session's end."""
        if run.session is not None:
            self._after(PATIENCE_SECONDS * self._chance.random(), lambda: self._follow(run))

    def _follow(self, run: AskedRun) -> None:
        """Submits the next run of a session, or ends the session. Other runs may wait for the pages that this frees."""
        following = run.request.following
        if following is not None and run.finished is not None and run.finished.error is None:
            self._submit(len(self.runs) + self._chances.most_runs, following, run)
        else:
            self._send(m.AskSessions(number=0, end=run.session))

    def _watch(self) -> None:
        """Sets a tap or a breakpoint at one use of a Walk, and plans its removal."""
        plan = self.page.drawing.served.plan
        walk = self._chance.choice(plan.walks)
        uses = [use.name for use in walk.uses if use.op == "call"]
        if not uses or walk.name.startswith("move:"):
            return
        use, chances = self._chance.choice(uses), self._chances
        level: Level = self._chance.choice(("off", "summary", "full"))
        if self._chance.random() * (chances.breakpoint + chances.tap) < chances.breakpoint:
            self._counts["breakpoints"] += 1
            watch = m.Watch(level=level, breaks=(Break(id="b", walk=walk.name, use=use),))
        else:
            self._counts["taps"] += 1
            node = next(one.node for one in walk.uses if one.name == use)
            source = f"{use}.{self._chance.choice(sorted(plan.nodes[node].outputs))}"
            watch = m.Watch(level=level, taps=(Tap(id="t", walk=walk.name, source=source, interval=0.0),))
        self._send(watch)
        self._after(SPREAD_SECONDS, lambda: self._send(m.Watch(level=level)))

    def stop(self) -> None:
        self.stopping = True
        self._send(m.Stop())

    @property
    def state(self) -> str:
        """State of the deployment."""
        return self.status.state if self.status is not None else ""

    def over(self) -> bool:
        """True once all planned acts are done and all runs have ended."""
        if self.planned:
            return False
        # Asked at every step of the simulation.
        for run in self.runs.values():  # noqa: SIM110
            if run.finished is None and run.rejected is None:
                return False
        return True

    # ── messages ──

    def take(self, message: OfRun | m.Status) -> None:
        """Takes a message on a run, or the deployment's status."""
        if isinstance(message, m.Status):
            self.status = message
            return
        run = self.person.asked(message.run)
        if run is None:
            raise self._simulator.fail("something comes of a run that was never asked", message.run)
        match message:
            case m.CallTask():
                raise self._simulator.fail("it calls a task, and no scenario has one", run.id)
            case m.Accepted():
                self._once(run, accepted=run.accepted)
                run.accepted = True
            case m.Rejected() if run.twice and run.rejected is not None:
                pass
            case m.Rejected(error=error):
                self._once(run, accepted=run.accepted)
                run.rejected = error
                self._leave(run)
            case m.Output():
                self._output(run, message)
            case m.Paused():
                self._open(run, "is paused")
                self._counts["stops at a breakpoint"] += bool(message.breakpoint)
                run.paused, run.was_paused = message, True
                self._after(2 * PATIENCE_SECONDS, lambda: self._let_go(run))
            case m.Resumed():
                self._open(run, "goes on")
                run.paused = None
            case m.Waits():
                run.loops.extend(message.end.loops)
                self._open(run, "waits")
                self.person.ask(run, message)
            case m.Finished():
                self._open(run, "ends")
                run.loops.extend(message.loops)
                run.finished, run.finished_at, run.paused = message, self._simulator.now, None
                self._leave(run)

    def _once(self, run: AskedRun, *, accepted: bool) -> None:
        if accepted or run.rejected is not None:
            raise self._simulator.fail("it is accepted or rejected twice", run.id)

    def _open(self, run: AskedRun, what: str) -> None:
        if not run.accepted or run.finished is not None:
            state = "after its end" if run.finished is not None else "before it was accepted"
            raise self._simulator.fail(f"it {what} {state}", run.id)

    def _output(self, run: AskedRun, message: m.Output) -> None:
        self._open(run, f"gives `{message.name}`")
        given = run.outputs[message.name]
        if message.index != len(given) - run.before.get(message.name, 0):
            raise self._simulator.fail(f"`{message.name}` {message.index} comes as number {len(given)}", run.id)
        given.append(plain(values.unpack(message.value)))

    # ── checks ──

    def check(self, run: AskedRun, lost: Sequence[float]) -> str:
        """Checks a finished run and returns its error code, or `done`. `lost`: times at which ranks were lost."""
        error = run.rejected or (run.finished.error if run.finished else None)
        if not (run.follows and any(at >= run.since for at in lost)):  # the states it reads may be lost
            self._check_outputs(run, whole=error is None)
        if error is None:
            if run.request.fails:
                raise self._simulator.fail("it ends well though a node failed", run.id)
            ends = {one.name: (one.iterations, one.reason) for one in joined_ends(run.loops) if not one.walk}
            if run.request.ends not in (None, ends):
                raise self._simulator.fail(f"its loops end as {ends}, by the book {run.request.ends}", run.id)
            return "done"
        by_node = run.request.fails and run.request.fault in (None, (error.code, error.node))
        fitting = {
            "cancelled": run.aborted or run.changed,
            "expired": run.expired,
            "deadline_exceeded": run.deadline is not None and run.finished_at >= run.at + run.deadline,
            "worker_lost": any(at >= run.at for at in lost),
            "node_error": by_node,
            "numeric_error": by_node,
            "shutting_down": self.stopping,
            "refused": self.state == "failed",
            "not_found": run.wrong,
            "overloaded": self.crowded,
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
