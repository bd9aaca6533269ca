"""Repeats a run from its request and its seed, and compares two runs."""

from typing import Any, cast

import anyio.to_thread
from starlette.requests import HTTPConnection

from walkgraph.errors import Conflict
from walkgraph.service.deps import Services
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.runs.submission import submit
from walkgraph.store import queries
from walkgraph.telemetry import differences
from walkgraph.wire import messages as m
from walkgraph.wire.answers import runs as answers

_WAY = "stream", "record", "hold"
"""Fields of a request that affect how it is answered, not what is computed."""


async def replay(
    services: Services, name: str, deployment: str | None, *, record: bool, caller: HTTPConnection | None = None
) -> LiveRun:
    """Starts the replay. Raises NotFound for an unknown run, Conflict if it can't be replayed, and as `submit`."""
    run = services.runs.get(name)
    if run is None:
        await services.store.read(queries.get_run, name)
        raise Conflict(f"the request of the run `{name}` is no longer kept; send the request again")
    if run.session is not None:
        raise Conflict("the run depends on states of its session; only runs without a session can be replayed")
    return submit(services, deployment or run.deployment, run.task, _request(run, record=record), caller, asks=True)


def _request(run: LiveRun, *, record: bool) -> dict[str, Any]:
    asked = run.asked
    if asked is None or asked.body is None:
        raise Conflict("the run's request was too large, or was dropped to make room; send it again with `record`")
    if asked.left_out:
        parts = ", ".join(f"`{at}` ({count} bytes)" for at, count in asked.left_out[:8])
        raise Conflict(f"the run's request is kept without {parts}: too large; send it again with `record`")
    if run.seed is None:
        raise Conflict("the run has not been accepted and has no seed yet; send its request again")
    body = {key: value for key, value in asked.body.items() if key not in _WAY}
    return {**body, "params": {**body.get("params", {}), "seed": run.seed}, **({"record": True} if record else {})}


async def compared(services: Services, a: str, b: str) -> answers.Differences:
    """The differences between two runs. Raises NotFound for an unknown run, Conflict if one has not ended, or if only
    one was recorded."""
    made, others = [await _outputs(services, name) for name in (a, b)]
    ours, theirs = [await services.traces.recording(name) for name in (a, b)]
    if (ours is None) != (theirs is None):
        name = a if ours is None else b
        raise Conflict(f"the run `{name}` was not recorded, or its recording was dropped; replay it with `record`")
    recorded = ours is not None
    found = await anyio.to_thread.run_sync(differences.compare, ours or (), theirs or ())
    told: tuple[differences.Output, ...] = ()
    if made is not None and others is not None:
        told = await anyio.to_thread.run_sync(differences.compare_outputs, made, others)
    rows = [cast(answers.Row, row._asdict()) for row in found.rows]
    return {
        "a": a,
        "b": b,
        "recorded": recorded,
        "compared": found.compared,
        "equal": found.equal,
        "missing": {"a": found.missing_a, "b": found.missing_b},
        "outputs": [{"name": o.name, "index": o.number, "equal": o.equal, "max_abs": o.max_abs} for o in told],
        "first": rows[0] if rows else None,
        "rows": rows,
    }


async def _outputs(services: Services, name: str) -> list[m.Output] | None:
    """The outputs of a run; None if they are no longer kept."""
    run = services.runs.get(name)
    if run is None:
        await services.store.read(queries.get_run, name)
        return None
    if run.finished is None:
        raise Conflict(f"the run `{name}` isn't over yet; compare it once it is")
    return run.outputs
