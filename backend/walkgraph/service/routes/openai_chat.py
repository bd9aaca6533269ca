"""`POST /v1/chat/completions`: OpenAI's request as runs of a task, one for each choice."""

import asyncio
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any, TypeVar

import msgspec
from fastapi import APIRouter
from fastapi.responses import Response, StreamingResponse
from starlette.requests import Request

from walkgraph.errors import WalkgraphError
from walkgraph.service import idempotency
from walkgraph.service.body import StrictRoute
from walkgraph.service.deps import Services, ServicesDep
from walkgraph.service.documenting import answer
from walkgraph.service.openai import chat, replies, serving
from walkgraph.service.openai.chat_schemas import ChatRequest, Completion
from walkgraph.service.openai.errors import ANSWERS
from walkgraph.service.openai.hearing import in_wav
from walkgraph.service.problems import Unprocessable
from walkgraph.service.runs import LiveRun
from walkgraph.service.streaming import left
from walkgraph.service.submission import submit

T = TypeVar("T")

_STREAM = answer("With `stream`: chunks, the last `[DONE]`.", {"text/event-stream": {"type": "string"}})["content"]

router = APIRouter(prefix="/v1/chat", tags=["openai"], route_class=StrictRoute, responses=ANSWERS)


@router.post("/completions", response_model=Completion, responses={200: {"content": _STREAM}})
async def complete(services: ServicesDep, request: Request, body: ChatRequest) -> Response:
    """Ask a task whose answer is text. Fields that are not OpenAI's are parameters of the task."""
    resolved = serving.resolve(services.deployments, body.model, "chat.completions")
    if idempotency.NAME in request.headers:
        request.state.asked = body.model_dump(mode="json")
    if "audio" in resolved.serving.taken:
        await in_wav(body)
    sent = chat.send(body, resolved)
    runs = _started(services, request, resolved, sent)
    with ExitStack() as leaving:
        leaving.callback(_leave, runs)
        if not body.stream:
            made = await _unless_left(request, replies.completion(runs, sent, body.model))
            return Response(msgspec.json.encode(made.result()), media_type="application/json") if made else _nobody()
        if not (made := await _unless_left(request, replies.begun(runs[0]))):
            return _nobody()
        made.result()
        # From here on the stream says when its client leaves.
        leaving.pop_all()
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    events = replies.Streamed(runs, sent, body.model, with_usage=with_usage).events()
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _started(services: Services, request: Request, resolved: serving.Resolved, sent: chat.Sent) -> list[LiveRun]:
    """All of them, or none goes on."""
    runs: list[LiveRun] = []
    try:
        for one in sent.bodies:
            runs.append(submit(services, resolved.managed.id, resolved.serving.name, one, request))
    except WalkgraphError as error:
        _leave(runs)
        raise (chat.refused(error, sent) if isinstance(error, Unprocessable) else error) from None
    return runs


async def _unless_left(request: Request, work: Coroutine[Any, Any, T]) -> asyncio.Future[T] | None:
    """What has been done; None where the client left before that."""
    made = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(left(request))
    try:
        await asyncio.wait([made, gone], return_when=asyncio.FIRST_COMPLETED)
        return made if made.done() else None
    finally:
        made.cancel()
        gone.cancel()


def _nobody() -> Response:
    """The client has left."""
    return Response(status_code=499)


def _leave(runs: list[LiveRun]) -> None:
    for run in runs:
        run.abort("disconnected")
