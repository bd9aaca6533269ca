"""Traces of running and finished runs: what they did, when and where."""

from collections.abc import Callable
from typing import Annotated, Literal

import anyio.to_thread
import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import Response

from walkgraph.service.deps import Name, RunName, ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.http.documenting import answer, schema_of
from walkgraph.service.schemas.answers import Answer
from walkgraph.telemetry.critical import Why
from walkgraph.telemetry.sinks import otlp, perfetto
from walkgraph.telemetry.statistics import Statistics
from walkgraph.telemetry.trace import Trace
from walkgraph.wire.answers import traces as answers

router = APIRouter(prefix="/api/v1", tags=["traces"], route_class=StrictRoute)
Limit = Annotated[int, Query(ge=1, le=1000)]
Runs = Annotated[int, Query(ge=1, le=200)]
Task = Annotated[str | None, Query(max_length=64)]
_FILES = [{"type": "object", "required": [key]} for key in ("traceEvents", "resourceSpans")]
_TRACE = answer("The trace, or its export.", {"application/json": {"anyOf": [schema_of(Trace), *_FILES]}})
_ENCODE: dict[str, Callable[[Trace], bytes]] = {
    "json": msgspec.json.encode,
    "perfetto": perfetto.encode,
    "otlp": otlp.encode,
}


@router.get("/runs/{run}/trace", response_class=Response, responses={200: _TRACE})
async def trace(
    services: ServicesDep,
    run: RunName,
    format: Literal["json", "perfetto", "otlp"] = "json",  # noqa: A002
) -> Response:
    """The trace by columns, as `telemetry.trace.Trace` defines them; so far, if the run is unfinished. A run without
    telemetry has an empty trace of level `off` while it can be followed. Times of other hosts are changed into those of
    the service's; `clocks` has the bound of their error for each host, in microseconds. `perfetto` (for
    ui.perfetto.dev) and `otlp` (the body of an OpenTelemetry export) are sent as files."""
    found = await services.traces.trace(run)
    data = await anyio.to_thread.run_sync(_ENCODE[format], found)
    name = f"{run}.{format}.json"
    headers = {} if format == "json" else {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type="application/json", headers=headers)


@router.get("/runs/{run}/why", response_model=Answer[answers.Why])
async def why(services: ServicesDep, run: RunName) -> Response:
    """Tell where the run's time went, and what it waited for."""
    return await _answer(await services.traces.why(run))


@router.get("/deployments/{deployment}/statistics", response_model=Answer[answers.Statistics])
async def statistics(services: ServicesDep, deployment: Name, task: Task = None, runs: Runs = 100) -> Response:
    """Statistics of the deployment's nodes over its newest `runs` stored traces."""
    return await _answer(await services.traces.statistics(deployment, task, runs))


@router.get("/deployments/{deployment}/traces")
async def listed(
    services: ServicesDep, deployment: Name, task: Task = None, limit: Limit = 100
) -> list[Answer[answers.TraceListed]]:
    """Stored traces, newest first. They outlive the deployment."""
    shown = {"run", "task", "state", "level", "seconds", "blocks", "recorded"}
    rows = await services.traces.listed(deployment, task, limit)
    return [answers.TraceListed(**row.model_dump(include=shown), at=row.created_at) for row in rows]


async def _answer(found: Why | Statistics) -> Response:
    # Encoded by msgspec off the event loop: a path may have ten thousand pieces.
    return Response(await anyio.to_thread.run_sync(msgspec.json.encode, found), media_type="application/json")
