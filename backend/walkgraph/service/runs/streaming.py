"""A run's log on its way to one client: server-sent events, or WebSocket messages."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, cast

import msgspec
from starlette.requests import Request
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from walkgraph.errors import ErrorInfo, InvalidInput, WalkgraphError
from walkgraph.service.access.access import SUBPROTOCOL
from walkgraph.service.http import body, frames, limits
from walkgraph.service.http.problems import said_of
from walkgraph.service.runs.disconnects import Streamed, leave, left
from walkgraph.service.runs.runs import Event, LiveRun, event_of
from walkgraph.wire import messages as m

CLOSE_RESTARTS = 1012
"""The code of a socket that closes because its service does."""
CLOSING = ErrorInfo(
    code="shutting_down",
    message="the service is shutting down; what is under way may end, open the session again once it is back",
    retryable=True,
)
"""What is told on sockets that wait for requests."""
HEARTBEAT_SECONDS = 10.0
AT_ONCE = 64 * 1024
"""Bytes of events that leave together."""
PATIENCE_SECONDS = 0.2
"""A run that takes longer is ended with its client; a shorter one is over before that would save anything."""


def sse(run: LiveRun, *, abort: bool) -> Streamed:
    """Every event of a run. `abort`: the run ends with the client."""
    return Streamed(_events(run), lambda: leave((run,) if abort else ()))


async def _events(run: LiveRun) -> AsyncGenerator[bytes]:
    """What has come together leaves together."""
    number, over = 0, False
    while not over:
        told = await run.after(number, HEARTBEAT_SECONDS)
        # A comment line: shows a half-open connection, and keeps proxies from closing an idle one.
        written = b": \n\n" if not told else b""
        for event in told:
            number += 1
            name, data = event_of(event)
            written += b"event: %s\nid: %d\ndata: %s\n\n" % (name.encode(), number, msgspec.json.encode(data))
            if len(written) > AT_ONCE:
                yield written
                written = b""
            over = isinstance(event, m.Finished)
        if written:
            yield written


async def result_or_disconnect(request: Request, run: LiveRun) -> bool:
    """Wait for the end of a run; False, and the run aborted, where the client left before it."""
    try:
        if not await run.over(PATIENCE_SECONDS):
            await until_first(lambda: _ended(run), lambda: left(request))
    finally:
        if run.finished is None:
            run.abort("disconnected")
    return run.finished is not None


async def _ended(run: LiveRun) -> None:
    await run.ended()


async def accept(socket: WebSocket) -> None:
    """Open it; a token that came as a subprotocol is named back, as browsers demand."""
    offered = [protocol for protocol in socket.scope.get("subprotocols", ()) if protocol.startswith(SUBPROTOCOL)]
    await socket.accept(subprotocol=offered[0] if offered else None)


async def send_text(socket: WebSocket, text: str) -> None:
    """Raises WebSocketDisconnect where the client left, or whoever else tells it something has closed the socket."""
    _check_open(socket)
    await socket.send_text(text)


async def send_json(socket: WebSocket, value: Any) -> None:
    """Raises as `send_text`."""
    await send_text(socket, msgspec.json.encode(value).decode())


async def send_frame(socket: WebSocket, frame: bytes) -> None:
    """Raises as `send_text`."""
    _check_open(socket)
    await socket.send_bytes(frame)


async def close(socket: WebSocket, code: int = 1000) -> None:
    """Nothing happens where the client left, or it is closed already."""
    with contextlib.suppress(WebSocketDisconnect):
        _check_open(socket)
        await socket.close(code)


def _check_open(socket: WebSocket) -> None:
    # Starlette raises RuntimeError for it, as for mistakes of our own.
    if socket.application_state is not WebSocketState.CONNECTED:
        raise WebSocketDisconnect(1006)


class Unreadable(WebSocketDisconnect):
    """What a client sent can't be told from what follows: it is to be told so, and the socket closed with `code`."""

    def __init__(self, error: WalkgraphError, code: int) -> None:
        super().__init__(code)
        self.error = error


async def refuse(socket: WebSocket, error: WalkgraphError, code: int | None = None) -> None:
    """Tell what is wrong and close. For a socket that nobody else tells something; else `Channel.refuse`."""
    faults = said_of(error).faults
    with contextlib.suppress(WebSocketDisconnect):
        await send_json(socket, {"event": "error", "error": error.info(), "errors": faults})
    await close(socket, code or (1013 if error.retryable else 1008))


async def first_message(socket: WebSocket, max_bytes: int) -> tuple[Any, list[bytes]]:
    """With its frames. Raises WebSocketDisconnect where none comes in time, or none that can be read, and has told so
    by then."""
    try:
        async with asyncio.timeout(limits.WS_HELLO_SECONDS):
            return await receive_request(socket, max_bytes)
    except TimeoutError:
        await refuse(socket, InvalidInput("send the request as the first message, and then its frames"))
        raise WebSocketDisconnect(1008) from None
    except Unreadable as fault:
        await refuse(socket, fault.error, fault.code)
        raise


