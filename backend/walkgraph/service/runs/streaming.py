"""Streams a run's log to a client, as server-sent events, parts of a form or WebSocket messages."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

import msgspec
from starlette.requests import Request
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from walkgraph.errors import ErrorInfo, InvalidInput, WalkgraphError
from walkgraph.media_types import mime_of
from walkgraph.service.access.access import SUBPROTOCOL
from walkgraph.service.http import body, frames, limits, pieces
from walkgraph.service.http.problems import said_of
from walkgraph.service.http.protocols import FRAGMENT_FOLLOWS, FRAGMENT_OF_TEXT
from walkgraph.service.runs.disconnects import Streamed, leave, left
from walkgraph.service.runs.results import event_of
from walkgraph.service.runs.runs import Event, LiveRun
from walkgraph.service.values import outlets
from walkgraph.service.values.outlets import Frames, Spliced
from walkgraph.telemetry import socket_times
from walkgraph.telemetry.socket_times import SocketTimes
from walkgraph.wire import messages as m

CLOSE_RESTARTS = 1012
"""Close code of a WebSocket when the service shuts down."""
CLOSING = ErrorInfo(
    code="shutting_down",
    message="the service is shutting down; what is under way may end, open the session again once it is back",
    retryable=True,
)
"""Sent on sockets that wait for requests when the service shuts down."""
HEARTBEAT_SECONDS = 10.0
HEARTBEAT = "heartbeat"
"""Name of the event that says nothing, where a comment can't."""
JSON = "application/json"
FRAGMENT_BYTES = 256 * 1024
"""A larger message is sent in fragments of so many bytes, which are copied for the socket while the processor has them
in its cache."""
PATIENCE_SECONDS = 0.2
"""After so long the client is watched, and the run ends if it leaves. A shorter run ends before that would save
anything."""


def sse(run: LiveRun, *, abort: bool) -> Streamed:
    """Streams all events of a run. `abort`: the run ends if the client leaves."""
    return Streamed(_events(run), lambda: leave((run,) if abort else ()))


def parts(run: LiveRun, kind: str) -> Streamed:
    """Streams all events of a run as a form of this type: for each a part `event` as JSON, followed by its frames. The
    run ends if the client leaves."""
    boundary = secrets.token_hex(16)
    return Streamed(_parts(run, boundary), lambda: leave((run,)), f"{kind}; boundary={boundary}")


def packed(run: LiveRun, kind: str) -> Streamed:
    """Streams all events of a run as msgpack, one object after the other. The run ends if the client leaves."""
    return Streamed(_packed(run), lambda: leave((run,)), kind)


async def _told(run: LiveRun) -> AsyncGenerator[Sequence[Event]]:
    """The events of a run as they come, several that came together; none as a heartbeat, which reveals a half-open
    connection, and keeps proxies from closing an idle one."""
    position, over = 0, False
    while not over:
        told = await run.after(position, HEARTBEAT_SECONDS)
        yield told
        position += len(told)
        over = any(isinstance(event, m.Finished) for event in told)


async def _events(run: LiveRun) -> AsyncGenerator[pieces.Bytes]:
    """Sends events that came together in one piece."""
    number = 0
    async for told in _told(run):
        written: list[pieces.Piece] = [] if told else [b": \n\n"]
        for event in told:
            number += 1
            outlet = Spliced(outlets.JSON)
            name, data = event_of(event, outlet)
            written += (b"event: %s\nid: %d\ndata: " % (name.encode(), number), *outlet.pieces(data), b"\n\n")
        for window in pieces.windows(written):
            yield window


async def _packed(run: LiveRun) -> AsyncGenerator[pieces.Bytes]:
    async for told in _told(run):
        written: list[pieces.Piece] = [] if told else [msgspec.msgpack.encode({"event": HEARTBEAT})]
        for event in told:
            outlet = Spliced(outlets.MSGPACK)
            name, data = event_of(event, outlet)
            written += outlet.pieces({"event": name, **data})
        for window in pieces.windows(written):
            yield window


