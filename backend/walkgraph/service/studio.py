"""The editor as this service sees it: an ASGI application with a lifespan, mounted at `/studio`."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from starlette.types import ASGIApp


class Studio(Protocol):
    @property
    def app(self) -> ASGIApp: ...

    def lifespan(self) -> Callable[[Any], AbstractAsyncContextManager[None]]: ...
