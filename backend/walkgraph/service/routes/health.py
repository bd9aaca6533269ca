"""Liveness and readiness. Open to everybody, so the answers say little else: only what an operator must do if the
database is lost, without its path."""

from typing import Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from walkgraph.service.deps import ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.http.documenting import answer
from walkgraph.service.observe.readiness import is_ready

router = APIRouter(tags=["health"], route_class=StrictRoute)
_STATUS = {"application/json": {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}}
_READY = {
    "application/json": {
        "type": "object",
        "properties": {"status": {"type": "string"}, "detail": {"type": "string"}},
        "required": ["status"],
    }
}
_ANSWERS: dict[int | str, dict[str, Any]] = {200: answer("Ready.", _STATUS), 503: answer("Not ready.", _READY)}


@router.get("/health/live", responses={200: answer("Alive.", _STATUS)})
async def live() -> JSONResponse:
    return JSONResponse({"status": "live"})


@router.get("/health/ready", responses=_ANSWERS)
@router.get("/health", include_in_schema=False)
async def ready(services: ServicesDep, deployment: str | None = Query(default=None, max_length=64)) -> JSONResponse:
    """200 if any deployment serves or none exists; with `deployment`, if that one is ready. 503 while draining, and
    without `deployment` while nothing can be saved: then `detail` says what to do."""
    if is_ready(services, deployment):
        return JSONResponse({"status": "ready"})
    told = {"status": "not ready"}
    if services.store.fault is not None:
        told["detail"] = services.store.fault
    return JSONResponse(told, status_code=503, headers={"Retry-After": "1"})
