"""The methods that tasks and sessions need of their client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection as AsyncConnection
    from websockets.sync.client import ClientConnection

    from walkgraph.client.calls import Call
    from walkgraph.client.events import Event

T = TypeVar("T")


class ClientProtocol(Protocol):
    url: str

    def send(self, call: Call[T]) -> T: ...

    def stream(
        self,
        deployment: str,
        task: str,
        request: Mapping[str, Any],
        *,
        frames: Sequence[bytes] = (),
        binary: bool = False,
    ) -> Generator[Event]: ...

    def connect(self, where: str, max_bytes: int) -> AbstractContextManager[ClientConnection]: ...


class AsyncClientProtocol(Protocol):
    url: str

    async def send(self, call: Call[T]) -> T: ...

    def stream(
        self,
        deployment: str,
        task: str,
        request: Mapping[str, Any],
        *,
        frames: Sequence[bytes] = (),
        binary: bool = False,
    ) -> AsyncGenerator[Event]: ...

    async def connect(self, where: str, max_bytes: int) -> AsyncConnection: ...
