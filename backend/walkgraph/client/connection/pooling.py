"""Connections of the blocking client, kept by urllib3.

httpx's own transport spends more time on each piece of a large answer than it takes to copy the piece. Together with
what it does for each request, that was most of a client's time.
"""

from __future__ import annotations

import ssl
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import httpx
import urllib3
from urllib3 import exceptions

PIECE_BYTES = 128 * 1024
"""The most bytes of an answer that are read at once. Larger pieces would be in new memory each time."""
KEPT = 100
"""The most idle connections that are kept, as many as httpx opens. Of more, urllib3 logs that it closes one."""


class PooledTransport(httpx.BaseTransport):
    """Sends requests to one service. Threads may share it."""

    def __init__(self, url: str, trusted: ssl.SSLContext) -> None:
        """`trusted`: checks certificates, if `url` is https."""
        where = httpx.URL(url)
        if where.scheme == "https":
            # None leaves the check of the name to OpenSSL; anything else would take it over.
            names = None if trusted.check_hostname else False
            self._pool: urllib3.HTTPConnectionPool = urllib3.HTTPSConnectionPool(
                where.host, where.port, maxsize=KEPT, ssl_context=trusted, assert_hostname=names
            )
        else:
            self._pool = urllib3.HTTPConnectionPool(where.host, where.port, maxsize=KEPT)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        within = request.extensions.get("timeout", {})
        with _as_errors_of_httpx():
            answer = self._pool.urlopen(
                request.method,
                request.url.raw_path.decode("ascii"),
                body=request.read() or None,
                headers=urllib3.HTTPHeaderDict(request.headers.multi_items()),
                timeout=urllib3.Timeout(connect=within.get("connect"), read=within.get("read")),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
        return httpx.Response(answer.status, headers=list(answer.headers.items()), stream=_Content(answer))

    def close(self) -> None:
        self._pool.close()


class _Content(httpx.SyncByteStream):
    """The content of an answer, piece by piece."""

    def __init__(self, answer: urllib3.BaseHTTPResponse) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        with _as_errors_of_httpx():
            yield from self._answer.stream(PIECE_BYTES, decode_content=False)

    def close(self) -> None:
        # A connection whose answer was not read to its end can't be used again.
        self._answer.close()
        self._answer.release_conn()


@contextmanager
def _as_errors_of_httpx() -> Generator[None]:
    """Turn errors into those of httpx."""
    try:
        yield
    except (exceptions.NewConnectionError, exceptions.SSLError) as error:
        raise httpx.ConnectError(str(error)) from error
    except exceptions.ConnectTimeoutError as error:
        raise httpx.ConnectTimeout(str(error)) from error
    except (exceptions.TimeoutError, TimeoutError) as error:
        raise httpx.ReadTimeout(str(error)) from error
    except exceptions.HTTPError as error:
        raise httpx.RemoteProtocolError(str(error)) from error
