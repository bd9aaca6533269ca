"""Sessions: a socket on which every message is a request, and whose runs share states."""

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Query, WebSocket
from starlette.websockets import WebSocketDisconnect

from walkgraph.errors import InvalidInput, WalkgraphError
from walkgraph.service.deps import FrameForm, Name, ServicesDep
from walkgraph.service.runs import streaming
from walkgraph.service.runs.conversing import Conversation
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.runs.submission import declared, submit

router = APIRouter(tags=["sessions"])


@router.websocket("/ws/v1/sessions/{deployment}/{task}")
async def converse(
    services: ServicesDep,
    socket: WebSocket,
    deployment: Name,
    task: Name,
    session: Annotated[str, Query(max_length=64)] = "",
    frames: FrameForm = "json",
) -> None:
    """Every message is the body of a request to the task, with an optional `id` that its answers repeat as `request`.
    Sockets and requests with the same `session` share it."""
    await streaming.accept(socket)
    try:
        if declared(services.deployments.get(deployment), task).session is None:
            raise InvalidInput(f"task `{task}` keeps no session; open /ws/v1/tasks/{deployment}/{task}")

        def begin(body: dict[str, Any]) -> LiveRun:
            return submit(services, deployment, task, body, socket)

        talk = Conversation(socket, session or secrets.token_hex(8), begin, binary=frames == "binary")
        await streaming.until_first(talk.hold, lambda: talk.leave(services.shutdown.closing))
    except WebSocketDisconnect:
        return
    except WalkgraphError as error:
        await streaming.refuse(socket, error)
