"""HTTP and WebSocket protocols of the server, with the limits on time and memory that uvicorn's parsers lack."""

import asyncio
import resource
import socket
from asyncio.events import TimerHandle
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame

from walkgraph.service.http import limits
from walkgraph.service.http.presence import Presence
from walkgraph.service.observe.hub import CLOSE_TRY_LATER

FRAGMENT_FOLLOWS: Final = "walkgraph.more"
"""Marks a message `websocket.send` with the data in `bytes` as a fragment; true if others of its message follow."""
FRAGMENT_OF_TEXT: Final = "walkgraph.text"
"""Stands beside it: true if the message is a text."""
_COMPARED = 256
"""Idle connections that are compared to find the longest idle one: comparing all would cost more than accepting."""


def allow_files() -> None:
    """Raises this process's limit of open files to what its connections need; child processes inherit the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * limits.CONNECTIONS + limits.SPARE_FILES
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections() -> int:
    """Limit of open connections. It leaves enough files for everything else that the process opens."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limits.CONNECTIONS
    return max(1, min(limits.CONNECTIONS, soft - min(limits.SPARE_FILES, soft // 2)))


class HeadTooLarge(Exception):
    """Ends a connection with 400 before its request is complete."""


class Http(HttpToolsProtocol):
    """Limits the size and time of heads, trailers and chunk extensions, which the C parser buffers without limit."""

    _head = 0
    """Bytes read so far of this message's head and trailers."""
    _silent = 0
    """Bytes received since the parser's last callback: it buffers them or waits for their end."""
    _late: TimerHandle | None = None
    """Closes the connection unless its head is complete in time."""
    _presence: Presence | None = None
    _quiet_since = 0.0
    """When the connection was opened, or its last answer was complete."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._quiet_since = self.loop.time()
        self._late = self.loop.call_later(limits.HEAD_SECONDS, transport.close)
        self._presence = Presence(self.loop, transport)
        if len(self.connections) > most_connections():
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._punctual()
        self._leave()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        # The WebSocket's protocol starts its own.
        self._leave()
        super().handle_websocket_upgrade()

    def on_response_complete(self) -> None:
        self._quiet_since = self.loop.time()
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        self._silent += len(data)
        super().data_received(data)
        if self._silent > limits.HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response("Too much that is not a request yet.")
        # A connection that became a WebSocket is no longer among these.
        if self._late is None and self in self.connections and not (self.cycle and not self.cycle.response_complete):
            self._late = self.loop.call_later(limits.HEAD_SECONDS, self.transport.close)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._punctual()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._silent = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._silent = 0
        super().on_message_complete()

    def _count(self, nbytes: int) -> None:
        self._silent = 0
        self._head += nbytes
        # `Access` refuses heads over the limit that arrive whole, with a reason; this ends those that keep growing.
        if self._head > 2 * limits.HEADER_BYTES:
            raise HeadTooLarge

    @property
    def _is_idle(self) -> bool:
        """True between requests, and while a request's head arrives."""
        return not self.transport.is_closing() and not (self.cycle and not self.cycle.response_complete)

    def _make_room(self) -> None:
        """Closes the longest idle connection; this one itself if all others are busy."""
        found = (other for other in self.connections if isinstance(other, Http) and other._is_idle)
        oldest = min(islice(found, _COMPARED), key=lambda other: other._quiet_since, default=self)
        oldest.transport.abort()

    def _leave(self) -> None:
        if self._presence is not None:
            self._presence.stop()
            self._presence = None

    def _punctual(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class WebSockets(WebSocketsSansIOProtocol):
    """Buffers little for a client that reads nothing, and closes the connection soon after the WebSocket ends.

    A sender learns that the client is gone only by `ClientDisconnected`: the client left, broke the protocol, or was
    silent. Close codes: 1002, 1007 and 1009 for protocol errors of the client, `CLOSE_TRY_LATER` for silence; never
    1011, since none of these is a fault of the service.
    """

    _aborting: TimerHandle | None = None
    _presence: Presence | None = None
    _deaf = False
    """Incoming data is read and discarded."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        opened: socket.socket | None = transport.get_extra_info("socket")
        if opened is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.WS_SEND_BYTES)
        self._presence = Presence(self.loop, self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._presence is not None:
            self._presence.stop()
        if self._aborting is not None:
            self._aborting.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._close_when_quiet()
        else:
            super().data_received(data)

    async def send(self, message: ASGISendEvent) -> None:
        await self.writable.wait()
        # The connection closes before it counts as lost: nobody reads what is sent in between.
        if self.close_sent or self.transport.is_closing():
            raise ClientDisconnected
        if FRAGMENT_FOLLOWS in message:
            self._send_fragment(message)
            return
        await super().send(message)
        if self.close_sent:
            # Also set after a refused handshake.
            self.handshake_complete = True
            self._abort_soon()

    def _send_fragment(self, message: Mapping[str, Any]) -> None:
        data, last = message["bytes"], not message[FRAGMENT_FOLLOWS]
        try:
            if self.conn.expect_continuation_frame:
                self.conn.send_continuation(data, last)
            elif message[FRAGMENT_OF_TEXT]:
                self.conn.send_text(data, last)
            else:
                self.conn.send_binary(data, last)
        except InvalidState:
            raise ClientDisconnected from None
        self.transport.write(b"".join(self.conn.data_to_send()))

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_text(self.frames):
            self.frames = []
            # All frames of one read are parsed together: the client may have closed after this one.
            self.conn.fail(CloseCode.INVALID_DATA)
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()

    def handle_parser_exception(self) -> None:
        """Sends the close frame as the last one and keeps reading. Closing with unread data would reset the connection,
        and the client might never see the code."""
        sent = self.conn.close_sent
        told = (sent.code, sent.reason) if sent is not None else (CloseCode.ABNORMAL_CLOSURE, "")
        self.queue.put_nowait({"type": "websocket.disconnect", "code": told[0], "reason": told[1]})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = self._deaf = True
        self._abort_soon()
        self._close_when_quiet()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def handle_close(self, event: Frame) -> None:
        super().handle_close(event)
        self._abort_soon()

    def keepalive_timeout(self) -> None:
        """Closes with `CLOSE_TRY_LATER`; the base class would send 1011, a fault of the service."""
        self.pong_timer = self.pending_ping_payload = None
        if self.close_sent or self.transport.is_closing():
            return
        self.conn.fail(CLOSE_TRY_LATER, "no pong came in time")
        self.handle_parser_exception()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        self._abort_soon()

    def shutdown(self) -> None:
        if self.transport.is_closing():
            # The client is closing it, and no further close frame may be sent.
            self.stop_keepalive()
        else:
            super().shutdown()

    def _close_when_quiet(self) -> None:
        if self.close_timer is not None:
            self.close_timer.cancel()
        self.close_timer = self.loop.call_later(limits.WS_QUIET_SECONDS, self.transport.close)

    def _abort_soon(self) -> None:
        """Aborts a closing transport once its client stops reading; by itself it would wait until all is read."""
        if self._aborting is None and not self.disconnected:
            left = self.transport.get_write_buffer_size()
            self._aborting = self.loop.call_later(limits.WS_CLOSE_SECONDS, self._abort_if_stuck, left)

    def _abort_if_stuck(self, before: int) -> None:
        self._aborting = None
        if 0 < self.transport.get_write_buffer_size() < before:
            self._abort_soon()
        else:
            self.transport.abort()


def _is_text(frames: list[bytes]) -> bool:
    try:
        b"".join(frames).decode()
    except UnicodeDecodeError:
        return False
    return True
