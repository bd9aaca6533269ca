"""What both clients make of a connection: its failures in our words, its addresses, its bounds."""

from __future__ import annotations

import ssl
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
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        if _distrusts(error):
            raise Unreachable(
                f"the certificate that {url} shows is of no authority that this machine knows, or for another name; "
                "`SSL_CERT_FILE` names a file with further authorities"
            ) from None
        raise Unreachable(f"nothing answers at {url}; start the service with `walkgraph up`") from None
    except httpx.TimeoutException:
        raise Unreachable(f"the service at {url} took too long to answer; see its log") from None
    except httpx.HTTPError:
        raise Lost(f"the service at {url} did not answer to the end; see its log") from None


def verifying(url: str, trusted: ssl.SSLContext | None) -> ssl.SSLContext | bool:
    """How certificates are checked: as OpenSSL is set up on this machine, not by a list of httpx's own."""
    return trusted or (ssl.create_default_context() if url.startswith("https:") else True)


def _distrusts(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def socket_address(url: str, *path: str, **params: str | None) -> str:
    told = urlencode({key: value for key, value in params.items() if value is not None}, quote_via=quote)
    return f"ws{url.removeprefix('http')}/{'/'.join(quote(part, safe='') for part in path)}?{told}"


def bearer(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}"}
