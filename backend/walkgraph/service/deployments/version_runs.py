"""The runs of one version of a deployment, from submission to end."""

import asyncio
from collections.abc import Callable

from walkgraph.errors import ErrorInfo, RunFailed
from walkgraph.ids import RunId
from walkgraph.service.observe.hub import Hub
from walkgraph.service.runs.results import paused_of
from walkgraph.service.runs.runs import LiveRun, Runs
from walkgraph.wire import messages as m

FromRun = m.Accepted | m.Output | m.Rejected | m.Waits | m.Finished | m.Paused | m.Resumed


class Resuming:
    """The part of a run behind an approval, until the conductor has accepted it."""

    def __init__(
        self, run: LiveRun, send: Callable[[m.ToConductor], None], decided: m.Decided, begun: Callable[[], None]
    ) -> None:
        """`begun` is called once it is accepted, before its first event."""
        self.run, self.send, self.decided, self.begun = run, send, decided, begun
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def refuse(self, error: ErrorInfo) -> None:
        if not self.answer.done():
            self.answer.set_exception(RunFailed(error))


class VersionRuns:
    def __init__(
        self,
        deployment: str,
        runs: Runs,
        hub: Hub,
        run_ended: Callable[[LiveRun], None],
        waits: Callable[[LiveRun, m.Waits], None],
    ) -> None:
        """`run_ended` is called once a run has ended, `waits` once it has come to an approval."""
        self._deployment, self._all, self._hub, self._run_ended, self._waits = deployment, runs, hub, run_ended, waits
        self._resumed: dict[RunId, Resuming] = {}
        """Parts of runs behind an approval that are not accepted yet."""
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

    def resume(self, message: m.Submit, found: Resuming) -> asyncio.Future[None]:
        """Submits the part of a run behind an approval. The result is there once it is accepted; until then the run
        waits."""
        found.send(message)
        self._resumed[message.run] = found
        return found.answer

    def take(self, message: FromRun) -> None:
        """Handles a message of the conductor about a run; ignores it if the run has ended."""
        if message.run in self._resumed:
            self._answered(self._resumed.pop(message.run), message)
            return
        run = self._live.get(message.run)
        if run is None:
            return
        if isinstance(message, m.Waits):
            del self._live[message.run]
            self._waits(run, message)
            return
        if isinstance(message, m.Paused | m.Resumed):
            run.paused = message if isinstance(message, m.Paused) else None
            state = paused_of(run)
            frame = {"type": "resumed"} if state is None else {"type": "paused", **state}
            self._hub.publish(self._deployment, {**frame, "run": run.id})
        else:
            run.take(message)
            self._note(run)

    def _answered(self, found: "Resuming", message: FromRun) -> None:
        """Handles the conductor's first message about the part of a run behind an approval."""
        if isinstance(message, m.Accepted):
            run = self._live[message.run] = found.run
            run.go_on(message.run, found.send, found.decided)
            found.begun()
            if not found.answer.done():
                found.answer.set_result(None)
        elif isinstance(message, m.Rejected | m.Finished) and message.error is not None:
            found.refuse(message.error)

    def lose(self, *, shutting_down: bool) -> None:
        """Ends all unfinished runs with a retryable error."""
        error = ErrorInfo(
            code="shutting_down" if shutting_down else "worker_lost",
            message="the deployment ended before this run did; try again",
            retryable=True,
        )
        for found in self._resumed.values():
            found.refuse(error)
        self._resumed.clear()
        for run in list(self._live.values()):
            run.take(m.Finished(run=run.id, error=error, seconds=run.age))
            self._note(run)

    def _note(self, run: LiveRun) -> None:
        if run.finished is not None and self._live.pop(run.part, None) is not None:
            self._all.ended(run)
            self._run_ended(run)
            frame = {"run": run.id, "task": run.task, "state": run.state, "seconds": run.finished.seconds}
            self._hub.publish(self._deployment, {"type": "run", **frame})
