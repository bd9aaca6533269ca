"""A session over one WebSocket: every message is a request, and events are sent as they happen.

A policy's client sends observations at its own pace. If the task's session takes only the latest, waiting requests end
when a newer one comes, so that an answer is never older than one run.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

from starlette.websockets import WebSocket, WebSocketDisconnect

from walkgraph.errors import InvalidInput, Overloaded, WalkgraphError
from walkgraph.service.http import frames, limits
from walkgraph.service.http.problems import said_of
from walkgraph.service.runs import streaming
from walkgraph.service.runs.runs import LiveRun

Submit = Callable[[dict[str, Any]], LiveRun]
"""Starts the run of a request. Raises WalkgraphError if the request is refused."""


class Conversation:
    def __init__(self, socket: WebSocket, session: str, submit: Submit, *, binary: bool = False) -> None:
        self._socket, self._session, self._submit = socket, session, submit
        self._channel = streaming.Channel(socket, binary=binary)
        self._params: Any = {}
        """Parameters of the last accepted request: defaults for later ones."""
        self._asked = 0
        self._answering: set[asyncio.Task[None]] = set()
        self._runs: dict[str, LiveRun] = {}

    async def hold(self) -> None:
        """Serves the client until it leaves, then aborts its runs. The session's states stay for their time to live."""
        await self._tell({"event": "session", "session": self._session})
        try:
            while True:
                await self._take(*await streaming.receive_request(self._socket, limits.WS_FRAME_BYTES))
        except streaming.Unreadable as fault:
            await self._channel.refuse(fault)
        except WebSocketDisconnect:
            pass
        finally:
            for run in self._runs.values():
                run.abort("disconnected")
            for task in self._answering:
                task.cancel()
            await asyncio.gather(*self._answering, return_exceptions=True)

    async def leave(self, closing: asyncio.Event) -> None:
        """Waits until the service closes, then notifies the client, lets its requests finish, and closes the socket."""
        await closing.wait()
        await self._tell({"event": "closing", "error": streaming.CLOSING})
        while self._answering:
            await asyncio.wait(set(self._answering))
        await streaming.close(self._socket, streaming.CLOSE_RESTARTS)

    async def _take(self, message: Any, found: list[bytes]) -> None:
        """Handles a message: `{"cancel": true}` cancels all requests; any other is a request, with an optional `id`."""
        if message == {"cancel": True}:
            for run in self._runs.values():
                run.abort("cancelled")
            return
        number: str | int = self._asked
        self._asked += 1
        try:
            body = self._body(message)
            number = _named(body.pop("id", number))
            if "session" in body:
                raise InvalidInput("the session is the socket's; name it in the address: `?session=NAME`", "/session")
            if len(self._runs) >= limits.WS_SESSION_RUNS:
                raise Overloaded(f"{len(self._runs)} requests are under way; wait for the end of one")
            run = self._submit({**frames.placed(body, found), "session": self._session})
        except WalkgraphError as error:
            said = {"error": error.info(), "errors": said_of(error).faults}
            await self._tell({"event": "error", "request": number, **said})
            return
        self._params = body["params"]
        self._runs[run.id] = run
        task = asyncio.create_task(self._answer(number, run))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def _body(self, message: Any) -> dict[str, Any]:
        if not isinstance(message, dict):
            raise InvalidInput("a request must be an object")
        return {"params": self._params, **cast(dict[str, Any], message)}

    async def _answer(self, number: str | int, run: LiveRun) -> None:
        try:
            async for event in run.follow():
                with contextlib.suppress(WebSocketDisconnect):
                    await self._channel.event(event, run.times.socket, request=number)
        finally:
            del self._runs[run.id]

    async def _tell(self, value: dict[str, Any]) -> None:
        with contextlib.suppress(WebSocketDisconnect):
            await self._channel.tell(value)


def _named(number: Any) -> str | int:
    """The client's id of a request. Raises InvalidInput if it is neither a text nor an integer."""
    if isinstance(number, bool) or not isinstance(number, str | int):
        raise InvalidInput("this must be a text or a whole number", "/id")
    return number
