"""Runs as a resource: they go on without their client, can be followed and cancelled, and are remembered."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, WebSocket
from fastapi.responses import Response
from starlette.requests import Request

from walkgraph.errors import NotFound, WalkgraphError
from walkgraph.service.access.callers import caller_of
from walkgraph.service.deps import AnyRun, FrameForm, RunName, ServicesDep, visible
from walkgraph.service.http import pieces
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.http.documenting import answer
from walkgraph.service.http.frames import plain
from walkgraph.service.runs import glimpses, results, runs, streaming
from walkgraph.service.runs.submission import submit
from walkgraph.service.schemas.answers import Answer
from walkgraph.service.schemas.resources import RunRequest
from walkgraph.service.values import outlets
from walkgraph.service.values.outlets import Spliced
from walkgraph.store import queries
from walkgraph.wire.answers.runs import Asked, LeftOut, Run, RunState

router = APIRouter(tags=["runs"], route_class=StrictRoute)
_PREFIX = "/api/v1/runs"
_EVER = 2.0**53
"""Seconds since 1970. Runs may seem to lie in the future, after the wall clock was set back."""
Limit = Annotated[int, Query(ge=1, le=1000)]
_KEPT_SECONDS = 3600
"""The time for which a browser keeps the picture of a run that has ended."""
_PICTURE: dict[int | str, dict[str, Any]] = {
    200: answer("A small PNG.", {"image/png": {"type": "string", "format": "binary"}})
}
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: answer("The run's events, from the first one on.", {"text/event-stream": {"type": "string"}})
}


@router.post(_PREFIX, status_code=202)
async def create(services: ServicesDep, caller: Request, request: RunRequest) -> Answer[Run]:
    """Start a run that goes on without a client."""
    run = submit(services, request.deployment, request.task, request.request, caller, asks=True)
    return results.public(runs.row_of(run), run)


@router.get(_PREFIX)
async def list_runs(
    services: ServicesDep,
    request: Request,
    deployment: str | None = Query(default=None, max_length=64),
    state: RunState | None = None,
    limit: Limit = 100,
    before: float | None = None,
) -> list[Answer[Run]]:
    """Runs, newest first. `before`: the `created_at` of the previous page's last run. A key that has only the scope
    `infer` sees its own runs."""
    caller = caller_of(request)
    own = None if caller.sees_all_runs else caller.key
    before = before if before is not None else _EVER
    stored = await services.store.read(queries.list_runs, deployment, state, limit, before, own)
    rows = services.runs.newest(stored, deployment, state, before, own)
    return [results.public(row, services.runs.get(row.id)) for row in rows[:limit]]


@router.get(_PREFIX + "/{run}")
async def get(services: ServicesDep, run: RunName) -> Answer[Run]:
    live = services.runs.get(run)
    row = runs.row_of(live) if live else await services.store.read(queries.get_run, run)
    return results.public(row, live)


@router.get(_PREFIX + "/{run}/result", response_model=dict[str, Any])
async def result(services: ServicesDep, run: RunName) -> Response:
    """The outputs so far; all of them once the run's `state` is `done`."""
    live, outlet = services.runs.live(run), Spliced(outlets.JSON)
    told = {"state": live.state, **results.result_of(live, outlet)}
    return pieces.answer(tuple(outlet.pieces(told)), {"Content-Type": "application/json"})


@router.get(_PREFIX + "/{run}/thumbnail", response_class=Response, responses=_PICTURE)
async def thumbnail(services: ServicesDep, run: RunName) -> Response:
    """The run's picture as a PNG of at most 128 pixels, as long as the run can be followed: the newest one of its first
    output that has some."""
    live = services.runs.live(run)
    picture = glimpses.picture_of(live.outputs)
    made = await services.thumbnails.small(picture) if picture is not None else None
    if made is None:
        raise NotFound(f"the run `{run}` has made no picture")
    keeping = f"private, max-age={_KEPT_SECONDS}, immutable" if live.finished else "no-store"
    return Response(made, media_type="image/png", headers={"Cache-Control": keeping})


@router.get(_PREFIX + "/{run}/request")
async def asked(services: ServicesDep, run: RunName) -> Answer[Asked]:
    """The client's request, as long as the run can be followed."""
    live = services.runs.live(run)
    found = live.asked
    return Asked(
        run=live.id,
        deployment=live.deployment,
        task=live.task,
        request=plain(found.body) if found else None,
        left_out=[LeftOut(pointer=at, bytes=size) for at, size in found.left_out] if found else [],
    )


@router.get(_PREFIX + "/{run}/events", response_class=Response, responses=_EVENTS)
async def events(services: ServicesDep, run: RunName) -> Response:
    """All events from the start, as server-sent events. The run goes on if the client leaves."""
    return streaming.sse(services.runs.live(run), abort=False)


@router.delete(_PREFIX + "/{run}", status_code=202)
async def cancel(services: ServicesDep, run: RunName) -> dict[str, Literal["cancelling", "over"]]:
    live = services.runs.get(run)
    if live is None:
        await services.store.read(queries.get_run, run)
        return {"state": "over"}
    live.abort()
    return {"state": "cancelling" if live.finished is None else "over"}


@router.websocket("/ws/v1/runs/{run}")
async def follow(services: ServicesDep, socket: WebSocket, run: AnyRun, frames: FrameForm = "json") -> None:
    await streaming.accept(socket)
    try:
        live = services.runs.live(await visible(services, socket, run))
    except WalkgraphError as error:
        await streaming.refuse(socket, error)
        return
    await streaming.over_websocket(socket, live, abort=False, binary=frames == "binary")
