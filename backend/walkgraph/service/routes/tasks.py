"""Inference: one request, one run. The run ends with its client."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.requests import Request

from walkgraph.graph.document import Task
from walkgraph.service import answering, problems, streaming
from walkgraph.service.body import StrictRoute
from walkgraph.service.deployments import Managed
from walkgraph.service.deps import Name, ServicesDep
from walkgraph.service.submission import declared, submit
from walkgraph.service.tasks import request_schema

router = APIRouter(tags=["tasks"], route_class=StrictRoute)


@router.get("/v1/tasks/{deployment}")
async def list_tasks(services: ServicesDep, deployment: Name) -> list[dict[str, Any]]:
    managed = services.deployments.get(deployment)
    return [_shown(managed, name, task) for name, task in managed.tasks().items()]


@router.get("/v1/tasks/{deployment}/{task}")
async def get_task(services: ServicesDep, deployment: Name, task: Name) -> dict[str, Any]:
    """What the task takes: `schema` is the JSON Schema of the body that is sent here by POST."""
    managed = services.deployments.get(deployment)
    return _shown(managed, task, declared(managed, task))


@router.post(
    "/v1/tasks/{deployment}/{task}",
    response_class=Response,
    responses=answering.ANSWERS,
    openapi_extra=answering.REQUEST,
)
async def run_task(services: ServicesDep, request: Request, deployment: Name, task: Name) -> Response:
    """Run a task and answer with its outputs; with `"stream": true`, or `Accept: text/event-stream`, as they come; with
    another `Accept`, as bytes."""
    kinds = answering.accepted(request.headers.get("accept", ""))
    if not kinds:
        return answering.refused()
    declaration = declared(services.deployments.get(deployment), task)
    body = await answering.read(request, declaration)
    run = submit(services, deployment, task, body, request)
    if body.get("stream") is True or kinds[0] == answering.EVENTS:
        return streaming.sse(run, abort=True)
    await streaming.result_or_disconnect(request, run)
    if run.finished is None:
        # Nobody reads it: the client has left.
        return Response(status_code=499)
    if run.finished.error is not None:
        return problems.of_run(run.finished.error)
    return answering.result(run, declaration, kinds)


def _shown(managed: Managed, name: str, task: Task) -> dict[str, Any]:
    return {
        "deployment": managed.id,
        "name": name,
        **task.model_dump(mode="json", include={"label", "inputs", "outputs", "params"}),
        "session": task.session is not None,
        "schema": request_schema(name, task),
    }
