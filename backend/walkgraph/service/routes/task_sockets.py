"""Inference over a WebSocket: one request, one run, one message per event."""

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from walkgraph.errors import WalkgraphError
from walkgraph.service.deps import FrameForm, Name, ServicesDep
from walkgraph.service.http import limits
from walkgraph.service.http.frames import placed
from walkgraph.service.runs import streaming
from walkgraph.service.runs.submission import submit

router = APIRouter(tags=["tasks"])


@router.websocket("/ws/v1/tasks/{deployment}/{task}")
async def run_over_websocket(
    services: ServicesDep, socket: WebSocket, deployment: Name, task: Name, frames: FrameForm = "json"
) -> None:
    """The first message is the request; every event follows as a message. Closing the socket ends the run."""
    await streaming.accept(socket)
    try:
        body, found = await streaming.first_message(socket, limits.WS_FRAME_BYTES)
        run = submit(services, deployment, task, placed(body, found), socket, asks=True)
    except WebSocketDisconnect:
        return
    except WalkgraphError as error:
        await streaming.refuse(socket, error)
        return
    await streaming.over_websocket(socket, run, abort=True, binary=frames == "binary")
