"""The server's ends of a connection: what its parsers leave open, and how much each may hold, is bounded here."""

import asyncio
import socket
from asyncio.events import TimerHandle

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from walkgraph.service import limits


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

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._late = self.loop.call_later(limits.HEAD_SECONDS, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._punctual()
        super().connection_lost(exc)

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

    def _punctual(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class WebSockets(WebSocketsSansIOProtocol):
    """Each holds little for a client that takes nothing."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        opened: socket.socket | None = transport.get_extra_info("socket")
        if opened is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.WS_SEND_BYTES)
