"""OpenAI's routes for images."""

from typing import Annotated, Any

from fastapi import APIRouter, Body
from fastapi.responses import Response
from starlette.requests import Request

from walkgraph.errors import NotFound, WalkgraphError
from walkgraph.service.deps import Services, ServicesDep
from walkgraph.service.http import body, multipart
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.http.documenting import answer, schema_of
from walkgraph.service.openai.errors import ANSWERS
from walkgraph.service.openai.images import answers, forms, pictures
from walkgraph.service.openai.images.answers import Kind, Look, PicturesShown
from walkgraph.service.openai.images.pictures import EditRequest, PicturesRequest, Shown
from walkgraph.service.openai.serving import Resolved
from walkgraph.service.runs import disconnects, idempotency
from walkgraph.service.runs.submission import submit_all

router = APIRouter(tags=["openai"], route_class=StrictRoute, responses=ANSWERS)

_STREAM = {"type": "string", "description": "Server-sent events: `*.partial_image`, then `*.completed`."}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: answer(
        "The images; with `stream`, events as they come.",
        {"application/json": schema_of(PicturesShown), disconnects.EVENTS: _STREAM},
    )
}
_FILE = {"type": "string", "format": "binary"}


def _edit_content() -> dict[str, Any]:
    asked = EditRequest.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = {name: schema for name, schema in asked["properties"].items() if name not in ("image", "images", "mask")}
    files = {"image": _FILE, "image[]": {"type": "array", "items": _FILE}, "mask": _FILE}
    form = {"type": "object", "properties": {**files, **parts}, "required": ["image"]}
    return {multipart.MEDIA_TYPE: {"schema": form}, "application/json": {"schema": asked}}


@router.post("/v1/images/generations", response_class=Response, responses=_RESPONSES)
async def generate(services: ServicesDep, request: Request, asked: Annotated[PicturesRequest, Body()]) -> Response:
    """Generate images from a prompt. Keys that are not OpenAI's are parameters of the task."""
    resolved = pictures.resolve(services.deployments, asked.model, "images.generations")
    return await _answered(services, request, resolved, asked, None, "image_generation")


@router.post(
    "/v1/images/edits",
    response_class=Response,
    responses=_RESPONSES,
    openapi_extra={"requestBody": {"required": True, "content": _edit_content()}},
)
async def edit(services: ServicesDep, request: Request) -> Response:
    """Edit images by a prompt. Takes a form with files, or JSON with `data:` URLs."""
    if multipart.is_form(request.headers.get("content-type", "")):
        form = await multipart.read(request)
        resolved = pictures.resolve(services.deployments, forms.model_of(form), "images.edits")
        asked, shown = forms.edit_of_form(form, resolved.serving)
    else:
        asked, shown = forms.edit_of_json(body.parse(await request.body()))
        resolved = pictures.resolve(services.deployments, asked.model, "images.edits")
    return await _answered(services, request, resolved, asked, shown, "image_edit")


@router.post("/v1/images/variations", include_in_schema=False)
async def vary() -> Response:
    raise NotFound(
        "variations are not supported: draw with `/v1/images/generations` and another `seed`, or change a picture with "
        "`/v1/images/edits`"
    )


async def _answered(
    services: Services, request: Request, resolved: Resolved, asked: PicturesRequest, shown: Shown | None, kind: Kind
) -> Response:
    """Starts one run per image."""
    serving = resolved.serving
    bodies = pictures.task_bodies(asked, serving, shown)
    quality = 100 if asked.output_compression is None else asked.output_compression
    look = Look(kind, asked.form, quality, asked.previews)
    if idempotency.NAME in request.headers:
        request.scope["state"][idempotency.ASKED] = (asked.model_dump(exclude=pictures.PICTURES), shown)
    try:
        runs = submit_all(services, resolved.managed.id, serving.name, bodies, request)
    except WalkgraphError as error:
        raise pictures.in_openai_terms(error, serving) from None
    if asked.stream:
        return await answers.stream(request, runs, serving, look)
    return await answers.whole(request, runs, serving, look)
