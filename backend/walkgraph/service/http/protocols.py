"""The server's ends of a connection: what its parsers leave open, and how much each may hold, is bounded here."""

import asyncio
import resource
import socket
from asyncio.events import TimerHandle
from itertools import islice

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from walkgraph.service.http import limits
from walkgraph.service.http.presence import Presence
from walkgraph.service.observe.hub import CLOSE_TRY_LATER

_COMPARED = 256
"""Idle connections of which the longest idle one ends: to look at all would take longer than to take the new one."""


def allow_files() -> None:
    """As many as this process may have open, of which each connection is one; what it starts may have as many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * limits.CONNECTIONS + limits.SPARE_FILES
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections() -> int:
    """At once: what else is opened must never fail for them."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limits.CONNECTIONS
    return max(1, min(limits.CONNECTIONS, soft - min(limits.SPARE_FILES, soft // 2)))


class HeadTooLarge(Exception):
    """Ends a connection with 400: what it sends may not be anything yet."""


class Http(HttpToolsProtocol):
    """The parser in C keeps a head, a trailer, or the extension of a chunk, for as long as they go on and however long
    they are: they are counted, and timed, as they come."""

    _head = 0
    """Bytes of what was read of this message's head and trailers."""
    _silent = 0
    """Bytes that came since the parser told of something: it keeps them, or waits for their end."""
    _late: TimerHandle | None = None
    """Until a head is whole."""
    _presence: Presence | None = None
    _quiet_since = 0.0
    """When it was opened, or its last answer was whole."""

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
        # The WebSocket has its own.
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
        # What became a WebSocket isn't among the connections any more.
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
        # `Access` refuses the larger ones of those that came at once, and says why.
        if self._head > 2 * limits.HEADER_BYTES:
            raise HeadTooLarge

    @property
    def _is_idle(self) -> bool:
        """Between requests, or in the head of one."""
        return not self.transport.is_closing() and not (self.cycle and not self.cycle.response_complete)

    def _make_room(self) -> None:
        """For this connection: the longest idle one ends, which may be this one itself where all others are busy."""
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
    """Each holds little for a client that takes nothing, and is gone soon after its end, whatever the client does.

    Whoever tells a client something learns by `ClientDisconnected`, and by nothing else, that there is none any more:
    it left, broke the protocol, or was silent. The codes that a socket is closed with here: 1002, 1007 and 1009 for
    what the client sent, `CLOSE_TRY_LATER` for one that is silent; never 1011, since none of it is a fault of the
    service.
    """

    _aborting: TimerHandle | None = None
    _presence: Presence | None = None
    _deaf = False
    """What still comes is read and forgotten."""

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
        # It is closing before it is lost: what is told in between has no reader.
        if self.close_sent or self.transport.is_closing():
            raise ClientDisconnected
        await super().send(message)
        if self.close_sent:
            # Of a handshake that was refused, too.
            self.handshake_complete = True
            self._abort_soon()

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_text(self.frames):
            self.frames = []
            # The frames of one reading are parsed together: after this one the client may have closed.
            self.conn.fail(CloseCode.INVALID_DATA)
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()

    def handle_parser_exception(self) -> None:
        """The close frame is the last that is sent. What the client still sends is read: if the connection were closed
        before, it would be reset, and the client might never see the code."""
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
        """It is sent away as one that takes nothing; the base class would call that a fault of the service."""
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
            # The client closes it, and no further close frame may be sent.
            self.stop_keepalive()
        else:
            super().shutdown()

    def _close_when_quiet(self) -> None:
        if self.close_timer is not None:
            self.close_timer.cancel()
        self.close_timer = self.loop.call_later(limits.WS_QUIET_SECONDS, self.transport.close)

    def _abort_soon(self) -> None:
        """A transport that closes waits until its client has taken all: this ends it once that takes nothing."""
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
