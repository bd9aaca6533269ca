"""The person of a simulated world, who answers what runs wait for."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from walkgraph.errors import ErrorInfo
from walkgraph.ids import RunId
from walkgraph.simulation.asked_run import AskedRun
from walkgraph.simulation.reference.random_walks import plain
from walkgraph.simulation.scenarios import decided
from walkgraph.simulation.simulator import Simulator
from walkgraph.wire import messages as m
from walkgraph.worker.io import values

PATIENCE_SECONDS = 0.3
"""Longest time until a run that waits or is paused goes on."""


EXPIRES = 0.15
"""Share of approvals that expire; half of these are answered afterwards."""


class SimulatedPerson:
    """Answers the approvals of runs, after a while, or lets them expire."""

    def __init__(
        self,
        runs: Mapping[str, AskedRun],
        simulator: Simulator,
        send: Callable[[m.ToConductor], None],
        after: Callable[[float, Callable[[], None]], None],
    ) -> None:
        """`after` plans an act in so many seconds."""
        self._runs, self._send, self._after = runs, send, after
        self._simulator, self._chance, self._counts = simulator, simulator.chance, simulator.counts
        self.waits: Callable[[], None] = _nothing
        """Called when a run begins to wait."""
        self._parts: dict[str, AskedRun] = {}
        """Parts of runs behind approvals."""

    def asked(self, name: str) -> AskedRun | None:
        """The run of this name, or of a part with it."""
        return self._runs.get(name) or self._parts.get(name)

    def ask(self, run: AskedRun, message: m.Waits) -> None:
        """Checks what a person is shown, and plans the answer."""
        if run.changed:
            self.end(run, ended_by_a_change())
            return
        approval = message.approval
        values_ = {one.name: one.value for one in approval.shown if not isinstance(one.value, m.Absent)}
        shown, wanted = {name: plain(values.unpack(value)) for name, value in values_.items()}, run.request.asked
        if approval.number >= len(wanted) or shown != wanted[approval.number]:
            raise self._simulator.fail(f"approval {approval.number} shows {shown}, by the book {wanted}", run.id)
        self._counts["waits for a person"] += 1
        run.waits, run.asked_for, run.paused = True, approval.number, None
        self.waits()
        answers = self._chance.random() * PATIENCE_SECONDS
        self._after(answers, lambda: self._answer(run, message))
        if self._simulator.apart.random() < EXPIRES:
            expires = 2 * answers * self._simulator.apart.random()
            self._after(expires, lambda: self._expire(run, message.approval.number))

    def _expire(self, run: AskedRun, number: int) -> None:
        """Ends a run that nobody has let go on in time."""
        if run.waits and run.asked_for == number:
            self._counts["approvals that expire"] += 1
            run.expired = True
            self.end(run, ErrorInfo(code="expired", message="nobody has approved the run in time"))

    def _answer(self, run: AskedRun, message: m.Waits) -> None:
        """Lets a run that waits go on, under another name, or ends it."""
        if not run.waits or run.submit is None:
            return
        decision = decided(message.approval.number)
        if not (decision.approved or message.approval.goes_on):
            self._counts["refusals"] += 1
            self.end(run, None)
            return
        part = RunId(f"{run.id}.{message.approval.number + 1}")
        resumed = replace(message.rest, answers=(*message.rest.answers, decision))
        run.waits = run.accepted = run.twice = False
        run.before = {name: len(given) for name, given in run.outputs.items()}
        run.submit = replace(run.submit, run=part, resumed=resumed, hold=False)
        self._parts[part] = run
        self._send(run.submit)

    def end(self, run: AskedRun, error: ErrorInfo | None) -> None:
        run.waits, run.finished_at = False, self._simulator.now
        run.finished = m.Finished(run=run.id, error=error)


def _nothing() -> None: ...


def ended_by_a_change() -> ErrorInfo:
    """The end of a run that waits for a person while the graph is changed."""
    return ErrorInfo(code="cancelled", message="the graph that it runs was changed")