async def _parts(run: LiveRun, boundary: str) -> AsyncGenerator[pieces.Bytes]:
    async for told in _told(run):
        written: list[pieces.Piece] = []
        if not told:
            written += pieces.part(boundary, "event", JSON, msgspec.json.encode({"event": HEARTBEAT}))
        for event in told:
            beside = Frames()
            name, data = event_of(event, beside)
            head = msgspec.json.encode({"event": name, frames.COUNT: len(beside.found), **data})
            written += pieces.part(boundary, "event", JSON, head)
            for number, frame in enumerate(beside.found):
                written += pieces.part(boundary, str(number), mime_of(frame), frame)
        for window in pieces.windows(written):
            yield window
    yield pieces.last(boundary)


async def result_or_disconnect(request: Request, run: LiveRun, *, early: bool = False) -> bool:
    """Returns once a run has ended, waits for a person, or with `early` has a value that its answer may begin with. If
    the client leaves first, aborts the run and returns False."""
    there = False
    try:
        if not await run.rests(PATIENCE_SECONDS, early=early):
            await until_first(lambda: run.rests(early=early), lambda: left(request))
        there = run.resting or (early and run.early)
    finally:
        if not (there or run.resting):
            run.abort("disconnected")
    return there


async def accept(socket: WebSocket) -> None:
    """Accepts the WebSocket. A subprotocol that carries a token is echoed, as browsers require."""
    offered = [protocol for protocol in socket.scope.get("subprotocols", ()) if protocol.startswith(SUBPROTOCOL)]
    await socket.accept(subprotocol=offered[0] if offered else None)


async def send_text(socket: WebSocket, text: str) -> None:
    """Raises WebSocketDisconnect if the client has left, or another task has closed the socket."""
    _check_open(socket)
    await socket.send_text(text)


async def send_json(socket: WebSocket, value: Any) -> None:
    """Raises as `send_text`."""
    await send_text(socket, msgspec.json.encode(value).decode())


async def send_pieces(socket: WebSocket, given: Iterable[pieces.Piece], *, text: bool) -> None:
    """Sends one message, in fragments if it is large. `text`: in UTF-8, otherwise it is binary. Raises as
    `send_text`."""
    windows = pieces.windows(given, FRAGMENT_BYTES)
    held, following = next(windows, b""), next(windows, None)
    if following is None:
        _check_open(socket)
        await (socket.send_text(bytes(held).decode()) if text else socket.send_bytes(bytes(held)))
        return
    while following is not None:
        await _send_fragment(socket, held, text=text, more=True)
        held, following = following, next(windows, None)
    await _send_fragment(socket, held, text=text, more=False)


async def _send_fragment(socket: WebSocket, data: pieces.Bytes, *, text: bool, more: bool) -> None:
    _check_open(socket)
    await socket.send({"type": "websocket.send", "bytes": data, FRAGMENT_OF_TEXT: text, FRAGMENT_FOLLOWS: more})


async def close(socket: WebSocket, code: int = 1000) -> None:
    """Closes the socket; does nothing if the client has left or it is closed already."""
    with contextlib.suppress(WebSocketDisconnect):
        _check_open(socket)
        await socket.close(code)


def _check_open(socket: WebSocket) -> None:
    # Starlette would raise RuntimeError, as it does for programming errors.
    if socket.application_state is not WebSocketState.CONNECTED:
        raise WebSocketDisconnect(1006)


class Unreadable(WebSocketDisconnect):
    """A message that can't be read, so that the start of the next one is unknown. The client is sent the error, and the
    socket is closed with `code`."""

    def __init__(self, error: WalkgraphError, code: int) -> None:
        super().__init__(code)
        self.error = error


