"""Taps, breakpoints and the telemetry level of a deployment."""

from collections.abc import Generator
from contextlib import contextmanager

from fastapi import APIRouter
from fastapi.responses import Response

from walkgraph.conductor.runs.watching import Places
from walkgraph.service.deployments.managed import Managed
from walkgraph.service.deps import Name, Services, ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.http.problems import Fault, Unprocessable
from walkgraph.service.schemas.answers import Answer
from walkgraph.service.schemas.watch import BreakRequest, LevelRequest, TapChange, TapRequest
from walkgraph.wire.answers.watching import Breakpoint, Tap, Watch

router = APIRouter(prefix="/api/v1/deployments/{deployment}", tags=["watch"], route_class=StrictRoute)


@router.get("/watch")
async def get(services: ServicesDep, deployment: Name) -> Answer[Watch]:
    managed = services.deployments.get(deployment)
    return _watched(managed)


@router.put("/watch/level")
async def set_level(services: ServicesDep, deployment: Name, request: LevelRequest) -> Answer[Watch]:
    """Set the telemetry level: nothing, sums, or every batch. It takes effect at once."""
    with _changed(services, deployment) as managed:
        managed.watched.level = request.level
    return _watched(managed)


@router.post("/taps", status_code=201)
async def add_tap(services: ServicesDep, deployment: Name, request: TapRequest) -> Answer[Tap]:
    """Sample the values that leave one place. A tap `inside` a device loop sees only runs that start from now on: their
    loops are stepped while it is armed."""
    with _changed(services, deployment) as managed:
        places = _places(managed)
        _check_run(services, managed, request.run)
        id_ = managed.watched.tap(request, places)
    return managed.watched.tap_shown(id_, places)


@router.patch("/taps/{tap}")
async def change_tap(services: ServicesDep, deployment: Name, tap: Name, request: TapChange) -> Answer[Tap]:
    """Change the interval of a tap. It takes effect at once; the tap still expires when it would have."""
    with _changed(services, deployment) as managed:
        places = _places(managed)
        managed.watched.change_tap(tap, request.interval)
    return managed.watched.tap_shown(tap, places)


@router.delete("/taps/{tap}", status_code=204, response_class=Response)
async def remove_tap(services: ServicesDep, deployment: Name, tap: Name) -> Response:
    with _changed(services, deployment) as managed:
        managed.watched.remove_tap(tap)
    return Response(status_code=204)


@router.post("/breakpoints", status_code=201)
async def add_breakpoint(services: ServicesDep, deployment: Name, request: BreakRequest) -> Answer[Breakpoint]:
    """Pause runs before the calls of a use. A breakpoint `inside` a device loop holds only runs that start from now on:
    their loops are stepped while it is armed."""
    with _changed(services, deployment) as managed:
        places = _places(managed)
        _check_run(services, managed, request.run)
        id_ = managed.watched.stop_at(request, places)
    return managed.watched.break_shown(id_, places)


@router.delete("/breakpoints/{breakpoint_}", status_code=204, response_class=Response)
async def remove_breakpoint(services: ServicesDep, deployment: Name, breakpoint_: Name) -> Response:
    """Remove a breakpoint. Runs that are paused at it stay paused."""
    with _changed(services, deployment) as managed:
        managed.watched.remove_break(breakpoint_)
    return Response(status_code=204)


def _watched(managed: Managed) -> Watch:
    return managed.watched.public(managed.serving.places)


def _places(managed: Managed) -> Places:
    places = managed.serving.places
    if places is None:
        raise managed.serving.not_serving()
    return places


def _check_run(services: Services, managed: Managed, run: str | None) -> None:
    if run is None:
        return
    live = services.runs.get(run)
    if live is None or live.finished is not None or live.deployment != managed.id:
        message = f"the deployment `{managed.id}` has no run `{run}` under way; leave this out for all runs"
        raise Unprocessable(message, [Fault("/run", "unknown_name", message)])


@contextmanager
def _changed(services: Services, deployment: str) -> Generator[Managed]:
    """Encloses a change of taps, breakpoints or level; it takes effect at the end of the block."""
    managed = services.deployments.get(deployment)
    yield managed
    managed.rewatch()
