"""Deployments: create, read, switch, restart, delete."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response
from starlette.requests import Request

from walkgraph.service.access.auditing import act
from walkgraph.service.deployments.judging import resolve
from walkgraph.service.deployments.managed import Managed
from walkgraph.service.deps import Name, ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.schemas.resources import DeploymentRequest, SwitchRequest

SwitchGrace = Annotated[float, Query(ge=0, le=600)]

router = APIRouter(prefix="/api/v1/deployments", tags=["deployments"], route_class=StrictRoute)


@router.get("")
async def list_all(services: ServicesDep) -> list[dict[str, Any]]:
    return [_shown(managed) for managed in services.deployments.listed()]


@router.post("", status_code=202)
async def create(services: ServicesDep, caller: Request, request: DeploymentRequest) -> dict[str, Any]:
    """Start a deployment. It serves once its `state` is `ready`."""
    named = request.graph if isinstance(request.graph, str) else ""
    attempt = act(caller, "deployment.create", request.name or named)
    async with services.audit.attempt(attempt):
        graph = await resolve(services.store, "graph", request.graph)
        placement = await resolve(services.store, "placement", request.placement)
        managed = await services.deployer.create(
            request.name or graph.name, graph.name, graph.value, placement.name, placement.value, attempt
        )
    return _shown(managed)


@router.get("/{deployment}")
async def get(
    services: ServicesDep,
    deployment: Name,
    after: int | None = None,
    wait: float = Query(default=20.0, ge=0, le=30),
) -> dict[str, Any]:
    """The deployment's status. With `after`, a `revision`, waits up to `wait` seconds for a later revision."""
    managed = services.deployments.get(deployment)
    if after is not None:
        await managed.changed_after(after, wait)
    return _shown(managed)


@router.get("/{deployment}/graph")
async def graph(services: ServicesDep, deployment: Name) -> dict[str, Any]:
    """The graph document that it was made from."""
    return services.deployments.get(deployment).serving.documents.graph


@router.get("/{deployment}/placement")
async def placement(services: ServicesDep, deployment: Name) -> dict[str, Any]:
    return services.deployments.get(deployment).serving.documents.placement


@router.put("/{deployment}", status_code=202)
async def switch(
    services: ServicesDep, caller: Request, deployment: Name, request: SwitchRequest, grace: SwitchGrace = 60.0
) -> dict[str, Any]:
    """Switch to another graph or placement without a pause. The new version starts beside the old one, which serves
    until the new one is ready; then its runs may finish for `grace` seconds. `next` shows the new version's progress,
    or why it failed; the old one then goes on. Sessions end with the old version. Replaces a switch under way."""
    attempt = act(caller, "deployment.replace", deployment)
    async with services.audit.attempt(attempt):
        graph = await resolve(services.store, "graph", request.graph)
        placement = await resolve(services.store, "placement", request.placement)
        managed = await services.deployer.switch(
            deployment, graph.name, graph.value, placement.name, placement.value, grace, attempt
        )
    return _shown(managed)


@router.post("/{deployment}/restart", status_code=202)
async def restart(
    services: ServicesDep, caller: Request, deployment: Name, grace: SwitchGrace = 60.0
) -> dict[str, Any]:
    """Switch to the same documents in a new process."""
    attempt = act(caller, "deployment.restart", deployment)
    async with services.audit.attempt(attempt):
        managed = await services.deployer.restart(deployment, grace, attempt)
    return _shown(managed)


@router.delete("/{deployment}/next", status_code=204, response_class=Response)
async def forget_next(services: ServicesDep, caller: Request, deployment: Name) -> Response:
    """Cancel the switch that is under way, or clear one that failed. The serving version goes on."""
    attempt = act(caller, "deployment.forget", deployment)
    async with services.audit.attempt(attempt):
        await services.deployer.forget_next(deployment)
    await services.audit.tell(attempt.entry("done"))
    return Response(status_code=204)


@router.delete("/{deployment}", status_code=204, response_class=Response)
async def delete(
    services: ServicesDep, caller: Request, deployment: Name, grace: float = Query(default=5.0, ge=0, le=600)
) -> Response:
    """Undeploy. Runs may finish for up to `grace` seconds. Answers when the deployment is gone."""
    attempt = act(caller, "deployment.delete", deployment)
    async with services.audit.attempt(attempt):
        await services.deployer.delete(deployment, grace, attempt)
    return Response(status_code=204)


def _shown(managed: Managed) -> dict[str, Any]:
    return {**managed.public()}
