"""One call of the service, described once: its method, its path, what is sent, what the answer is.

A method that describes a call is declared with `described`. On a `Blocking` client it answers, on an `Awaiting` one it
gives a coroutine that does:

    class DeploymentCalls:
        @described
        def deployment(self, id_: str) -> Call[shown.Deployment]:
            return get("/api/v1/deployments/{deployment}", deployment=id_)
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload
from urllib.parse import quote

import httpx
import msgspec

from walkgraph.client.errors import ClientError, refused

P = ParamSpec("P")
T = TypeVar("T")

KEY = "Idempotency-Key"
READ_SECONDS = 60.0
"""For an answer to go on coming; runs and undeploying take as long as they take."""
_NOTHING = object()


@dataclass(frozen=True)
class Call(Generic[T]):
    method: str
    route: str
    """As the service's OpenAPI document writes it."""
    read: Callable[[httpx.Response], T]
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """What stands in the route's places."""
    params: Mapping[str, str | int | float] = field(default_factory=dict[str, "str | int | float"])
    body: Any = _NOTHING
    """JSON."""
    frames: tuple[bytes, ...] = ()
    """What the body names by `frame`: with any, a form is sent."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    seconds: float | None = READ_SECONDS
    """None: for ever."""
    starts: bool = False
    """It starts a run: it is sent with a key of its own, by which the service knows a second try."""
    accepts: tuple[int, ...] = ()
    """Statuses that are answers, besides the good ones."""

    @property
    def path(self) -> str:
        return self.route.format_map({key: quote(name, safe="") for key, name in self.names.items()})

    @property
    def repeatable(self) -> bool:
        """A second try changes nothing that the first has not."""
        return self.starts or self.method in ("GET", "PUT", "DELETE")

    def keyed(self, key: str) -> Call[T]:
        return replace(self, headers={KEY: key, **self.headers}) if self.starts else self

    def request(self, http: httpx.Client | httpx.AsyncClient, seconds: float) -> httpx.Request:
        """`seconds`: to connect, and to send."""
        timeout = httpx.Timeout(seconds, read=self.seconds)
        body: dict[str, Any] = {} if self.body is _NOTHING else {"json": self.body}
        if self.frames:
            parts = [(str(k), (str(k), data, "application/octet-stream")) for k, data in enumerate(self.frames)]
            text = msgspec.json.encode(self.body)
            body = {"files": [("request", ("request", text, "application/json")), *parts]}
        return http.build_request(
            self.method, self.path, params=dict(self.params), headers=dict(self.headers), timeout=timeout, **body
        )

    def answer(self, answer: httpx.Response) -> T:
        """Raises ProblemError; ClientError for an answer that can't be read."""
        self.check(answer)
        try:
            return self.read(answer)
        except (ValueError, KeyError):
            raise ClientError(f"what came back from {self.path} is no answer of a Walkgraph service") from None

    def check(self, answer: httpx.Response) -> None:
        """The answer's content has been read, where its status is no good one. Raises ProblemError."""
        if answer.is_success or answer.status_code in self.accepts:
            return
        try:
            content = answer.json()
        except ValueError:
            content = None
        raise refused(answer.status_code, content, answer.headers)


def get(route: str, params: Mapping[str, str | int | float | None] | None = None, **names: str) -> Call[Any]:
    """`params` that are None are left out."""
    told = {key: value for key, value in (params or {}).items() if value is not None}
    return Call("GET", route, _json, names, told)


def send(method: str, route: str, body: Any = _NOTHING, **names: str) -> Call[Any]:
    return Call(method, route, _json, names, body=body)


def delete(route: str, **names: str) -> Call[None]:
    return Call("DELETE", route, _nothing, names)


def _json(answer: httpx.Response) -> Any:
    return answer.json()


def _nothing(_answer: httpx.Response) -> None:
    return None


# ── described once, had by both ─────────────────────────────────────────────────────────────────


class Blocking(ABC):
    @abstractmethod
    def send(self, call: Call[T]) -> T:
        """Raises ProblemError, Unreachable."""


class Awaiting(ABC):
    @abstractmethod
    async def send(self, call: Call[T]) -> T:
        """Raises ProblemError, Unreachable."""


class described(Generic[P, T]):  # noqa: N801 - a decorator
    """A method of both clients."""

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
    """How the method `name` of a client describes its call; None: it makes none, or more than one."""
    for kind in owner.__mro__:
        found = vars(kind).get(name)
        if isinstance(found, described):
            return cast(Callable[..., Call[Any]], found.describe)  # pyright: ignore[reportUnknownMemberType]
    return None
