"""The studio: an ASGI application with a lifespan, mounted at `/studio`."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

CLOSE_UNSUPPORTED = 1003


class Studio(Protocol):
    @property
    def app(self) -> ASGIApp: ...

    def lifespan(self) -> Callable[[Any], AbstractAsyncContextManager[None]]: ...


class BinarySockets:
    """Closes a socket that receives a text message: Streamlit's handlers take only binary ones and fail on a text. The
    handler sees a disconnect."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return

        async def received() -> Message:
            message = await receive()
            if message["type"] != "websocket.receive" or message.get("bytes") is not None:
                return message
            await send({"type": "websocket.close", "code": CLOSE_UNSUPPORTED})
            return {"type": "websocket.disconnect", "code": CLOSE_UNSUPPORTED}

        await self._app(scope, received, send)
