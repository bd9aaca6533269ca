"""Sessions: one socket on which every message is a request, with states kept in between.

Where a task's session takes only the latest request, a request that is still waiting when a newer one comes is dropped:
its answer is `superseded`. A broken socket ends the session's iterator with Unreachable; continue the session with
`client.session(..., name=robot.name)`, as long as the service keeps its states.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import msgspec
from websockets.asyncio.client import ClientConnection as AsyncConnection
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, InvalidHandshake
from websockets.sync.client import ClientConnection

from walkgraph.client.connection import reaching
from walkgraph.client.errors import ClientError, ProblemError, Unreachable, of_run
from walkgraph.client.events import Event
from walkgraph.client.giving import Packing, request_of
from walkgraph.client.resources import running
from walkgraph.client.results import Gathered, Output, Result

if TYPE_CHECKING:
    from walkgraph.client.protocols import AsyncClientProtocol, ClientProtocol

Request = int | str
Socket = TypeVar("Socket")

_MOST = reaching.MESSAGE_BYTES
_CANCEL = '{"cancel":true}'


@dataclass(frozen=True)
class Answer:
    """The answer to one request, once its run is over."""

    request: Request
    """The request's name, as `send` returned it."""
    outcome: Result | ProblemError

    @property
    def ok(self) -> bool:
        return isinstance(self.outcome, Result)

    @property
    def superseded(self) -> bool:
        """True if the run was cancelled, or ended before it began because a newer request took its place."""
        return isinstance(self.outcome, ProblemError) and self.outcome.code == "cancelled"

    @property
    def result(self) -> Result:
        """The run's result. Raises ProblemError, RunError for a request that was refused or failed."""
        if isinstance(self.outcome, ProblemError):
            raise self.outcome
        return self.outcome

    def check(self) -> None:
        """Raise the error that `result` would raise."""
        if isinstance(self.outcome, ProblemError):
            raise self.outcome


class _Dialogue(Generic[Socket]):
    """The open requests and answers of a session of either kind. Nothing here waits."""

    _opened_by = "with"

    def __init__(self, deployment: str, task: str, name: str | None) -> None:
        self._where, self._wanted = (deployment, task), name
        """Deployment and task; the session to continue."""
        self._socket: Socket | None = None
        self.name = ""
        """The session's name, by which others can continue it."""
        self._declared: Mapping[str, Any] = {}
        self._asked = 0
        self._open: dict[Request, Gathered] = {}
        self._answers: deque[Answer] = deque()
        """Answers that came while another one was awaited."""

    def __repr__(self) -> str:
        return f"<session {'/'.join(self._where)}: {self.name or 'not open'}, {self.waiting} waiting>"

    @property
    def waiting(self) -> int:
        """Number of requests without an answer."""
        return len(self._open)

    def message(self, given: Mapping[str, Any]) -> tuple[Request, list[str | bytes]]:
        """(the request's name, the messages to send: JSON and the frames that it names)."""
        packing = Packing(framing=True)
        body = request_of(self._declared, given, packing)
        request, self._asked = self._asked, self._asked + 1
        # Parameters stay in force for later requests without any, as the service defines it.
        content: dict[str, Any] = {key: value for key, value in body.items() if value or key == "inputs"}
        if packing.frames:
            content["frames"] = len(packing.frames)
        self._open[request] = Gathered(self._declared)
        return request, [msgspec.json.encode({"id": request, **content}).decode(), *packing.frames]

    def hello(self, event: Event) -> None:
        """Take the service's greeting. Raises ProblemError for a session that is refused."""
        if event.name == "error":
            raise of_run(event.data["error"], event.data.get("errors", ()))
        self.name = event.data["session"]

    def take(self, event: Event, frames: Sequence[bytes]) -> tuple[Request, Output | Answer] | None:
        """Take a message and its frames; returns the request's name with an output or its answer, or None for other
        messages."""
        request = cast(Request, event.data.get("request", ""))
        gathered = self._open.get(request)
        if gathered is None:
            return None
        try:
            output = gathered.take(event, frames)
        except ProblemError as error:
            del self._open[request]
            return request, Answer(request, error)
        if gathered.result is not None:
            del self._open[request]
            return request, Answer(request, gathered.result)
        return None if output is None else (request, output)

    def take_for(self, asked: Request, event: Event, frames: Sequence[bytes]) -> Output | Answer | None:
        """Like `take`, for one request: answers to others are kept."""
        taken = self.take(event, frames)
        if taken is None:
            return None
        request, found = taken
        if request == asked:
            return found
        if isinstance(found, Answer):
            self.keep(found)
        return None

    def kept(self, request: Request | None) -> Answer | None:
        """An answer that came already; with `request` None, the first of them."""
        for answer in self._answers:
            if request is None or answer.request == request:
                self._answers.remove(answer)
                return answer
        return None

    def keep(self, answer: Answer) -> None:
        self._answers.append(answer)

    @property
    def _opened(self) -> Socket:
        if self._socket is None:
            raise ClientError(f"open the session first: `{self._opened_by} client.session(...) as robot:`")
        return self._socket


