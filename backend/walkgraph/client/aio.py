"""The asynchronous client."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self, TypeVar

import httpx

from walkgraph.client import shown
from walkgraph.client.calls import Awaiting, Call
from walkgraph.client.connection import reaching
from walkgraph.client.connection.connected import Connected
from walkgraph.client.connection.retrying import Attempts
from walkgraph.client.errors import ClientError, Unreachable
from walkgraph.client.events import Event, EventReader, PartReader
from walkgraph.client.parts import boundary_of
from walkgraph.client.resources import deploying, running
from walkgraph.client.resources.every import ServiceCalls
from walkgraph.client.tasks import AsyncTask

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from walkgraph.client.sessions import AsyncSession

T = TypeVar("T")


class AsyncClient(
    Connected[httpx.AsyncClient, httpx.AsyncBaseTransport, "ClientConnection", AsyncGenerator[Event]],
    ServiceCalls,
    Awaiting,
):
    """Like `Client`, on one asyncio event loop: any number of its calls may be in flight.

    async with AsyncClient.local() as client:
        draw = await client.task("shapes", "text_to_image")
        result = await draw(prompt="a red circle on white", steps=12)
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections, including sessions and `telemetry` iterators, which then end."""
        for socket in self._sockets.close():
            await socket.close()
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send a described call. Raises ProblemError, Unreachable."""

        async def once(call: Call[T]) -> T:
            answer = await self._http.send(call.request(self._http, self._timeout), stream=True)
            async with aclosing(answer):
                reader = call.reader(answer)
                if reader is None:
                    await answer.aread()
                    return call.answer(answer)
                with call.readable():
                    async for piece in answer.aiter_bytes():
                        reader.take(piece)
                    return reader.whole()

        return await self._tried(call, once)

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────

    async def task(self, deployment: str, task: str) -> AsyncTask:
        """Get a task as a function; it is also a mapping with the task's declaration."""
        return AsyncTask(self, await self.send(running.declaration(deployment, task)))

    def session(self, deployment: str, task: str, name: str | None = None) -> AsyncSession:
        """Open a socket on which every message is a request, with states kept in between; use it in an `async with`.
        `name`: a session to continue."""
        from walkgraph.client.sessions import AsyncSession

        return AsyncSession(self, deployment, task, name)

    # ── following ───────────────────────────────────────────────────────────────────────────────

    async def follow_deployment(self, id_: str) -> AsyncIterator[shown.Deployment]:
        """Yield the deployment as it is now and after every change, until it can no longer get ready or is gone."""
        found = await self.deployment(id_)
        while True:
            yield found
            found = await self.deployment(id_, after=found["revision"])

    async def wait_ready(self, id_: str) -> shown.Deployment:
        """Wait until a deployment serves. Raises ClientError if it can't get ready, ProblemError if it is gone."""
        async for found in self.follow_deployment(id_):
            if deploying.serves(found):
                return found
        raise ClientError(f"the deployment `{id_}` is gone")

    async def telemetry(self, deployment: str, every: float = 1.0) -> AsyncIterator[dict[str, Any] | None]:
        """Yield frames as they come, until the service or this client closes; None whenever none came for `every`
        seconds."""
        from websockets.exceptions import ConnectionClosed, InvalidHandshake

        where = reaching.socket_address(self.url, "ws", "v1", "telemetry", deployment=deployment)
        try:
            async with await self.connect(where, reaching.TELEMETRY_BYTES) as socket:
                while True:
                    try:
                        yield json.loads(await asyncio.wait_for(socket.recv(), every))
                    except TimeoutError:
                        yield None
        except ConnectionClosed:
            return
        except (OSError, InvalidHandshake):
            raise Unreachable(f"the telemetry of {self.url} can't be followed; see `walkgraph status`") from None

    async def studio_address(self) -> str:
        """An address that lets one browser into the studio, once."""
        return self.url + await self.studio_path()

    async def connect(self, where: str, max_bytes: int) -> ClientConnection:
        """Open a socket that is closed with this client. Raises OSError, websockets.exceptions.InvalidHandshake."""
        from websockets.asyncio.client import connect

        socket = await connect(
            where,
            additional_headers=reaching.bearer(self.token),
            proxy=None,
            ssl=(self._trusted or True) if where.startswith("wss:") else None,
            max_size=max_bytes,
            open_timeout=self._timeout,
            close_timeout=reaching.CLOSE_SECONDS,
        )
        self._sockets.add(socket)
        return socket

    # ── sending ─────────────────────────────────────────────────────────────────────────────────

    def _http_client(self, **options: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(limits=_LIMITS, **options)

    async def _tried(self, call: Call[Any], once: Callable[[Call[Any]], Awaitable[T]]) -> T:
        attempts = Attempts(self._tries, repeatable=call.repeatable)
        call = call.keyed(secrets.token_hex(16))
        while True:
            try:
                with reaching.reached(self.url):
                    return await once(call)
            except ClientError as error:
                await asyncio.sleep(attempts.pause(error))

    async def _opened(self, call: Call[Any]) -> httpx.Response:
        async def once(call: Call[Any]) -> httpx.Response:
            answer = await self._http.send(call.request(self._http, self._timeout), stream=True)
            if not answer.is_success:
                await answer.aread()
            call.check(answer)
            return answer

        return await self._tried(call, once)

    async def _events(self, call: Call[Any]) -> AsyncGenerator[Event]:
        answer = await self._opened(call)
        boundary = boundary_of(answer)
        try:
            with reaching.reached(self.url):
                if boundary is None:
                    reader = EventReader()
                    async for line in answer.aiter_lines():
                        for event in reader.take(line):
                            yield event
                else:
                    parts = PartReader(boundary)
                    async for piece in answer.aiter_bytes():
                        for event in parts.take(piece):
                            yield event
        finally:
            await answer.aclose()


_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)
"""As many connections as runs at once; the service sets the limit."""
