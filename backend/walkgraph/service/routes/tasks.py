"""Inference: one request, one run. The run ends with its client."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Body, WebSocket
from fastapi.responses import Response
from starlette.requests import Request
from starlette.websockets import WebSocketDisconnect

from walkgraph.errors import WalkgraphError
from walkgraph.graph.document import Task
from walkgraph.service import limits, problems, runs, streaming
from walkgraph.service.body import StrictRoute
from walkgraph.service.deployments import Managed
from walkgraph.service.deps import FrameForm, Name, ServicesDep
from walkgraph.service.frames import placed
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


@router.post("/v1/tasks/{deployment}/{task}")
async def run_task(
    services: ServicesDep,
    request: Request,
    deployment: Name,
    task: Name,
    body: Annotated[dict[str, Any], Body()],
) -> Response:
    """Run a task and answer with its outputs; with `"stream": true`, or `Accept: text/event-stream`, as they come."""
    run = submit(services, deployment, task, body, request)
    if body.get("stream") is True or "text/event-stream" in request.headers.get("accept", ""):
        return streaming.sse(run, abort=True)
    await streaming.result_or_disconnect(request, run)
    if run.finished is None:
        # Nobody reads it: the client has left.
        return Response(status_code=499)
    if run.finished.error is not None:
        return problems.of_run(run.finished.error)
    return Response(msgspec.json.encode(runs.result_of(run)), media_type="application/json")


@router.websocket("/ws/v1/tasks/{deployment}/{task}")
async def run_over_websocket(
    services: ServicesDep, socket: WebSocket, deployment: Name, task: Name, frames: FrameForm = "json"
) -> None:
    """The first message is the request; then every event as a message. Closing the socket ends the run."""
    await streaming.accept(socket)
    try:
        body, found = await streaming.first_message(socket, limits.WS_FRAME_BYTES)
        run = submit(services, deployment, task, placed(body, found), socket)
    except WebSocketDisconnect:
        return
    except WalkgraphError as error:
        await streaming.refuse(socket, error)
        return
    await streaming.over_websocket(socket, run, abort=True, binary=frames == "binary")


def _shown(managed: Managed, name: str, task: Task) -> dict[str, Any]:
    return {
        "deployment": managed.id,
        "name": name,
        **task.model_dump(mode="json", include={"label", "inputs", "outputs", "params"}),
        "session": task.session is not None,
        "schema": request_schema(name, task),
    }
