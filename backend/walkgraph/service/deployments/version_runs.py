"""The runs of one version of a deployment, from submission to end."""

from collections.abc import Callable

from walkgraph.errors import ErrorInfo
from walkgraph.ids import RunId
from walkgraph.service.observe.hub import Hub
from walkgraph.service.runs.runs import LiveRun, Runs, paused_of
from walkgraph.wire import messages as m

FromRun = m.Accepted | m.Output | m.Rejected | m.Finished | m.Paused | m.Resumed


class VersionRuns:
    def __init__(self, deployment: str, runs: Runs, hub: Hub, run_ended: Callable[[LiveRun], None]) -> None:
        """`run_ended` is called once a run has ended."""
        self._deployment, self._all, self._hub, self._run_ended = deployment, runs, hub, run_ended
        self._live: dict[RunId, LiveRun] = {}

    def __len__(self) -> int:
        """Number of unfinished runs."""
        return len(self._live)

    def get(self, run: str) -> LiveRun | None:
        """An unfinished run."""
        return self._live.get(RunId(run))

    def submit(self, message: m.Submit, send: Callable[[m.ToConductor], None]) -> LiveRun:
        """Submits a run. Later commands of the run are sent by `send` too."""
        run = self._live[message.run] = self._all.begin(message, self._deployment, send)
        return run

    def take(self, message: FromRun) -> None:
        """Handles a message of the conductor about a run; ignores it if the run has ended."""
        run = self._live.get(message.run)
        if run is None:
            return
        if isinstance(message, m.Paused | m.Resumed):
            run.paused = message if isinstance(message, m.Paused) else None
            state = paused_of(run)
            frame = {"type": "resumed"} if state is None else {"type": "paused", **state}
            self._hub.publish(self._deployment, {**frame, "run": run.id})
        else:
            run.take(message)
            self._note(run)

    def lose(self, *, shutting_down: bool) -> None:
        """Ends all unfinished runs with a retryable error."""
        error = ErrorInfo(
            code="shutting_down" if shutting_down else "worker_lost",
            message="the deployment ended before this run did; try again",
            retryable=True,
        )
        for run in list(self._live.values()):
            run.take(m.Finished(run=run.id, error=error, seconds=run.age))
            self._note(run)

    def _note(self, run: LiveRun) -> None:
        if run.finished is not None and self._live.pop(run.id, None) is not None:
            self._all.ended(run)
            self._run_ended(run)
            frame = {"run": run.id, "task": run.task, "state": run.state, "seconds": run.finished.seconds}
            self._hub.publish(self._deployment, {"type": "run", **frame})
