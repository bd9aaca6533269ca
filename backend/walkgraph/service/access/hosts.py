"""Parses `Host` fields strictly, and lists the names that requests may be addressed to."""

import ipaddress
import re
from collections.abc import Iterable

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

Host = tuple[str, int | None]
"""(name, port): the name in lower case, an IPv6 address in brackets; the port None if it isn't given."""

_FORM = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_][a-z0-9_.\-]{0,252})(?::([1-9][0-9]{0,4}))?")
_MOST = 65_535


def read(value: str) -> Host | None:
    """Parses a host with an optional port; None if it is malformed."""
    found = _FORM.fullmatch(value.lower()) if value.isascii() else None
    if found is None:
        return None
    name, port = found[1], found[2] and int(found[2])
    if port and port > _MOST:
        return None
    if name.startswith("[") and not _is_six(name[1:-1]):
        return None
    return name, port or None


def known(configured: Iterable[str]) -> frozenset[str]:
    """The loopback's names and these, as `read` returns them. IPv6 addresses may be configured without brackets."""
    return frozenset((*LOOPBACK, *(f"[{host}]" if _is_six(host) else host for host in map(str.lower, configured))))


def _is_six(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text
