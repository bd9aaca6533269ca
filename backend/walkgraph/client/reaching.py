"""What both clients make of a connection: its failures in our words, its addresses, its bounds."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from urllib.parse import quote, urlencode

import httpx

from walkgraph.client.errors import Lost, Unreachable

CONNECT_SECONDS = 10.0
"""To connect, and to send each piece."""
TELEMETRY_BYTES = 4 * 1024 * 1024
"""Largest frame of telemetry that is read."""
MESSAGE_BYTES = 256 * 1024 * 1024
"""Largest message of a session: a run's outputs may be as large."""
CLOSE_SECONDS = 0.5
"""The service's word that a socket is closed stands behind messages that nobody reads any more."""


@contextmanager
def reached(url: str) -> Generator[None]:
    """Raises Unreachable, Lost."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout):
        raise Unreachable(f"nothing answers at {url}; start the service with `walkgraph up`") from None
    except httpx.TimeoutException:
        raise Unreachable(f"the service at {url} took too long to answer; see its log") from None
    except httpx.HTTPError:
        raise Lost(f"the service at {url} did not answer to the end; see its log") from None


def socket_address(url: str, *path: str, **params: str | None) -> str:
    told = urlencode({key: value for key, value in params.items() if value is not None}, quote_via=quote)
    return f"ws{url.removeprefix('http')}/{'/'.join(quote(part, safe='') for part in path)}?{told}"


def bearer(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}"}
