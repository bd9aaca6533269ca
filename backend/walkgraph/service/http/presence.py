"""Aborts connections whose client is gone or reads nothing, which ends their runs.

A client that vanished sends nothing: no end, no reset, no acknowledgement. A client that stops reading looks the same
to the application.
"""

import asyncio
import contextlib
import socket
import struct

from walkgraph.service.http import limits

CHECK_SECONDS = 2.0
_PROBES = {
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", 0)): limits.PROBE_SECONDS,
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPINTVL", 0)): limits.PROBE_SECONDS,
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPCNT", 0)): limits.PROBES,
}
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
_INFO = struct.Struct("8B24I")
_RETRANSMITS, _UNACKED, _LAST_ACK = 2, 12, 20
"""Fields of `tcp_info`: consecutive retransmissions, unacknowledged segments, milliseconds since the last
acknowledgement."""
_RETRANSMITTED = 3
"""Consecutive retransmissions after which the client counts as gone."""


class Presence:
    """Watches one connection from its start to `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop, self._transport = loop, transport
        self._socket: socket.socket | None = transport.get_extra_info("socket")
        self._waiting, self._since = 0, loop.time()
        """Bytes that the client has not read yet, and when it last read some."""
        self._probe()
        self._timer = loop.call_later(CHECK_SECONDS, self._check)

    def stop(self) -> None:
        self._timer.cancel()

    def _probe(self) -> None:
        """Turns on TCP keepalive: the kernel probes idle connections, and the client's kernel answers."""
        if self._socket is not None and self._socket.family in (socket.AF_INET, socket.AF_INET6):
            for (level, option), value in _PROBES.items():
                self._socket.setsockopt(level, option, value)

    def _check(self) -> None:
        now, waiting = self._loop.time(), self._transport.get_write_buffer_size()
        if waiting == 0 or waiting < self._waiting:
            self._since = now
        self._waiting = waiting
        if now - self._since >= limits.STALL_SECONDS or self._is_unanswered():
            self._transport.abort()
            return
        self._timer = self._loop.call_later(CHECK_SECONDS, self._check)

    def _is_unanswered(self) -> bool:
        """True if sent bytes are no longer acknowledged. By default the kernel retries for a quarter of an hour, and
        `TCP_USER_TIMEOUT` does not distinguish a client that is gone from one that reads slowly."""
        if self._socket is None or _TCP_INFO is None or self._socket.family == socket.AF_UNIX:
            return False
        with contextlib.suppress(OSError):
            told = self._socket.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO.size)
            if len(told) == _INFO.size:
                info = _INFO.unpack(told)
                late = info[_LAST_ACK] >= limits.PROBE_SECONDS * limits.PROBES * 1000
                return late and info[_UNACKED] > 0 and info[_RETRANSMITS] >= _RETRANSMITTED
        return False
