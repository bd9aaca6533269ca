"""OpenAI's realtime conversations."""

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
"""The subprotocol that OpenAI's browser clients offer beside their key and expect to be accepted."""


@router.websocket("/v1/realtime")
async def converse(services: ServicesDep, socket: WebSocket, model: str = "") -> None:
    """Hold a conversation in turns, with OpenAI's events. The handshake is refused if the model doesn't exist or can't
    talk."""

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
