"""Scratch deployments: a page runs there what is drawn on it."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.requests import Request

from walkgraph.errors import NotFound
from walkgraph.service.access.auditing import act
from walkgraph.service.access.callers import caller_of
from walkgraph.service.deployments.judging import resolve
from walkgraph.service.deps import Name, ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.schemas.resources import SwitchRequest

router = APIRouter(prefix="/api/v1/scratch", tags=["deployments"], route_class=StrictRoute)


@router.put("/{deployment}")
async def serve(services: ServicesDep, caller: Request, deployment: Name, request: SwitchRequest) -> dict[str, Any]:
    """Have a scratch deployment serve a graph. The first time it starts, and serves once its `state` is `ready`. Later
    it answers once it serves the changed graph: what did not change stays loaded. Its runs are cancelled by a change.
    It ends on DELETE, or when nothing has run on it for ten minutes."""
    attempt = act(caller, "scratch.serve", deployment)
    async with services.audit.attempt(attempt):
        graph = await resolve(services.store, "graph", request.graph)
        placement = await resolve(services.store, "placement", request.placement)
        managed = await services.deployer.scratches.serve(
            deployment, caller_of(caller).id, graph.name, graph.value, placement.name, placement.value
        )
    return {**managed.public()}


@router.delete("/{deployment}", status_code=204, response_class=Response)
async def end(services: ServicesDep, caller: Request, deployment: Name) -> Response:
    """End a scratch deployment and its runs."""
    attempt = act(caller, "scratch.end", deployment)
    async with services.audit.attempt(attempt):
        managed = services.deployments.get(deployment)
        if managed.owner != caller_of(caller).id:
            raise NotFound(f"there is no scratch deployment `{deployment}` of this caller")
        await services.deployer.delete(deployment, 0.0, attempt)
    return Response(status_code=204)
