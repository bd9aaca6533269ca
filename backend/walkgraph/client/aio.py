"""The client whose calls are awaited."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakSet

import httpx

from walkgraph.client import shown
from walkgraph.client.calls import Awaiting, Call
from walkgraph.client.connection import address, reaching
from walkgraph.client.connection.retrying import TRIES, Attempts
from walkgraph.client.errors import ClientError, Unreachable
from walkgraph.client.events import Event, EventReader
from walkgraph.client.resources import deploying, running
from walkgraph.client.resources.deploying import DeploymentCalls
from walkgraph.client.resources.documents import DocumentCalls
from walkgraph.client.resources.keys import KeyCalls
from walkgraph.client.resources.running import RunCalls
from walkgraph.client.resources.watching import WatchCalls
from walkgraph.client.tasks import AsyncTask

if TYPE_CHECKING:
    import ssl

    from websockets.asyncio.client import ClientConnection

    from walkgraph.client.sessions import AsyncSession
    from walkgraph.settings import Settings

T = TypeVar("T")


class AsyncClient(DeploymentCalls, DocumentCalls, RunCalls, WatchCalls, KeyCalls, Awaiting):
    """As `Client`, on one asyncio event loop: any number of its calls may be under way.

    async with AsyncClient.local() as client:
        draw = await client.task("shapes", "text_to_image")
        result = await draw(prompt="a red circle on white", steps=12)
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        tries: int = TRIES,
        timeout: float = reaching.CONNECT_SECONDS,
        transport: httpx.AsyncBaseTransport | None = None,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        """`tries`: of calls that can be repeated, where the service is busy or the connection broke; `timeout`: to
        connect and to send, in seconds; runs take as long as their `deadline` says. `trusted`: for https, where the
        machine's authorities don't know the service's certificate."""
        # The machine's proxies are for other machines.
        self._http = httpx.AsyncClient(
            base_url=url,
            headers=reaching.bearer(token),
            transport=transport,
            trust_env=False,
            limits=_LIMITS,
            verify=reaching.verifying(url, trusted),
        )
        self.url = url
        self.token = token
        self._trusted = trusted
        self._tries, self._timeout = tries, timeout
        self._followed: WeakSet[ClientConnection] = WeakSet()
        """Sockets that are open."""

    @classmethod
    def local(cls, settings: Settings | None = None) -> Self:
        """The service that `WALKGRAPH_URL` names, or the one that runs in this home. Raises Unreachable."""
        return cls(*address.find(settings), trusted=address.trusted(settings))

    def __repr__(self) -> str:
        return f"AsyncClient({self.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Also of what is followed: the iterators of `telemetry` and sessions end."""
        for socket in tuple(self._followed):
            await socket.close()
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send a call that is described. Raises ProblemError, Unreachable."""

        async def once(call: Call[T]) -> T:
            return call.answer(await self._http.send(call.request(self._http, self._timeout)))

        return await self._tried(call, once)

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────

    async def task(self, deployment: str, task: str) -> AsyncTask:
        """A task as a function; it is a mapping with its declaration, too."""
        return AsyncTask(self, await self.send(running.declaration(deployment, task)))

    def session(self, deployment: str, task: str, name: str | None = None) -> AsyncSession:
        """A socket on which every message is a request, and what runs keep stays between them; to be used in an
        `async with`. `name`: of a session to go on with."""
        from walkgraph.client.sessions import AsyncSession

        return AsyncSession(self, deployment, task, name)

    def stream(
        self, deployment: str, task: str, request: Mapping[str, Any], *, frames: Sequence[bytes] = ()
    ) -> AsyncGenerator[Event]:
        """Run a task and tell its events as they come; the run ends with this iterator. `frames`: what the request
        names by `frame`."""
        return self._events(running.stream_call(deployment, task, request, frames))

    def follow_run(self, run: str) -> AsyncGenerator[Event]:
        """All that it tells, from its start to its end; it goes on without this iterator."""
        return self._events(running.events_call(run))

    # ── following ───────────────────────────────────────────────────────────────────────────────

    async def follow_deployment(self, id_: str) -> AsyncIterator[shown.Deployment]:
        """How it is now, and then at every change, until it can't get ready any more or is gone."""
        found = await self.deployment(id_)
        while True:
            yield found
            found = await self.deployment(id_, after=found["revision"])

    async def wait_ready(self, id_: str) -> shown.Deployment:
        """Until a deployment serves. Raises ClientError where it can't, ProblemError where it is gone."""
        async for found in self.follow_deployment(id_):
            if deploying.serves(found):
                return found
        raise ClientError(f"the deployment `{id_}` is gone")

    async def telemetry(self, deployment: str, every: float = 1.0) -> AsyncIterator[dict[str, Any] | None]:
        """Frames as they come, until the service or this client closes; None where none came for `every` seconds."""
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
        """A socket that is closed with this client. Raises OSError, websockets.exceptions.InvalidHandshake."""
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
        self._followed.add(socket)
        return socket

    # ── sending ─────────────────────────────────────────────────────────────────────────────────

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
        answer, reader = await self._opened(call), EventReader()
        try:
            with reaching.reached(self.url):
                async for line in answer.aiter_lines():
                    event = reader.take(line)
                    if event is not None:
                        yield event
        finally:
            await answer.aclose()


_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)
"""As many runs at once as the service takes."""
