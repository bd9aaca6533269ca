"""Ends the runs of an HTTP client when it leaves: before its answer begins, while it waits for the first byte, or in
the middle of the answer.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from walkgraph.service.runs.runs import LiveRun

T = TypeVar("T")

EVENTS = "text/event-stream"


class Streamed(StreamingResponse):
    """An answer that is sent while it is produced."""

    def __init__(
        self,
        body: AsyncGenerator[bytes | memoryview] | AsyncGenerator[bytes],
        over: Callable[[], None],
        media_type: str = EVENTS,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`over` is called once, however the answer ends. `body` is closed by then, and may never have started."""
        super().__init__(body, headers={"X-Accel-Buffering": "no", **(headers or {})}, media_type=media_type)
        self._body, self._over = body, over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with aclosing(self._body):
                await super().__call__(scope, receive, send)
        finally:
            self._over()


async def unless_left(request: Request, work: Coroutine[Any, Any, T]) -> asyncio.Future[T] | None:
    """The finished work with its result or error; None if the client left first."""
    made = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(left(request))
    try:
        await asyncio.wait([made, gone], return_when=asyncio.FIRST_COMPLETED)
        return made if made.done() else None
    finally:
        made.cancel()
        gone.cancel()


async def left(request: Request) -> None:
    """Returns once the client has left. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def leave(runs: Iterable[LiveRun]) -> None:
    """Gives up one request's interest in its runs: its client has left, or has the whole answer. Call it once per
    request and run."""
    for run in runs:
        run.abort("disconnected")


def nobody() -> Response:
    """The answer for a client that has left; nobody reads it."""
    return Response(status_code=499)
