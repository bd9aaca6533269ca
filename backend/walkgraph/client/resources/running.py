"""Calls about tasks and runs, in the service's JSON format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from walkgraph.client import parts, shown
from walkgraph.client.calls import Call, delete, described, get, send
from walkgraph.client.giving import Packing, packed
from walkgraph.client.shown import RunState

_TASK = "/v1/tasks/{deployment}/{task}"
_RUN = "/api/v1/runs/{run}"


class RunCalls:
    @described
    def tasks(self, deployment: str | None = None) -> Call[list[shown.DeclaredTask]]:
        """The tasks of one deployment, or of all."""
        return get("/v1/tasks") if deployment is None else get("/v1/tasks/{deployment}", deployment=deployment)

    @described
    def sessions(self, deployment: str) -> Call[shown.Sessions]:
        """The sessions of a deployment, and the memory that they take."""
        return get("/v1/sessions/{deployment}", deployment=deployment)

    @described
    def end_session(self, deployment: str, session: str) -> Call[None]:
        """End a session and free its states once none of its runs is active."""
        return delete("/v1/sessions/{deployment}/{session}", deployment=deployment, session=session)

    @described
    def run(self, deployment: str, task: str, request: Mapping[str, Any]) -> Call[dict[str, Any]]:
        """Run a task and return its result in the service's JSON format; `task` gives Python values instead. If the run
        waits for a person, it has `approval` and the outputs so far.

        `request`: `inputs`, `params`, `outputs`, ...; its inputs may be paths, pictures and arrays too. Raises
        ProblemError, RunError where the run failed.
        """
        return run_call(deployment, task, packed(request, Packing(framing=False)))

    @described
    def start_run(self, deployment: str, task: str, request: Mapping[str, Any]) -> Call[shown.Run]:
        """Start a run that needs no client. `"record": true` lets it be compared with another one, `"hold": true`
        starts it paused."""
        return start_call(deployment, task, request)

    @described
    def runs(
        self,
        deployment: str | None = None,
        limit: int = 20,
        *,
        state: RunState | None = None,
        before: float | None = None,
    ) -> Call[list[shown.Run]]:
        """Runs, newest first. `before`: the `created_at` of the last one of the page before."""
        return get("/api/v1/runs", {"limit": limit, "deployment": deployment, "state": state, "before": before})

    @described
    def get_run(self, run: str) -> Call[shown.Run]:
        """One run; `paused` names the calls that it is paused before."""
        return get(_RUN, run=run)

    @described
    def result(self, run: str) -> Call[dict[str, Any]]:
        """Its outputs so far in the service's JSON format; all of them once its `state` is `done`."""
        return get(_RUN + "/result", run=run)

    @described
    def thumbnail(self, run: str) -> Call[bytes]:
        """Its picture as a small PNG, for as long as the run can be followed. Raises ProblemError if it has none."""
        return Call("GET", _RUN + "/thumbnail", lambda answer: answer.content, {"run": run})

    @described
    def asked(self, run: str) -> Call[shown.Asked]:
        """The request that its client sent, for as long as the run can be followed."""
        return get(_RUN + "/request", run=run)

    @described
    def cancel(self, run: str) -> Call[None]:
        """Cancel a run."""
        return delete(_RUN, run=run)

    @described
    def queue(self, deployment: str) -> Call[shown.Queue]:
        """This client's runs of a deployment that wait or go on, and the places of those that wait."""
        return get("/api/v1/queue", {"deployment": deployment})

    @described
    def move(self, run: str, direction: Literal["up", "down"]) -> Call[shown.Queue]:
        """Exchange the places of a waiting run and of this client's next one before it (`up`) or behind it (`down`).
        Raises ProblemError where there is none."""
        return send("POST", "/api/v1/queue/{run}/move", {"direction": direction}, run=run)

    @described
    def cancel_all(self, deployment: str) -> Call[dict[str, int]]:
        """Cancel this client's runs of a deployment that wait or go on; `cancelling` is their number."""
        return Call("DELETE", "/api/v1/queue", lambda answer: answer.json(), params={"deployment": deployment})

    @described
    def steer(
        self,
        run: str,
        action: Literal["pause", "step", "iteration", "resume"],
        call: Mapping[str, Any] | None = None,
    ) -> Call[shown.Steered]:
        """Pause, step or resume a run. `call`: for `step` and `iteration`, one of the held calls; None: the first."""
        return send("POST", _RUN + "/steer", {"action": action, "call": call}, run=run)

    @described
    def approval(self, run: str) -> Call[shown.ApprovalShown]:
        """The approval that a run waits for, with the values that it shows. Raises ProblemError without
        one."""
        return get(_RUN + "/approval", run=run)

    @described
    def approve(self, run: str, note: str = "", *, number: int | None = None) -> Call[shown.Run]:
        """Approve a run that waits for a person. `note`: later steps may read it. `number`: the approval that is meant,
        so that an answer given twice doesn't count for the next one."""
        return _decided(run, note, number, approved=True)

    @described
    def refuse(self, run: str, note: str = "", *, number: int | None = None) -> Call[shown.Run]:
        """Refuse a run that waits for a person: it ends, or goes on where its steps read the answer."""
        return _decided(run, note, number, approved=False)

    @described
    def replay(self, run: str, deployment: str | None = None, *, record: bool = True) -> Call[shown.Run]:
        """Start a run again with the same inputs, parameters and seed."""
        return send("POST", _RUN + "/replay", {"deployment": deployment, "record": record}, run=run)

    @described
    def differences(self, a: str, b: str) -> Call[shown.Differences]:
        """Differences of two runs: value by value if both were recorded, otherwise of their outputs."""
        return get(_RUN + "/differences/{other}", run=a, other=b)


