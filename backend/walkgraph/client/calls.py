"""Descriptions of service calls: each has its method, path, content, and a reader of the answer.

A method that describes a call is declared with `described`. On a `Blocking` client it returns the answer, on an
`Awaiting` one a coroutine:

    class DeploymentCalls:
        @described
        def deployment(self, id_: str) -> Call[shown.Deployment]:
            return get("/api/v1/deployments/{deployment}", deployment=id_)
"""

from __future__ import annotations

import functools
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast, overload
from urllib.parse import quote

import httpx
import msgspec

from walkgraph.client.errors import ClientError, refused

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

KEY = "Idempotency-Key"
READ_SECONDS = 60.0
"""Seconds between two pieces of an answer; runs and undeploying have no limit of this kind."""
_NOTHING = object()


class Reader(Protocol[T_co]):
    """Takes an answer piece by piece."""

    def take(self, piece: bytes) -> None: ...

    def whole(self) -> T_co: ...


@dataclass(frozen=True)
class Call(Generic[T]):
    method: str
    route: str
    """The route as the service's OpenAPI document writes it."""
    read: Callable[[httpx.Response], T]
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Values for the placeholders of the route."""
    params: Mapping[str, str | int | float] = field(default_factory=dict[str, "str | int | float"])
    body: Any = _NOTHING
    """JSON."""
    frames: tuple[bytes, ...] = ()
    """The frames that the body names by `frame`; with any, the call sends a form."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    seconds: float | None = READ_SECONDS
    """None: without limit."""
    starts: bool = False
    """It starts a run, so it is sent with an idempotency key: the service recognizes a second try."""
    accepts: tuple[int, ...] = ()
    """Further statuses that count as answers, besides the successful ones."""
    reader: Callable[[httpx.Response], Reader[T] | None] = lambda answer: None
    """Makes a reader that takes an answer piece by piece; with None, `read` reads the whole."""

    @property
    def path(self) -> str:
        return self.route.format_map({key: quote(name, safe="") for key, name in self.names.items()})

    @property
    def repeatable(self) -> bool:
        """True if a second try changes nothing that the first has not changed."""
        return self.starts or self.method in ("GET", "PUT", "DELETE")

    def keyed(self, key: str) -> Call[T]:
        return replace(self, headers={KEY: key, **self.headers}) if self.starts else self

    def request(self, http: httpx.Client | httpx.AsyncClient, seconds: float) -> httpx.Request:
        """Build the request; `seconds` is the timeout to connect and to send."""
        timeout = httpx.Timeout(seconds, read=self.seconds)
        headers = dict(self.headers)
        body: dict[str, Any] = {} if self.body is _NOTHING else {"json": self.body}
        if self.frames:
            boundary = secrets.token_hex(16)
            headers["Content-Type"] = f"multipart/form-data; boundary={boundary}"
            body = {"content": _form(boundary, msgspec.json.encode(self.body), self.frames)}
        url, params = _address(str(http.base_url), self.path), dict(self.params) or None
        return http.build_request(self.method, url, params=params, headers=headers, timeout=timeout, **body)

    def answer(self, answer: httpx.Response) -> T:
        """Read the answer. Raises ProblemError; ClientError for an answer that can't be read."""
        self.check(answer)
        with self.readable():
            return self.read(answer)

    @contextmanager
    def readable(self) -> Generator[None]:
        """Raise ClientError where the answer can't be read."""
        try:
            yield
        except (ValueError, KeyError):
            raise ClientError(f"the answer from {self.path} is not one of a Walkgraph service") from None

    def check(self, answer: httpx.Response) -> None:
        """Raise ProblemError for an unsuccessful status. The answer's content must have been read then."""
        if answer.is_success or answer.status_code in self.accepts:
            return
        try:
            content = answer.json()
        except ValueError:
            content = None
        raise refused(answer.status_code, content, answer.headers)


@functools.lru_cache(maxsize=256)
def _address(base: str, path: str) -> httpx.URL:
    """The address of a path of the service. To read one takes as long as to send a small request."""
    return httpx.URL(base.rstrip("/") + path)


def _form(boundary: str, request: bytes, frames: Sequence[bytes]) -> bytes:
    """A form with the request's JSON and its frames, in one piece: each write to a socket may wake the service."""
    numbered = ((str(k), "application/octet-stream", data) for k, data in enumerate(frames))
    parts = (("request", "application/json", request), *numbered)
    pieces: list[bytes] = []
    for name, mime, data in parts:
        head = f'Content-Disposition: form-data; name="{name}"; filename="{name}"\r\nContent-Type: {mime}\r\n\r\n'
        pieces += (f"--{boundary}\r\n{head}".encode(), data, b"\r\n")
    return b"".join((*pieces, f"--{boundary}--\r\n".encode()))


def get(route: str, params: Mapping[str, str | int | float | None] | None = None, **names: str) -> Call[Any]:
    """Describe a GET; `params` that are None are left out."""
    given = {key: value for key, value in (params or {}).items() if value is not None}
    return Call("GET", route, _json, names, given)


def send(method: str, route: str, body: Any = _NOTHING, **names: str) -> Call[Any]:
    return Call(method, route, _json, names, body=body)


def delete(route: str, **names: str) -> Call[None]:
    return Call("DELETE", route, _nothing, names)


def _json(answer: httpx.Response) -> Any:
    return answer.json()


def _nothing(_answer: httpx.Response) -> None:
    return None


# ── described once, shared by both clients ─────────────────────────────────────────────────────


class Blocking(ABC):
    @abstractmethod
    def send(self, call: Call[T]) -> T:
        """Send a call. Raises ProblemError, Unreachable."""


class Awaiting(ABC):
    @abstractmethod
    async def send(self, call: Call[T]) -> T:
        """Send a call. Raises ProblemError, Unreachable."""


class described(Generic[P, T]):  # noqa: N801 - a decorator
    """A method of both clients, made from the description of its call."""

    def __init__(self, describe: Callable[Concatenate[Any, P], Call[T]]) -> None:
        self.describe = describe
        self.__doc__ = describe.__doc__

        @functools.wraps(describe)
        def blocking(client: Blocking, *args: P.args, **kwargs: P.kwargs) -> T:
            return client.send(describe(client, *args, **kwargs))

        @functools.wraps(describe)
        async def awaiting(client: Awaiting, *args: P.args, **kwargs: P.kwargs) -> T:
            return await client.send(describe(client, *args, **kwargs))

        returned = describe.__annotations__.get("return", "").removeprefix("Call[").removesuffix("]")
        for found in (blocking, awaiting):
            found.__annotations__ = {**describe.__annotations__, "return": returned}
            del found.__wrapped__
        self._blocking, self._awaiting = blocking, awaiting

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, instance: Blocking, owner: type[Any]) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: Awaiting, owner: type[Any]) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        found: Any = self._awaiting if issubclass(owner, Awaiting) else self._blocking
        return found if instance is None else found.__get__(instance, owner)


def description(owner: type[Any], name: str) -> Callable[..., Call[Any]] | None:
    """The function that describes the call of a client's method `name`; None if it makes no call or several."""
    for kind in owner.__mro__:
        found = vars(kind).get(name)
        if isinstance(found, described):
            return cast(Callable[..., Call[Any]], found.describe)  # pyright: ignore[reportUnknownMemberType]
    return None
