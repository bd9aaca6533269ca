"""Conversations as OpenAI's realtime clients hold them."""

from typing import Any

from fastapi import APIRouter, WebSocket

from walkgraph.errors import InvalidInput, WalkgraphError
from walkgraph.service.deps import ServicesDep
from walkgraph.service.http import problems
from walkgraph.service.openai import serving
from walkgraph.service.openai.realtime.session import Session
from walkgraph.service.openai.serving import Resolved
from walkgraph.service.runs import streaming
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.runs.submission import submit

router = APIRouter(tags=["openai"])

_PROTOCOL = "realtime"
"""What OpenAI's clients in browsers offer beside their key, and want to be answered."""


@router.websocket("/v1/realtime")
async def converse(services: ServicesDep, socket: WebSocket, model: str = "") -> None:
    """Turn by turn, in OpenAI's events. A model that isn't there, or can't talk, refuses the handshake."""

    def resolve() -> Resolved:
        if not model:
            raise InvalidInput("name the model in the address: `?model=DEPLOYMENT`", "/model")
        return serving.resolve(services.deployments, model, "realtime")

    def begin(found: Resolved, body: dict[str, Any]) -> LiveRun:
        return submit(services, found.managed.id, found.serving.name, body, socket)

    try:
        session = Session(socket, resolve, begin)
    except WalkgraphError as error:
        await _deny(socket, error)
        return
    if _PROTOCOL in socket.scope.get("subprotocols", ()):
        await socket.accept(subprotocol=_PROTOCOL)
    else:
        await streaming.accept(socket)
    await streaming.until_first(session.hold, lambda: session.leave(services.shutdown.closing))


async def _deny(socket: WebSocket, error: WalkgraphError) -> None:
    if "websocket.http.response" in socket.scope.get("extensions", {}):
        await socket.send_denial_response(problems.of_error(error, socket.scope["path"]))
    else:
        await socket.close(1013 if error.retryable else 1008)