class Session(_Dialogue[ClientConnection]):
    """with client.session("reach", "act") as robot:
        robot.send(camera=picture, instruction="reach the red ball", state=[0.4, -0.8])
        for answer in robot:
            ...

    One thread may send while another iterates over the answers.
    """

    def __init__(self, client: ClientProtocol, deployment: str, task: str, name: str | None) -> None:
        super().__init__(deployment, task, name)
        self._client = client
        self._held = ExitStack()
        self._sending = threading.Lock()

    def __enter__(self) -> Self:
        """Open the session. Raises ProblemError, Unreachable."""
        self._declared = self._client.send(running.declaration(*self._where))
        with _within(self._client.url):
            socket = self._client.connect(_address(self._client.url, self._where, self._wanted), _MOST)
            self._socket = self._held.enter_context(socket)
        try:
            self.hello(self._receive()[0])
        except ClientError:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the session and end its runs. Its states stay for the time to live that its task declares."""
        self._held.close()

    def send(self, /, **given: Any) -> Request:
        """Send a request without waiting: inputs, parameters and options by name. Its answer carries the returned name
        as `request`."""
        with self._sending:
            request, messages = self.message(given)
            self._send(messages)
        return request

    def ask(self, /, **given: Any) -> Result:
        """Send a request and wait for its result; answers to others are kept. Raises ProblemError, RunError."""
        request = self.send(**given)
        while (answer := self.kept(request)) is None:
            self.keep(self._answer())
        return answer.result

    def stream(self, /, **given: Any) -> Iterator[Output]:
        """Send a request and yield its outputs as they come; answers to others are kept. Raises ProblemError,
        RunError."""
        asked = self.send(**given)
        while not isinstance(found := self.take_for(asked, *self._receive()), Answer):
            if found is not None:
                yield found
        found.check()

    def cancel(self) -> None:
        """Cancel the open requests; their answers say so."""
        with self._sending:
            self._send([_CANCEL])

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Answer:
        """The next answer, to any request; ends when the session is closed. Raises Unreachable."""
        try:
            return self.kept(None) or self._answer()
        except SessionClosed:
            raise StopIteration from None

    def _answer(self) -> Answer:
        while True:
            content = self.take(*self._receive())
            if content is not None and isinstance(content[1], Answer):
                return content[1]

    def _receive(self) -> tuple[Event, list[bytes]]:
        with _within(self._client.url):
            event, count = _read(self._opened.recv(decode=True))
            return event, [self._opened.recv(decode=False) for _ in range(count)]

    def _send(self, messages: Sequence[str | bytes]) -> None:
        with _within(self._client.url):
            for message in messages:
                self._opened.send(message)


class AsyncSession(_Dialogue[AsyncConnection]):
    """Like `Session`, with `async with`, `await` and `async for`."""

    _opened_by = "async with"

    def __init__(self, client: AsyncClientProtocol, deployment: str, task: str, name: str | None) -> None:
        super().__init__(deployment, task, name)
        self._client = client
        self._sending = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Open the session. Raises ProblemError, Unreachable."""
        self._declared = await self._client.send(running.declaration(*self._where))
        with _within(self._client.url):
            self._socket = await self._client.connect(_address(self._client.url, self._where, self._wanted), _MOST)
        try:
            self.hello((await self._receive())[0])
        except ClientError:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the session and end its runs. Its states stay for the time to live that its task declares."""
        if self._socket is not None:
            await self._socket.close()

    async def send(self, /, **given: Any) -> Request:
        """Send a request without waiting: inputs, parameters and options by name. Its answer carries the returned name
        as `request`."""
        async with self._sending:
            request, messages = self.message(given)
            await self._send(messages)
        return request

    async def ask(self, /, **given: Any) -> Result:
        """Send a request and wait for its result; answers to others are kept. Raises ProblemError, RunError."""
        request = await self.send(**given)
        while (answer := self.kept(request)) is None:
            self.keep(await self._answer())
        return answer.result

    async def stream(self, /, **given: Any) -> AsyncIterator[Output]:
        """Send a request and yield its outputs as they come; answers to others are kept. Raises ProblemError,
        RunError."""
        asked = await self.send(**given)
        while not isinstance(found := self.take_for(asked, *await self._receive()), Answer):
            if found is not None:
                yield found
        found.check()

    async def cancel(self) -> None:
        """Cancel the open requests; their answers say so."""
        async with self._sending:
            await self._send([_CANCEL])

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Answer:
        """The next answer, to any request; ends when the session is closed. Raises Unreachable."""
        try:
            return self.kept(None) or await self._answer()
        except SessionClosed:
            raise StopAsyncIteration from None

    async def _answer(self) -> Answer:
        while True:
            content = self.take(*await self._receive())
            if content is not None and isinstance(content[1], Answer):
                return content[1]

    async def _receive(self) -> tuple[Event, list[bytes]]:
        with _within(self._client.url):
            event, count = _read(await self._opened.recv(decode=True))
            return event, [await self._opened.recv(decode=False) for _ in range(count)]

    async def _send(self, messages: Sequence[str | bytes]) -> None:
        with _within(self._client.url):
            for message in messages:
                await self._opened.send(message)


class SessionClosed(Unreachable):
    """One side has closed the session normally."""


@contextmanager
def _within(url: str) -> Generator[None]:
    """Raise Unreachable for a socket that can't be opened or has broken."""
    try:
        yield
    except ConnectionClosedOK:
        raise SessionClosed("the session is closed") from None
    except (OSError, InvalidHandshake, ConnectionClosed):
        raise Unreachable(
            f"the connection of the session at {url} broke or can't be opened; see `walkgraph status`"
        ) from None


def _address(url: str, where: tuple[str, str], name: str | None) -> str:
    return reaching.socket_address(url, "ws", "v1", "sessions", *where, session=name, frames="binary")


def _read(message: str) -> tuple[Event, int]:
    """A message, and the number of frames that follow it."""
    content = msgspec.json.decode(message)
    return Event(content.pop("event"), content), content.pop("frames", 0)