async def refuse(socket: WebSocket, error: WalkgraphError, code: int | None = None) -> None:
    """Sends the error and closes the socket. If other tasks send on it too, use `Channel.refuse`."""
    faults = said_of(error).faults
    with contextlib.suppress(WebSocketDisconnect):
        await send_json(socket, {"event": "error", "error": error.info(), "errors": faults})
    await close(socket, code or (1013 if error.retryable else 1008))


async def first_message(socket: WebSocket, max_bytes: int) -> tuple[Any, list[bytes]]:
    """The first message and its frames. If none comes in time, or it can't be read, sends the error and raises
    WebSocketDisconnect."""
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
    """Sends messages to one client. A message's frames follow it before the next message."""

    def __init__(self, socket: WebSocket, *, binary: bool) -> None:
        """`binary`: media and tensors are sent in frames, not as base64 and lists."""
        self._socket, self._binary = socket, binary
        self._sending = asyncio.Lock()
        self._refused = False

    async def event(self, event: Event, times: SocketTimes | None, **more: Any) -> None:
        """Sends an event of a run. `times`: of the request that it answers; None for who follows another's run. `more`:
        fields that identify it to the client."""
        beside, spliced = Frames(), Spliced(outlets.JSON)
        name, data = event_of(event, beside if self._binary else spliced)
        count = {frames.COUNT: len(beside.found)} if beside.found else {}
        message = tuple(spliced.pieces({"event": name, **more, **count, **data}))
        began = time.monotonic()
        await self._send(message, beside.found)
        if times is not None:
            times.sent(began, time.monotonic())

    async def tell(self, value: dict[str, Any]) -> None:
        """Sends a message. Raises WebSocketDisconnect if the client has left or was refused."""
        await self._send((msgspec.json.encode(value),), ())

    async def _send(self, message: Iterable[pieces.Piece], found: Sequence[pieces.Bytes]) -> None:
        async with self._sending:
            if self._refused:
                raise WebSocketDisconnect(1008)
            await send_pieces(self._socket, message, text=True)
            for frame in found:
                await send_pieces(self._socket, (frame,), text=False)

    async def refuse(self, fault: Unreadable) -> None:
        """Sends the error after the current message's frames, and closes. Nothing is sent after it."""
        async with self._sending:
            self._refused = True
            await refuse(self._socket, fault.error, fault.code)


async def over_websocket(socket: WebSocket, run: LiveRun, *, abort: bool, binary: bool = False) -> None:
    """Sends every event as `{"event": name, ...}`. The message `{"cancel": true}` cancels the run.

    `abort`: it is the socket of the run's request, and the run ends if the client leaves. The socket is closed at the
    end.
    """
    channel, times = Channel(socket, binary=binary), run.times.socket if abort else None

    async def send() -> None:
        async for event in run.follow():
            await channel.event(event, times)

    try:
        await until_first(send, lambda: _obey(socket, channel, run))
    finally:
        if abort:
            run.abort("disconnected")
    await close(socket)


async def _obey(socket: WebSocket, channel: Channel, run: LiveRun) -> None:
    """Handles messages until the client leaves."""
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
    """The next message. Raises WebSocketDisconnect at the end, Unreadable if it is not JSON text within the limits."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    socket_times.begin(socket.scope, time.monotonic())
    text: str | None = message.get("text")
    try:
        if text is None:
            raise body.BadJson("send JSON as a text message")
        return body.parse(text, max_bytes)
    except InvalidInput as error:
        raise Unreadable(error, 1009 if isinstance(error, body.BodyTooLarge) else 1007) from None


async def receive_request(socket: WebSocket, max_bytes: int) -> tuple[Any, list[bytes]]:
    """A message and the frames that it announces. Raises as `receive_json`, and Unreadable for frames over the limits
    or missing: the start of the next message would be unknown."""
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
        if (times := socket_times.of(socket.scope)) is not None:
            times.read = time.monotonic()
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


async def until_first(*makers: Callable[[], Awaitable[object]]) -> None:
    """Runs them side by side until one ends, and cancels the others. Raises its exception unless it is a disconnect."""
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