def _decided(run: str, note: str, number: int | None, *, approved: bool) -> Call[shown.Run]:
    return send("POST", _RUN + "/approval", {"approved": approved, "note": note, "number": number}, run=run)


def declaration(deployment: str, task: str) -> Call[shown.DeclaredTask]:
    return get(_TASK, deployment=deployment, task=task)


def run_call(deployment: str, task: str, body: Mapping[str, Any], frames: Sequence[bytes] = ()) -> Call[dict[str, Any]]:
    names = {"deployment": deployment, "task": task}
    return Call(
        "POST", _TASK, lambda answer: answer.json(), names, body=body, frames=tuple(frames), seconds=None, starts=True
    )


def start_call(deployment: str, task: str, request: Mapping[str, Any]) -> Call[shown.Run]:
    """Start a run that needs no client."""
    found = packed(request, Packing(framing=False))
    body = {"deployment": deployment, "task": task, "request": found}
    return Call("POST", "/api/v1/runs", lambda answer: answer.json(), body=body, starts=True)


def result_call(
    deployment: str, task: str, body: Mapping[str, Any], frames: Sequence[bytes]
) -> Call[tuple[dict[str, Any], list[memoryview]]]:
    """Run a task; the answer is the result and the frames that it names."""
    call = run_call(deployment, task, body, frames)
    return replace(cast(Call[Any], call), read=parts.read, reader=parts.reader, headers={"Accept": parts.ACCEPT})


def stream_call(
    deployment: str, task: str, request: Mapping[str, Any], frames: Sequence[bytes], *, binary: bool
) -> Call[Any]:
    """Run a task; the answer is a stream of events. `binary`: with the bytes of their values in frames."""
    body = {**packed(request, Packing(framing=False)), "stream": True}
    call = run_call(deployment, task, body, frames)
    return replace(call, headers={"Accept": parts.ACCEPT_EVENTS}) if binary else call


def events_call(run: str) -> Call[Any]:
    return Call("GET", _RUN + "/events", lambda answer: answer.json(), {"run": run}, seconds=None)
