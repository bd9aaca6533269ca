"""HTTP connections whose reads are large: httpcore asks for 64 KiB at a time, and to hand such a piece on takes longer
than to copy it. Its parser takes pieces of any size."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any, cast

import httpcore
import httpx
from httpcore import SOCKET_OPTION

READ_BYTES = 256 * 1024


class LargeReads(httpx.HTTPTransport):
    def __init__(self, trusted: ssl.SSLContext, limits: httpx.Limits) -> None:
        super().__init__(verify=trusted, trust_env=False)
        # httpx gives its pool no other way to the network.
        self._pool = httpcore.ConnectionPool(ssl_context=trusted, network_backend=_Network(), **_kept(limits))


class AsyncLargeReads(httpx.AsyncHTTPTransport):
    """Like `LargeReads`, awaited."""

    def __init__(self, trusted: ssl.SSLContext, limits: httpx.Limits) -> None:
        super().__init__(verify=trusted, trust_env=False)
        self._pool = httpcore.AsyncConnectionPool(ssl_context=trusted, network_backend=_AsyncNetwork(), **_kept(limits))


def _kept(limits: httpx.Limits) -> dict[str, Any]:
    return {
        "max_connections": limits.max_connections,
        "max_keepalive_connections": limits.max_keepalive_connections,
        "keepalive_expiry": limits.keepalive_expiry,
    }


class _Network(httpcore.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        return LargeStream(super().connect_tcp(host, port, timeout, local_address, socket_options))


class LargeStream(httpcore.NetworkStream):
    """A stream that gives more than it is asked for, if it is there."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self.write, self.close, self.get_extra_info = stream.write, stream.close, stream.get_extra_info

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max(max_bytes, READ_BYTES), timeout)

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return LargeStream(self._stream.start_tls(ssl_context, server_hostname, timeout))


class _AsyncNetwork(httpcore.AsyncNetworkBackend):
    def __init__(self) -> None:
        self._network = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (as httpcore calls it)
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return AsyncLargeStream(await self._network.connect_tcp(host, port, timeout, local_address, socket_options))

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)


class AsyncLargeStream(httpcore.AsyncNetworkStream):
    """Like `LargeStream`, awaited."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self.write, self.aclose, self.get_extra_info = stream.write, stream.aclose, stream.get_extra_info

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        return await self._stream.read(max(max_bytes, READ_BYTES), timeout)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        return AsyncLargeStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))
