"""The client whose calls block."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakSet

import httpx

from walkgraph.client import shown
from walkgraph.client.calls import Blocking, Call
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
from walkgraph.client.tasks import Task

if TYPE_CHECKING:
    import ssl

    from websockets.sync.client import ClientConnection

    from walkgraph.client.sessions import Session
    from walkgraph.settings import Settings

T = TypeVar("T")


class Client(DeploymentCalls, DocumentCalls, RunCalls, WatchCalls, KeyCalls, Blocking):
    """Speaks with one service. Threads may share it: its calls don't know of each other; what it gives to be gone
    through (a stream, a session, frames of telemetry) is one thread's.

    with Client.local() as client:
        draw = client.task("shapes", "text_to_image")
        draw(prompt="a red circle on white", steps=12).picture().save("circle.png")
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        tries: int = TRIES,
        timeout: float = reaching.CONNECT_SECONDS,
        transport: httpx.BaseTransport | None = None,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        """`tries`: of calls that can be repeated, where the service is busy or the connection broke; `timeout`: to
        connect and to send, in seconds; runs take as long as their `deadline` says. `trusted`: for https, where the
        machine's authorities don't know the service's certificate."""
        # The machine's proxies are for other machines.
        self._http = httpx.Client(
            base_url=url,
            headers=reaching.bearer(token),
            transport=transport,
            trust_env=False,
            verify=reaching.verifying(url, trusted),
        )
        self.url = url
        self.token = token
        self._trusted = trusted
        self._tries, self._timeout = tries, timeout
        self._followed: WeakSet[ClientConnection] = WeakSet()
        """Sockets that are open."""
        self._followed_lock = threading.Lock()
        self._closed = threading.Event()

    @classmethod
    def local(cls, settings: Settings | None = None) -> Self:
        """The service that `WALKGRAPH_URL` names, or the one that runs in this home. Raises Unreachable."""
        return cls(*address.find(settings), trusted=address.trusted(settings))

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Also of what is followed: the iterators of `telemetry` and sessions end."""
        self._closed.set()
        with self._followed_lock:
            sockets = tuple(self._followed)
        for socket in sockets:
            socket.close()
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Send a call that is described. Raises ProblemError, Unreachable."""

        def once(call: Call[T]) -> T:
            return call.answer(self._http.send(call.request(self._http, self._timeout)))

        return self._tried(call, once)

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────

    def task(self, deployment: str, task: str) -> Task:
        """A task as a function; it is a mapping with its declaration, too."""
        return Task(self, self.send(running.declaration(deployment, task)))

    def session(self, deployment: str, task: str, name: str | None = None) -> Session:
        """A socket on which every message is a request, and what runs keep stays between them; to be used in a `with`.
        `name`: of a session to go on with."""
        from walkgraph.client.sessions import Session

        return Session(self, deployment, task, name)

    def stream(
        self, deployment: str, task: str, request: Mapping[str, Any], *, frames: Sequence[bytes] = ()
    ) -> Generator[Event]:
        """Run a task and tell its events as they come; the run ends with this iterator. `frames`: what the request
        names by `frame`."""
        return self._events(running.stream_call(deployment, task, request, frames))

    def follow_run(self, run: str) -> Generator[Event]:
        """All that it tells, from its start to its end; it goes on without this iterator."""
        return self._events(running.events_call(run))

    # ── following ───────────────────────────────────────────────────────────────────────────────

    def follow_deployment(self, id_: str) -> Iterator[shown.Deployment]:
        """How it is now, and then at every change, until it can't get ready any more or is gone."""
        found = self.deployment(id_)
        while True:
            yield found
            found = self.deployment(id_, after=found["revision"])

    def wait_ready(self, id_: str) -> shown.Deployment:
        """Until a deployment serves. Raises ClientError where it can't, ProblemError where it is gone."""
        for found in self.follow_deployment(id_):
            if deploying.serves(found):
                return found
        raise ClientError(f"the deployment `{id_}` is gone")

    def telemetry(self, deployment: str, every: float = 1.0) -> Iterator[dict[str, Any] | None]:
        """Frames as they come, until the service or this client closes; None where none came for `every` seconds."""
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
        """A socket that is closed with this client. Raises OSError, websockets.exceptions.InvalidHandshake."""
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
            with self._followed_lock:
                self._followed.add(socket)
            yield socket

    # ── sending ─────────────────────────────────────────────────────────────────────────────────

    def _tried(self, call: Call[Any], once: Callable[[Call[Any]], T]) -> T:
        attempts = Attempts(self._tries, repeatable=call.repeatable)
        call = call.keyed(secrets.token_hex(16))
        while True:
            try:
                with reaching.reached(self.url):
                    return once(call)
            except ClientError as error:
                self._closed.wait(attempts.pause(error))

    def _opened(self, call: Call[Any]) -> httpx.Response:
        def once(call: Call[Any]) -> httpx.Response:
            answer = self._http.send(call.request(self._http, self._timeout), stream=True)
            if not answer.is_success:
                answer.read()
            call.check(answer)
            return answer

        return self._tried(call, once)

    def _events(self, call: Call[Any]) -> Generator[Event]:
        answer, reader = self._opened(call), EventReader()
        try:
            with reaching.reached(self.url):
                for line in answer.iter_lines():
                    event = reader.take(line)
                    if event is not None:
                        yield event
        finally:
            answer.close()
