"""The Open Inference Protocol (KServe v2): health, metadata, inference."""

from typing import Any

import msgspec
from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError
from starlette.requests import Request

from walkgraph import __version__
from walkgraph.errors import NotFound
from walkgraph.service.deployments.managed import Managed
from walkgraph.service.deps import Name, Services, ServicesDep
from walkgraph.service.http import body, pieces, problems
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.http.documenting import KSERVE_PROBLEMS, answer, schema_of_model
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.kserve import binary, protocol
from walkgraph.service.kserve.protocol import InferAnswer, InferRequest, ModelMeta
from walkgraph.service.observe.readiness import is_ready
from walkgraph.service.runs import streaming
from walkgraph.service.runs.disconnects import nobody
from walkgraph.service.runs.submission import declared, refuse_if_full, submit

router = APIRouter(prefix="/v2", tags=["kserve"], route_class=StrictRoute, responses=KSERVE_PROBLEMS)
_ASKED: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": schema_of_model(InferRequest)},
            binary.MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
_GIVEN: dict[int | str, dict[str, Any]] = {
    200: {
        "model": InferAnswer,
        "content": {binary.MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
}


def _said(flag: str, *names: str) -> dict[int | str, dict[str, Any]]:
    """The two answers of a readiness check, which share a schema."""
    properties = {flag: {"type": "boolean"}, **{name: {"type": "string"} for name in names}}
    schema = {"application/json": {"type": "object", "properties": properties, "required": [flag, *names]}}
    return {200: answer("Ready.", schema), 503: answer("Not ready.", schema)}


@router.get("")
async def server() -> dict[str, Any]:
    return {"name": "walkgraph", "version": __version__, "extensions": ["binary_tensor_data"]}


@router.get("/health/live")
async def live() -> dict[str, bool]:
    return {"live": True}


@router.get("/health/ready", responses=_said("ready"))
async def ready(services: ServicesDep) -> JSONResponse:
    return _readiness({"ready": is_ready(services, None)})


@router.get("/models/{model}")
@router.get("/models/{model}/versions/{version}")
async def metadata(services: ServicesDep, model: Name, version: Name | None = None) -> ModelMeta:
    """Inputs and outputs of a version; by default of the model's first one."""
    managed, task = _version(services, model, version)
    return protocol.described(model, managed.judged_graph(), managed.plan, task)


@router.get("/models/{model}/ready", responses=_said("ready", "name"))
@router.get("/models/{model}/versions/{version}/ready", responses=_said("ready", "name"))
async def model_ready(services: ServicesDep, model: Name, version: Name | None = None) -> JSONResponse:
    managed = services.deployments.get(model)
    if version is not None and managed.graph is not None:
        declared(managed, version)
    return _readiness({"name": model, "ready": is_ready(services, model)})


@router.post("/models/{model}/infer", openapi_extra=_ASKED, responses=_GIVEN)
@router.post("/models/{model}/versions/{version}/infer", openapi_extra=_ASKED, responses=_GIVEN)
async def infer(services: ServicesDep, request: Request, model: Name, version: Name | None = None) -> Response:
    """Run a task. Answers when all outputs are there."""
    managed, name = _version(services, model, version)
    task = managed.tasks()[name]
    refuse_if_full(services, model, request)
    given, tensors = binary.split(await request.body(), request.headers.get(binary.HEADER))
    try:
        asked = InferRequest.model_validate(body.parse(given))
    except ValidationError as error:
        faults = problems.validation_faults(error.errors(include_url=False, include_input=False))
        raise Unprocessable("some fields of the request are wrong", faults) from None
    run = submit(services, model, name, protocol.native(task, asked, tensors), request)
    await streaming.result_or_disconnect(request, run)
    if run.finished is None:
        return nobody()
    if run.finished.error is not None:
        return problems.of_run(run.finished.error, request.scope["path"])
    told, chunks = protocol.answered(run, task, asked)
    head = msgspec.json.encode(told)
    if not chunks:
        return Response(head, media_type="application/json")
    headers = {binary.HEADER: str(len(head))}
    return pieces.answer((head, *chunks), {**headers, "Content-Type": binary.MEDIA_TYPE})


def _readiness(said: dict[str, Any]) -> JSONResponse:
    if said["ready"]:
        return JSONResponse(said)
    return JSONResponse(said, status_code=503, headers={"Retry-After": "1"})


def _version(services: Services, model: str, version: str | None) -> tuple[Managed, str]:
    """(deployment, task) of a version. Raises NotFound, and Unavailable until the deployment is judged after the
    service's start."""
    managed = services.deployments.get(model)
    graph = managed.judged_graph()
    name = version or next(iter(graph.tasks), "")
    if not name:
        raise NotFound(f"the deployment `{model}` has no tasks")
    declared(managed, name)
    return managed, name
