"""What runs, and what is wanted to run."""

from typing import Any

from fastapi import APIRouter, Query
from fastapi.responses import Response

from walkgraph.service.body import StrictRoute
from walkgraph.service.deps import Name, ServicesDep
from walkgraph.service.judging import resolve
from walkgraph.service.schemas import DeploymentRequest

router = APIRouter(prefix="/api/v1/deployments", tags=["deployments"], route_class=StrictRoute)


@router.get("")
async def list_all(services: ServicesDep) -> list[dict[str, Any]]:
    return [managed.public() for managed in services.deployments.listed()]


@router.post("", status_code=202)
async def create(services: ServicesDep, request: DeploymentRequest) -> dict[str, Any]:
    """Start a deployment; it is ready once its `state` says so."""
    graph = await resolve(services.store, "graph", request.graph)
    placement = await resolve(services.store, "placement", request.placement)
    managed = await services.deployments.create(
        request.name or graph.name, graph.name, graph.value, placement.name, placement.value
    )
    return managed.public()


@router.get("/{deployment}")
async def get(
    services: ServicesDep,
    deployment: Name,
    after: int | None = None,
    wait: float = Query(default=20.0, ge=0, le=30),
) -> dict[str, Any]:
    """How it is. With `after` (a `revision`) the answer waits for a later one, for `wait` seconds at most."""
    managed = services.deployments.get(deployment)
    if after is not None:
        await managed.changed_after(after, wait)
    return managed.public()


@router.get("/{deployment}/graph")
async def graph(services: ServicesDep, deployment: Name) -> dict[str, Any]:
    """The document it was made from."""
    return services.deployments.get(deployment).graph_document


@router.get("/{deployment}/placement")
async def placement(services: ServicesDep, deployment: Name) -> dict[str, Any]:
    return services.deployments.get(deployment).placement_document


@router.delete("/{deployment}", status_code=204, response_class=Response)
async def delete(services: ServicesDep, deployment: Name, grace: float = Query(default=5.0, ge=0, le=600)) -> Response:
    """Undeploy; its runs may finish for up to `grace` seconds. Answers when it is gone."""
    await services.deployments.delete(deployment, grace)
    return Response(status_code=204)
