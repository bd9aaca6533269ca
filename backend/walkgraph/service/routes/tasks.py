"""Inference: one request, one run. The run ends with its client."""

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.requests import Request

from walkgraph.graph.document import Task
from walkgraph.service.deps import Name, ServicesDep
from walkgraph.service.http import problems
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.runs import answering, streaming
from walkgraph.service.runs.disconnects import nobody
from walkgraph.service.runs.submission import declared, refuse_if_full, submit

router = APIRouter(tags=["tasks"], route_class=StrictRoute)


@router.post(
    "/v1/tasks/{deployment}/{task}",
    response_class=Response,
    responses=answering.ANSWERS,
    openapi_extra=answering.REQUEST,
)
async def run_task(services: ServicesDep, request: Request, deployment: Name, task: Name) -> Response:
    """Run a task and answer with its outputs. `"stream": true` or `Accept: text/event-stream` sends them as they come,
    with `Accept: multipart/mixed` in parts, with `application/vnd.msgpack` as msgpack; other `Accept` types return an
    output's bytes, all tensors, or a form."""
    kinds = answering.accepted(request.headers.get("accept", ""))
    if not kinds:
        return answering.refused()

    def declaration() -> Task:
        return declared(services.deployments.get(deployment), task)

    refuse_if_full(services, deployment, request)
    body = await answering.read(request, declaration)
    run = submit(services, deployment, task, body, request, asks=True)
    outputs = declaration().outputs
    if body.get("stream") is True or kinds[0].kind == answering.EVENTS:
        return kinds[0].format.streamed(run, kinds[0].kind)
    begun = kinds[0].begun
    here = await streaming.result_or_disconnect(request, run, early=begun is not None)
    if run.waiting is not None:
        return answering.waits(run)
    if run.finished is None:
        return begun(run, kinds[0].kind) if begun and here else nobody()
    if run.finished.error is not None:
        return problems.of_run(run.finished.error)
    return answering.result(run, outputs, kinds)
