"""Common parts of both clients: the service's address and how to reach it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from weakref import WeakSet

from walkgraph.client.connection import address, reaching
from walkgraph.client.connection.retrying import TRIES
from walkgraph.client.resources import running

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    from walkgraph.client.calls import Call
    from walkgraph.settings import Settings

Http = TypeVar("Http")
Transport = TypeVar("Transport")
Socket = TypeVar("Socket")
Events = TypeVar("Events")


class OpenSockets(Generic[Socket]):
    """The open sockets of one client, whichever threads opened them."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        """Set once the client is closed."""
        self._open: WeakSet[Any] = WeakSet()
        self._lock = threading.Lock()

    def add(self, socket: Socket) -> None:
        with self._lock:
            self._open.add(socket)

    def close(self) -> tuple[Socket, ...]:
        """Mark the client as closed and return the sockets to close."""
        self.closed.set()
        with self._lock:
            return tuple(self._open)


class Connected(ABC, Generic[Http, Transport, Socket, Events]):
    def __init__(
        self,
        url: str,
        token: str,
        *,
        tries: int = TRIES,
        timeout: float = reaching.CONNECT_SECONDS,
        transport: Transport | None = None,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        """`tries`: attempts at a repeatable call while the service is busy or the connection breaks. `timeout`: seconds
        to connect and to send; runs take as long as their `deadline` allows. `trusted`: for https with a certificate
        that the machine's authorities don't know."""
        # The machine's proxies are meant for other machines.
        self._http = self._http_client(
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
        self._sockets = OpenSockets[Socket]()

    @classmethod
    def local(cls, settings: Settings | None = None) -> Self:
        """Connect to the service that `WALKGRAPH_URL` names, or to the one in this home. Raises Unreachable."""
        return cls(*address.find(settings), trusted=address.trusted(settings))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def stream(
        self,
        deployment: str,
        task: str,
        request: Mapping[str, Any],
        *,
        frames: Sequence[bytes] = (),
        binary: bool = False,
    ) -> Events:
        """Run a task and yield its events as they come; the run ends with this iterator. `frames`: the bytes that the
        request names by `frame`. `binary`: the events name bytes by `frame` too, and have them in `frames`."""
        return self._events(running.stream_call(deployment, task, request, frames, binary=binary))

    def follow_run(self, run: str) -> Events:
        """Yield all events of a run from start to end; the run goes on without this iterator."""
        return self._events(running.events_call(run))

    @abstractmethod
    def _http_client(self, **options: Any) -> Http: ...

    @abstractmethod
    def _events(self, call: Call[Any]) -> Events: ...
