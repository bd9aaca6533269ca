"""Whether the client of a connection is still there. One that vanished says nothing: no end, no reset, no answer. One
that takes nothing of what it asked for says as little. The connection of either is aborted, which ends its runs."""

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
"""Fields of `tcp_info`: retransmissions in a row, segments that wait for an acknowledgement, milliseconds since one."""
_RETRANSMITTED = 3
"""As often at least was a segment sent again whose client is gone."""


class Presence:
    """Of one connection, from its start to `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop, self._transport = loop, transport
        self._socket: socket.socket | None = transport.get_extra_info("socket")
        self._waiting, self._since = 0, loop.time()
        """Bytes that the client has yet to take, and when it last took some."""
        self._probe()
        self._timer = loop.call_later(CHECK_SECONDS, self._check)

    def stop(self) -> None:
        self._timer.cancel()

    def _probe(self) -> None:
        """While nothing is under way the kernel asks; a client that is there answers without knowing."""
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
        """Whether what was sent is acknowledged no more. The kernel by itself would try for a quarter of an hour, and
        its `TCP_USER_TIMEOUT` doesn't tell a client that is gone from one that reads slowly."""
        if self._socket is None or _TCP_INFO is None or self._socket.family == socket.AF_UNIX:
            return False
        with contextlib.suppress(OSError):
            told = self._socket.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO.size)
            if len(told) == _INFO.size:
                info = _INFO.unpack(told)
                late = info[_LAST_ACK] >= limits.PROBE_SECONDS * limits.PROBES * 1000
                return late and info[_UNACKED] > 0 and info[_RETRANSMITS] >= _RETRANSMITTED
        return False
