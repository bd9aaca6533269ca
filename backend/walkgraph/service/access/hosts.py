"""The names that a request may be addressed to: what a `Host` field says, read strictly, and which are ours."""

import ipaddress
import re
from collections.abc import Iterable

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

Host = tuple[str, int | None]
"""Name in lower case, an IPv6 address in brackets; port, None where it isn't told."""

_FORM = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_][a-z0-9_.\-]{0,252})(?::([1-9][0-9]{0,4}))?")
_MOST = 65_535


def read(value: str) -> Host | None:
    """None for what is no host with a port, or without one."""
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
    """The loopback's names and these, as `read` gives them; an IPv6 address may be configured without its brackets."""
    return frozenset((*LOOPBACK, *(f"[{host}]" if _is_six(host) else host for host in map(str.lower, configured))))


def _is_six(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text
