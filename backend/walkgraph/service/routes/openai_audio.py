"""OpenAI's route for speech."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.requests import Request

from walkgraph.errors import WalkgraphError
from walkgraph.service.deps import ServicesDep
from walkgraph.service.http import documenting
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.openai import serving, speech
from walkgraph.service.openai.errors import ANSWERS
from walkgraph.service.openai.speech import SpeechRequest
from walkgraph.service.runs.idempotency import ASKED
from walkgraph.service.runs.submission import submit
from walkgraph.service.values import sound

router = APIRouter(tags=["openai"], route_class=StrictRoute, responses=ANSWERS)

_BYTES = {"type": "string", "format": "binary"}
_KINDS = {form.media_type.partition(";")[0]: _BYTES for form in sound.FORMATS.values()}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: documenting.answer("Audio, or events with it, as it is generated.", {**_KINDS, "text/event-stream": _BYTES}),
}


@router.post("/v1/audio/speech", response_class=Response, responses=_ANSWERS)
async def speak(services: ServicesDep, request: Request, asked: SpeechRequest) -> Response:
    """Read a text aloud. The audio is sent while it is generated; if the client leaves, the run ends."""
    found = serving.resolve(services.deployments, asked.model, "audio.speech")
    body = speech.task_body(asked, found.serving)
    request.scope["state"][ASKED] = asked.model_dump()
    try:
        run = submit(services, found.managed.id, found.serving.name, body, request)
    except WalkgraphError as error:
        raise speech.in_openai_terms(error, found.serving) from None
    return await speech.answer(request, run, found.serving, asked.response_format, events=asked.stream_format == "sse")
