"""The blocking client."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

import httpx

from walkgraph.client import shown
from walkgraph.client.calls import Blocking, Call
from walkgraph.client.connection import reaching
from walkgraph.client.connection.connected import Connected
from walkgraph.client.connection.pooling import PooledTransport
from walkgraph.client.connection.retrying import Attempts
from walkgraph.client.errors import ClientError, Unreachable
from walkgraph.client.events import Event, EventReader, PartReader
from walkgraph.client.parts import boundary_of
from walkgraph.client.resources import deploying, running
from walkgraph.client.resources.every import ServiceCalls
from walkgraph.client.tasks import Task

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

    from walkgraph.client.sessions import Session

T = TypeVar("T")


class Client(
    Connected[httpx.Client, httpx.BaseTransport, "ClientConnection", Generator[Event]],
    ServiceCalls,
    Blocking,
):
    """A client of one service. Threads may share it, as its calls are independent; an iterator that it returns (a
    stream, a session, telemetry frames) belongs to one thread.

    with Client.local() as client:
        draw = client.task("shapes", "text_to_image")
        draw(prompt="a red circle on white", steps=12).picture().save("circle.png")
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, including sessions and `telemetry` iterators, which then end."""
        for socket in self._sockets.close():
            socket.close()
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Send a described call. Raises ProblemError, Unreachable."""

        def once(call: Call[T]) -> T:
            with closing(self._http.send(call.request(self._http, self._timeout), stream=True)) as answer:
                reader = call.reader(answer)
                if reader is None:
                    answer.read()
                    return call.answer(answer)
                with call.readable():
                    for piece in answer.iter_bytes():
                        reader.take(piece)
                    return reader.whole()

        return self._tried(call, once)

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────

    def task(self, deployment: str, task: str) -> Task:
        """Get a task as a function; it is also a mapping with the task's declaration."""
        return Task(self, self.send(running.declaration(deployment, task)))

    def session(self, deployment: str, task: str, name: str | None = None) -> Session:
        """Open a socket on which every message is a request, with states kept in between; use it in a `with`. `name`: a
        session to continue."""
        from walkgraph.client.sessions import Session

        return Session(self, deployment, task, name)

    # ── following ───────────────────────────────────────────────────────────────────────────────

    def follow_deployment(self, id_: str) -> Iterator[shown.Deployment]:
        """Yield the deployment as it is now and after every change, until it can no longer get ready or is gone."""
        found = self.deployment(id_)
        while True:
            yield found
            found = self.deployment(id_, after=found["revision"])

    def wait_ready(self, id_: str) -> shown.Deployment:
        """Wait until a deployment serves. Raises ClientError if it can't get ready, ProblemError if it is gone."""
        for found in self.follow_deployment(id_):
            if deploying.serves(found):
                return found
        raise ClientError(f"the deployment `{id_}` is gone")

    def telemetry(self, deployment: str, every: float = 1.0) -> Iterator[dict[str, Any] | None]:
        """Yield frames as they come, until the service or this client closes; None whenever none came for `every`
        seconds."""
        from websockets.exceptions import ConnectionClosed, InvalidHandshake

        where = reaching.socket_address(self.url, "ws", "v1", "telemetry", deployment=deployment)
        try:
            with self.connect(where, reaching.TELEMETRY_BYTES) as socket:
                while True:
                    try:
                        yield json.loads(socket.recv(every))
                    except TimeoutError:
                        yield None
        except ConnectionClosed:
            return
        except (OSError, InvalidHandshake):
            raise Unreachable(f"the telemetry of {self.url} can't be followed; see `walkgraph status`") from None

    def studio_address(self) -> str:
        """An address that lets one browser into the studio, once."""
        return self.url + self.studio_path()

    @contextmanager
    def connect(self, where: str, max_bytes: int) -> Generator[ClientConnection]:
        """Open a socket that is closed with this client. Raises OSError, websockets.exceptions.InvalidHandshake."""
        from websockets.sync.client import connect

        with connect(
            where,
            additional_headers=reaching.bearer(self.token),
            proxy=None,
            max_size=max_bytes,
            open_timeout=self._timeout,
            close_timeout=reaching.CLOSE_SECONDS,
            ssl=self._trusted if where.startswith("wss:") else None,
        ) as socket:
            self._sockets.add(socket)
            yield socket

    # ── sending ─────────────────────────────────────────────────────────────────────────────────

    def _http_client(self, **options: Any) -> httpx.Client:
        if options["transport"] is None:
            options["transport"] = PooledTransport(options["base_url"], options["verify"])
        return httpx.Client(**options)

    def _tried(self, call: Call[Any], once: Callable[[Call[Any]], T]) -> T:
        attempts = Attempts(self._tries, repeatable=call.repeatable)
        call = call.keyed(secrets.token_hex(16))
        while True:
            try:
                with reaching.reached(self.url):
                    return once(call)
            except ClientError as error:
                self._sockets.closed.wait(attempts.pause(error))

    def _opened(self, call: Call[Any]) -> httpx.Response:
        def once(call: Call[Any]) -> httpx.Response:
            answer = self._http.send(call.request(self._http, self._timeout), stream=True)
            if not answer.is_success:
                answer.read()
            call.check(answer)
            return answer

        return self._tried(call, once)

    def _events(self, call: Call[Any]) -> Generator[Event]:
        answer = self._opened(call)
        boundary = boundary_of(answer)
        try:
            with reaching.reached(self.url):
                if boundary is None:
                    reader = EventReader()
                    for line in answer.iter_lines():
                        yield from reader.take(line)
                else:
                    parts = PartReader(boundary)
                    for piece in answer.iter_bytes():
                        yield from parts.take(piece)
        finally:
            answer.close()