class Channel:
    """What one client is told. The frames of a message follow it before another message does."""

    def __init__(self, socket: WebSocket, *, binary: bool) -> None:
        """`binary`: media and tensors go in frames, not in base64 and lists."""
        self._socket, self._binary = socket, binary
        self._sending = asyncio.Lock()
        self._refused = False

    async def event(self, event: Event, **more: Any) -> None:
        """What a run said, with `more` for the client to know it by."""
        found: list[bytes] | None = [] if self._binary else None
        name, data = event_of(event, found)
        count = {frames.COUNT: len(found)} if found else {}
        await self.tell({"event": name, **more, **count, **data}, found or ())

    async def tell(self, value: dict[str, Any], found: Sequence[bytes] = ()) -> None:
        """Raises WebSocketDisconnect where the client left, or was sent away."""
        async with self._sending:
            if self._refused:
                raise WebSocketDisconnect(1008)
            await send_json(self._socket, value)
            for frame in found:
                await send_frame(self._socket, frame)

    async def refuse(self, fault: Unreadable) -> None:
        """After the frames of what is being told; nothing is told after it."""
        async with self._sending:
            self._refused = True
            await refuse(self._socket, fault.error, fault.code)


async def over_websocket(socket: WebSocket, run: LiveRun, *, abort: bool, binary: bool = False) -> None:
    """Send every event as `{"event": name, ...}`; the message `{"cancel": true}` cancels the run.

    `abort`: the run ends with the client. The socket is closed at the end.
    """
    channel = Channel(socket, binary=binary)

    async def send() -> None:
        async for event in run.follow():
            await channel.event(event)

    try:
        await until_first(send, lambda: _obey(socket, channel, run))
    finally:
        if abort:
            run.abort("disconnected")
    await close(socket)


async def _obey(socket: WebSocket, channel: Channel, run: LiveRun) -> None:
    """Take messages until the client leaves."""
    while True:
        try:
            message = await receive_json(socket, limits.WS_MESSAGE_BYTES)
        except Unreadable as fault:
            await channel.refuse(fault)
            return
        except WebSocketDisconnect:
            return
        if isinstance(message, dict) and message == {"cancel": True}:
            run.abort("cancelled")
            continue
        await channel.tell({"event": "ignored", "message": 'send {"cancel": true}, or close the socket'})


async def receive_json(socket: WebSocket, max_bytes: int) -> Any:
    """Raises WebSocketDisconnect at the end, Unreadable for what is no JSON text within bounds."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    text: str | None = message.get("text")
    try:
        if text is None:
            raise body.BadJson("send JSON as a text message")
        return body.parse(text, max_bytes)
    except InvalidInput as error:
        raise Unreadable(error, 1009 if isinstance(error, body.BodyTooLarge) else 1007) from None


async def receive_request(socket: WebSocket, max_bytes: int) -> tuple[Any, list[bytes]]:
    """A message and the frames that it announces. Raises as `receive_json`, also for frames beyond their bounds, and
    for those that don't come: what follows them could not be told from them."""
    given = await receive_json(socket, max_bytes)
    message = cast(dict[str, Any], given) if isinstance(given, dict) else {}
    if frames.COUNT not in message:
        return cast(Any, given), []
    try:
        count = frames.announced(message)
        async with asyncio.timeout(limits.WS_HELLO_SECONDS):
            found = await _receive_frames(socket, count)
    except TimeoutError:
        error = InvalidInput(f"the frames did not come within {limits.WS_HELLO_SECONDS:.0f} seconds of their message")
    except InvalidInput as fault:
        error = fault
    else:
        return message, found
    raise Unreadable(error, 1008)


async def _receive_frames(socket: WebSocket, count: int) -> list[bytes]:
    found: list[bytes] = []
    size = 0
    for number in range(count):
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1000))
        frame: bytes | None = message.get("bytes")
        if frame is None:
            raise InvalidInput(f"{count} binary frames were announced, and a text came after {number}")
        size += len(frame)
        if size > limits.WS_FRAMES_BYTES:
            raise InvalidInput(
                f"the frames of a message may have {limits.WS_FRAMES_BYTES} bytes; send larger ones by POST"
            )
        found.append(frame)
    return found


async def until_first(*makers: Callable[[], Awaitable[None]]) -> None:
    """Run them side by side until one ends; what it raised, other than a disconnect, is raised."""
    tasks = [asyncio.ensure_future(make()) for make in makers]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, WebSocketDisconnect):
            raise result
