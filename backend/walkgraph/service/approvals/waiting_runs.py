"""Runs that wait for a person, as the store keeps them: so they outlive the service."""

from typing import Self

import msgspec

from walkgraph.ids import RunId
from walkgraph.placement.tables import Decision
from walkgraph.service.runs.runs import LiveRun
from walkgraph.store.tables import WaitingRun
from walkgraph.wire import messages as m

LoggedEvent = m.Accepted | m.Output | m.Asked | m.Decided

_encoder = msgspec.msgpack.Encoder()


class Place(msgspec.Struct, frozen=True):
    """All that a run needs to go on."""

    submit: m.Submit
    """The request, with its seed and the deadline that is left, and the run up to the approval in `resumed`."""
    part: int
    """The number of approvals that a person has answered."""

    @classmethod
    def of(cls, request: m.Submit, seed: int | None, rest: m.Resumption, before: m.Finished, part: int) -> Self:
        """`before`: the run's times so far. The time that it waits doesn't count against its deadline."""
        deadline = None if request.deadline is None else max(1.0, request.deadline - before.seconds)
        params = request.params if seed is None else {**request.params, "seed": seed}
        return cls(msgspec.structs.replace(request, params=params, deadline=deadline, resumed=rest), part)

    @classmethod
    def read(cls, data: bytes) -> Self:
        return msgspec.msgpack.decode(data, type=cls)

    def behind(self, run: RunId, decision: Decision) -> m.Submit:
        """The request for the part of the run behind the approval."""
        rest = self.submit.resumed or m.Resumption(answers=())
        resumed = msgspec.structs.replace(rest, answers=(*rest.answers, decision))
        part = RunId(f"{run}.{self.part + 1}")
        return msgspec.structs.replace(self.submit, run=part, resumed=resumed, hold=False)


class Log(msgspec.Struct, frozen=True):
    """The events that clients who follow the run are sent, and its other data."""

    events: tuple[LoggedEvent, ...]
    before: m.Finished
    """Its times so far."""
    params: dict[str, str | bool | int | float]
    """The client's parameters."""
    priority: int = 0
    recorded: bool = False
    salt: str = ""
    parent: str = ""

    @classmethod
    def of(cls, run: LiveRun, asked: m.Asked, before: m.Finished) -> Self:
        events = (*(event for event in run.log if not isinstance(event, m.Finished)), asked)
        return cls(events, before, run.params, run.priority, run.recorded, run.salt, run.parent)

    def restored(self, row: WaitingRun) -> LiveRun:
        """The run of a row, as it waits."""
        submit = m.Submit(
            run=RunId(row.run),
            task=row.task,
            params=self.params,
            inputs={},
            priority=self.priority,
            record=self.recorded,
            salt=self.salt,
        )
        run = LiveRun(submit, row.deployment, _unsent)
        run.created_at, run.parent, run.counted = row.created_at, self.parent, False
        for event in self.events[:-1]:
            run.take(event)
        if isinstance(self.events[-1], m.Asked):
            run.wait(self.events[-1], self.before)
        return run


def row_of(run: LiveRun, asked: m.Asked, graph: str, place: Place, before: m.Finished) -> WaitingRun:
    """`graph`: the hash of its graph."""
    log, found = _encoder.encode(Log.of(run, asked, before)), _encoder.encode(place)
    return WaitingRun(
        run=run.id,
        deployment=run.deployment,
        task=run.task,
        graph=graph,
        caller=run.caller.key if run.caller else None,
        created_at=run.created_at,
        expires_at=asked.expires_at,
        nbytes=len(log) + len(found),
        log=log,
        place=found,
    )


def restored(row: WaitingRun) -> LiveRun:
    return msgspec.msgpack.decode(row.log, type=Log).restored(row)


def _unsent(message: m.ToConductor) -> None:
    """A run that waits has no conductor."""
