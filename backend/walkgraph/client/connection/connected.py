"""What both clients have: where their service is, and how it is reached."""

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
    """Those of one client, whichever threads open them."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        """The client is."""
        self._open: WeakSet[Any] = WeakSet()
        self._lock = threading.Lock()

    def add(self, socket: Socket) -> None:
        with self._lock:
            self._open.add(socket)

    def close(self) -> tuple[Socket, ...]:
        """Those that are to be closed with the client."""
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
        """`tries`: of calls that can be repeated, where the service is busy or the connection broke; `timeout`: to
        connect and to send, in seconds; runs take as long as their `deadline` says. `trusted`: for https, where the
        machine's authorities don't know the service's certificate."""
        # The machine's proxies are for other machines.
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
        """The service that `WALKGRAPH_URL` names, or the one that runs in this home. Raises Unreachable."""
        return cls(*address.find(settings), trusted=address.trusted(settings))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def stream(self, deployment: str, task: str, request: Mapping[str, Any], *, frames: Sequence[bytes] = ()) -> Events:
        """Run a task and tell its events as they come; the run ends with this iterator. `frames`: what the request
        names by `frame`."""
        return self._events(running.stream_call(deployment, task, request, frames))

    def follow_run(self, run: str) -> Events:
        """All that it tells, from its start to its end; it goes on without this iterator."""
        return self._events(running.events_call(run))

    @abstractmethod
    def _http_client(self, **options: Any) -> Http: ...

    @abstractmethod
    def _events(self, call: Call[Any]) -> Events: ...
