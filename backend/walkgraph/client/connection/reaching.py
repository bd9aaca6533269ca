"""Common connection handling of both clients: errors, addresses, limits."""

from __future__ import annotations

import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from urllib.parse import quote, urlencode

import httpx

from walkgraph.client.errors import Lost, Unreachable

CONNECT_SECONDS = 10.0
"""Seconds to connect, and to send each piece."""
TELEMETRY_BYTES = 4 * 1024 * 1024
"""Bytes of the largest telemetry frame that is read."""
MESSAGE_BYTES = 256 * 1024 * 1024
"""Bytes of the largest session message; a run's outputs may be as large."""
CLOSE_SECONDS = 0.5
"""Seconds to wait for the service's close frame, which may stand behind messages that nobody reads any more."""


@contextmanager
def reached(url: str) -> Generator[None]:
    """Turn connection errors into Unreachable or Lost."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        if _distrusts(error):
            raise Unreachable(
                f"the certificate of {url} is from an authority that this machine doesn't know, or for another name; "
                "`SSL_CERT_FILE` names a file with further authorities"
            ) from None
        raise Unreachable(f"nothing answers at {url}; start the service with `walkgraph up`") from None
    except httpx.TimeoutException:
        raise Unreachable(f"the service at {url} took too long to answer; see its log") from None
    except httpx.HTTPError:
        raise Lost(f"the service at {url} broke off its answer; see its log") from None


def verifying(url: str, trusted: ssl.SSLContext | None) -> ssl.SSLContext:
    """The TLS context to check certificates with: OpenSSL as set up on this machine, not httpx's own list. Without TLS
    it trusts nobody: to load the authorities takes longer than all else that a client does to start."""
    if trusted is not None:
        return trusted
    return ssl.create_default_context() if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _distrusts(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def socket_address(url: str, *path: str, **params: str | None) -> str:
    query = urlencode({key: value for key, value in params.items() if value is not None}, quote_via=quote)
    return f"ws{url.removeprefix('http')}/{'/'.join(quote(part, safe='') for part in path)}?{query}"


def bearer(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}"}
