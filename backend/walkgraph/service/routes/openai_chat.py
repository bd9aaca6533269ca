"""`POST /v1/chat/completions`: one run of a task for each choice of OpenAI's request."""

from contextlib import ExitStack

import msgspec
from fastapi import APIRouter
from fastapi.responses import Response
from starlette.requests import Request

from walkgraph.service.deps import ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.http.documenting import answer
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.openai import chat, replies, serving
from walkgraph.service.openai.chat_schemas import ChatRequest, Completion
from walkgraph.service.openai.errors import ANSWERS
from walkgraph.service.openai.hearing import in_wav
from walkgraph.service.runs import idempotency
from walkgraph.service.runs.disconnects import Streamed, leave, nobody, unless_left
from walkgraph.service.runs.submission import submit_all

_STREAM = answer("With `stream`: chunks, the last `[DONE]`.", {"text/event-stream": {"type": "string"}})["content"]

router = APIRouter(prefix="/v1/chat", tags=["openai"], route_class=StrictRoute, responses=ANSWERS)


@router.post("/completions", response_model=Completion, responses={200: {"content": _STREAM}})
async def complete(services: ServicesDep, request: Request, body: ChatRequest) -> Response:
    """Run a task whose output is text. Fields that are not OpenAI's are parameters of the task."""
    answered = any(message.role == "assistant" for message in body.messages)
    resolved = serving.resolve(services.deployments, body.model, "chat.completions", history=answered)
    if idempotency.NAME in request.headers:
        request.state.asked = body.model_dump(mode="json")
    if "audio" in resolved.serving.heard:
        await in_wav(body)
    sent = chat.send(body, resolved)
    try:
        runs = submit_all(services, resolved.managed.id, resolved.serving.name, sent.bodies, request)
    except Unprocessable as error:
        raise chat.refused(error, sent) from None
    with ExitStack() as leaving:
        leaving.callback(leave, runs)
        if not body.stream:
            made = await unless_left(request, replies.completion(runs, sent, body.model))
            return Response(msgspec.json.encode(made.result()), media_type="application/json") if made else nobody()
        if not (made := await unless_left(request, replies.begun(runs[0]))):
            return nobody()
        made.result()
        with_usage = bool(body.stream_options and body.stream_options.include_usage)
        events = replies.Chunks(runs, sent, body.model, with_usage=with_usage).events()
        return Streamed(events, leaving.pop_all().close)
