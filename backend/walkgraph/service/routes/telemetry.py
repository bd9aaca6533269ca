"""Live telemetry: every frame of one deployment, or of all."""

from functools import partial

from fastapi import APIRouter, Query, WebSocket
from starlette.websockets import WebSocketDisconnect

from walkgraph.errors import WalkgraphError
from walkgraph.service.deps import ServicesDep
from walkgraph.service.http import limits
from walkgraph.service.observe.hub import CLOSE_TRY_LATER, Stalled
from walkgraph.service.runs import streaming

router = APIRouter(tags=["telemetry"])


@router.websocket("/ws/v1/telemetry")
async def telemetry(
    services: ServicesDep, socket: WebSocket, deployment: str | None = Query(default=None, max_length=64)
) -> None:
    """Sends `welcome` and the status of every deployment, then frames as they come."""
    await streaming.accept(socket)
    tell = partial(streaming.send_text, socket)
    for managed in services.deployments.listed():
        if deployment in (None, managed.id):
            await streaming.send_json(socket, {"type": "deployment", "deployment": managed.id, **managed.public()})
    try:
        await streaming.until_first(lambda: services.hub.serve(tell, deployment), lambda: _listen(socket))
    except Stalled:
        await streaming.close(socket, CLOSE_TRY_LATER)
    except WalkgraphError as error:
        await streaming.refuse(socket, error)


async def _listen(socket: WebSocket) -> None:
    """Discards the client's messages until it leaves."""
    while True:
        try:
            await streaming.receive_json(socket, limits.WS_MESSAGE_BYTES)
        except streaming.Unreadable as fault:
            # The hub sends whole messages, so this doesn't come in the middle of one.
            await streaming.refuse(socket, fault.error, fault.code)
            return
        except WebSocketDisconnect:
            return
