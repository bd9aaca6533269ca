"""Tasks with their inputs, outputs and parameters."""

from typing import Any

from fastapi import APIRouter

from walkgraph.graph.document import Task
from walkgraph.service.deployments.managed import Managed
from walkgraph.service.deps import Name, ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.runs.submission import declared
from walkgraph.service.runs.tasks import request_schema

router = APIRouter(tags=["tasks"], route_class=StrictRoute)


@router.get("/v1/tasks")
async def list_all_tasks(services: ServicesDep) -> list[dict[str, Any]]:
    """The tasks of all deployments whose graphs are checked already; for keys that may not list deployments."""
    graphs = [(managed, managed.graph) for managed in services.deployments.offered()]
    return [_shown(managed, name, task) for managed, graph in graphs if graph for name, task in graph.tasks.items()]


@router.get("/v1/tasks/{deployment}")
async def list_tasks(services: ServicesDep, deployment: Name) -> list[dict[str, Any]]:
    managed = services.deployments.get(deployment)
    return [_shown(managed, name, task) for name, task in managed.tasks().items()]


@router.get("/v1/tasks/{deployment}/{task}")
async def get_task(services: ServicesDep, deployment: Name, task: Name) -> dict[str, Any]:
    """A task. `schema` is the JSON Schema of the body for a POST to this path."""
    managed = services.deployments.get(deployment)
    return _shown(managed, task, declared(managed, task))


def _shown(managed: Managed, name: str, task: Task) -> dict[str, Any]:
    return {
        "deployment": managed.id,
        "name": name,
        **task.model_dump(mode="json", include={"label", "inputs", "outputs", "params"}),
        "session": task.session is not None,
        "schema": request_schema(name, task),
    }
