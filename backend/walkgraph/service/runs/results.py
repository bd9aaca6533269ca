"""Runs as clients see them: rows, events, results, and what a person is asked."""

from typing import Any, cast

import msgspec

from walkgraph.service.runs import glimpses
from walkgraph.service.runs.runs import Event, LiveRun
from walkgraph.service.values import values
from walkgraph.service.values.outlets import IN_TEXT, Outlet
from walkgraph.store.tables import Run
from walkgraph.wire import messages as m
from walkgraph.wire.answers import runs as answers


def public(row: Run, live: LiveRun | None) -> answers.Run:
    """A row as the API shows it. `live`: the run, if it can still be followed."""
    error = msgspec.json.decode(row.error) if row.error else None
    return answers.Run(
        **row.model_dump(exclude={"params", "error", "times"}),
        params=msgspec.json.decode(row.params),
        error=error,
        times=msgspec.json.decode(row.times),
        paused=paused_of(live) if live else None,
        approval=approval_of(live) if live else None,
        glimpse=glimpse_of(live) if live else None,
    )


def glimpse_of(run: LiveRun) -> answers.Glimpse:
    outputs = run.outputs
    pictured = glimpses.picture_of(outputs) is not None
    return answers.Glimpse(said=run.said, wrote=glimpses.written(outputs), pictured=pictured)


def paused_of(run: LiveRun) -> answers.Paused | None:
    """The calls at which the run is paused; None if it isn't."""
    if run.paused is None:
        return None
    held = [cast(answers.Held, _plain(call)) for call in run.paused.held]
    return answers.Paused(held=held, breakpoint=run.paused.breakpoint)


def approval_of(run: LiveRun) -> answers.Approval | None:
    """The approval that the run waits for; None if it doesn't."""
    return _asked(run.waiting) if run.waiting is not None else None


def _asked(asked: m.Asked) -> answers.Approval:
    approval = asked.approval
    return answers.Approval(
        number=approval.number,
        label=approval.label,
        goes_on=approval.goes_on,
        asked_at=asked.at,
        expires_at=asked.expires_at,
        shown=[one.name for one in approval.shown],
    )


def shown_of(asked: m.Asked, outlet: Outlet = IN_TEXT) -> dict[str, Any]:
    """The values that a person is shown: `walk.result` -> its value, null if there is none. `outlet`: as in
    `values.write`."""
    return {
        one.name: None if isinstance(one.value, m.Absent) else values.write(one.value, "", outlet)
        for one in asked.approval.shown
    }


def event_of(event: Event, outlet: Outlet = IN_TEXT) -> tuple[str, dict[str, Any]]:
    """(name, JSON object) of an event as clients receive it. `outlet`: as in `values.write`."""
    match event:
        case m.Accepted():
            return "accepted", {"run": event.run, "seed": event.seed}
        case m.Output():
            value = values.write(event.value, event.modality, outlet)
            where = {"run": event.run, "name": event.name, "index": event.index, "iteration": event.iteration}
            return "output", {**where, "passes": event.passes, "value": value}
        case m.Asked():
            return "approval", {"run": event.run, **_asked(event), "values": shown_of(event, outlet)}
        case m.Decided():
            return "decision", _plain(event)
        case m.Finished():
            times = [_plain(time_) for time_ in event.times]
            figures: dict[str, Any] = {
                "run": event.run,
                "seconds": event.seconds,
                "queued": event.queued,
                "times": times,
            }
            figures["usage"] = usage_of(event)
            if event.error is None:
                return "done", figures
            return "error", {**figures, "error": _plain(event.error)}


def usage_of(end: m.Finished) -> dict[str, Any]:
    """Tokens that a run read and found in caches, how its loops ended, how in time it was played, and the words that a
    starter has not learned."""
    told: dict[str, Any] = {"read": end.read, "cached_tokens": end.found, "loops": [_plain(loop) for loop in end.loops]}
    if end.played is not None:
        told["played"] = _plain(end.played)
    return {**told, "unknown_words": end.unknown_words} if end.unknown_words else told


def result_of(run: LiveRun, outlet: Outlet = IN_TEXT) -> dict[str, Any]:
    """The whole result of a finished run: texts and audio of a pass joined, other values in their order. `outlet`: as
    in `values.write`."""
    pieces: dict[str, list[m.Output]] = {}
    for output in run.outputs:
        pieces.setdefault(output.name, []).append(output)
    outputs = {
        name: [values.write(value, made[0].modality, outlet) for value in values.joined(made)]
        for name, made in pieces.items()
    }
    end = run.finished
    return {
        "run": run.id,
        "deployment": run.deployment,
        "task": run.task,
        "seed": run.seed,
        "outputs": outputs,
        "seconds": end.seconds if end else None,
        "queued": end.queued if end else None,
        "times": [_plain(time_) for time_ in end.times] if end else [],
        "usage": usage_of(end) if end else None,
    }


def _plain(record: msgspec.Struct) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(record)
    fields.pop("type", None)
    return fields
