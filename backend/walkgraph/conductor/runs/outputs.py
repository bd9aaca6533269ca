"""Sends runs' outputs to their clients, in the order of the task's steps. Where a request selects only the last value,
each step's last comes here, and the last of them is sent when the run ends."""

from walkgraph.conductor.events import Command, ToService
from walkgraph.conductor.runs.records import RunRecord, RunTable
from walkgraph.wire import messages as m


class Outputs:
    def __init__(self, table: RunTable) -> None:
        self._table = table

    def emit(self, message: m.Emit, now: float) -> list[Command]:
        run = self._table.admitted(message.run)
        if run is None or message.name not in run.request.itinerary.outputs:
            return []
        run.heard = now
        return [command for one in run.ordered.emit(message) for command in _output(run, one, now)]

    def sent(self, message: m.Sent, now: float) -> list[Command]:
        """Handles a rank's report that it has sent all outputs of a step."""
        run = self._table.admitted(message.run)
        if run is None:
            return []
        run.heard = now
        return [command for one in run.ordered.sent(message.step, message.rank) for command in _output(run, one, now)]


def _output(run: RunRecord, message: m.Emit, now: float) -> list[Command]:
    if message.name in run.submit.selected and run.submit.selected[message.name].last:
        run.last[message.name] = message
        return []
    return _sent(run, message, now)


def last_outputs(run: RunRecord, now: float) -> list[Command]:
    """Sends the last values that were held back."""
    held = list(run.last.values())
    run.last.clear()
    return [command for one in held for command in _sent(run, one, now)]


def _sent(run: RunRecord, message: m.Emit, now: float) -> list[Command]:
    index = run.emitted[message.name]
    run.emitted[message.name] += 1
    output = m.Output(
        run=message.run,
        name=message.name,
        index=index,
        value=message.value,
        iteration=message.iteration,
        modality=message.modality,
        passes=message.passes,
    )
    first = [run.phase("first_output", now)] if run.emitted.total() == 1 else []
    return [ToService(output), *first]
