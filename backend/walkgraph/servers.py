"""Servers that may be called: their addresses as settings and secrets list them, URLs as documents and clients give
them, and which network addresses are public.

Both are read here, by one grammar that knows fewer forms than browsers do: what it can't read is refused, so no second
reader can understand it differently.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import quote, urljoin

from walkgraph.errors import Refused

Scheme = Literal["http", "https"]
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

SECRET = re.compile(r"secret:([a-z0-9][a-z0-9_-]{0,63})")
"""Stands for the value of a secret in what documents say about a request."""

_PORTS: dict[Scheme, int] = {"http": 80, "https": 443}
_MOST_CHARACTERS = 8192
_MOST_OF_A_NAME = 253

_SHAPE = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/?]*)(?P<target>.*)", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[^:\[\]]+)(?::(?P<port>[0-9]{1,5}))?", re.IGNORECASE)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")
_TARGET = "%/?:@!$&'()*+,;=-._~[]|"
"""Characters of a path and a query that stay as they are."""

_CLOSED = tuple(
    map(
        ipaddress.ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24"),
            *("192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
            # A cloud's metadata and DNS at an address that looks public.
            "168.63.129.16/32",
            *("224.0.0.0/4", "240.0.0.0/4"),
            # IPv6 that leads to other addresses (6to4, Teredo, benchmarks, ORCHID), and documentation.
            *("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
        ),
    )
)
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
"""Mapped, translated (`64:ff9b::/96`), local and multicast addresses are outside."""


@dataclass(frozen=True)
class Url:
    """A URL of http or https."""

    scheme: Scheme
    host: str
    """A name in lower case, or an address without brackets."""
    port: int
    target: str
    """Path and query, in ASCII."""

    @property
    def address(self) -> IPAddress | None:
        """The network address that stands in the URL; None for a name."""
        return _address(self.host)

    @property
    def authority(self) -> str:
        """The `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    def __str__(self) -> str:
        return f"{self.origin}{self.target}"

    def to(self, reference: str) -> "Url":
        """The URL that a reference (`Location`, or a path) means here. Raises Refused."""
        if len(reference) > _MOST_CHARACTERS or _UNSAFE.search(reference):
            raise Refused("a redirect, or a path, has characters that a URL can't have")
        return parse_url(urljoin(str(self), reference))


@dataclass(frozen=True)
class Server:
    """One entry of a list of servers: `api.example`, `*.acme.example`, `http://gpu.example:8000`."""

    scheme: Scheme
    host: str
    port: int

    def covers(self, url: Url) -> bool:
        if (self.scheme, self.port) != (url.scheme, url.port):
            return False
        if self.host.startswith("*."):
            return url.address is None and url.host.endswith(self.host[1:])
        return self.host == url.host

    def __str__(self) -> str:
        return Url(self.scheme, self.host, self.port, "").origin


def parse_url(text: str) -> Url:
    """Read a URL. Raises Refused, without its text, which may hold a password."""
    if len(text) > _MOST_CHARACTERS:
        raise Refused(f"a URL may have {_MOST_CHARACTERS} characters")
    if _UNSAFE.search(text) or "#" in text:
        raise Refused("a URL can't have spaces, control characters, backslashes or a `#`; write them percent-encoded")
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise Refused("a URL begins with `https://` or `http://`, then the server's name")
    scheme = _scheme(found["scheme"])
    host, port = _place(scheme, found["authority"])
    target = found["target"]
    return Url(scheme, host, port, quote(target if target.startswith("/") else f"/{target}", safe=_TARGET))


def parse_server(text: str) -> Server:
    """Read an entry of a list; without a scheme it is https. Raises Refused."""
    scheme, found, authority = text.strip().rpartition("://")
    kind = _scheme(scheme if found else "https")
    wild = authority.startswith("*.")
    try:
        host, port = _place(kind, authority[2:] if wild else authority)
    except Refused as error:
        raise Refused(f"`{text[:100]}` is no server; write `api.example` or `http://gpu.example:8000`") from error
    if wild and (_address(host) is not None or "." not in host):
        raise Refused(f"`{text[:100]}` is too wide; write `*.acme.example`")
    return Server(kind, f"*.{host}" if wild else host, port)


def parse_servers(texts: Iterable[str]) -> tuple[Server, ...]:
    return tuple(dict.fromkeys(parse_server(text) for text in texts))


def header_lines(text: str) -> list[tuple[str, str]]:
    """The headers of a parameter, `Name: value`, one a line."""
    lines = [line.strip().partition(":") for line in text.split("\n") if line.strip()]
    return [(name.strip(), value.strip()) for name, _, value in lines]


def is_public(address: IPAddress) -> bool:
    """True for an address of the Internet that belongs to one server, and leads to no other network."""
    if any(address in network for network in _CLOSED if network.version == address.version):
        return False
    return address.version == 4 or address in _GLOBAL_IPV6


def _scheme(text: str) -> Scheme:
    if text.lower() not in _PORTS:
        raise Refused("only `https` and `http` can be called")
    return cast(Scheme, text.lower())


def _place(scheme: Scheme, authority: str) -> tuple[str, int]:
    """Host and port. Raises Refused for anything that two readers may read differently."""
    if "@" in authority:
        raise Refused("a URL can't have a user or a password; put them into a header, as a secret")
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        raise Refused("a URL needs a server's name, and a port only as `:443`")
    port = int(found["port"] or _PORTS[scheme])
    if not 0 < port < 1 << 16:
        raise Refused("a port is a number from 1 to 65535")
    return _host(found["host"].lower()), port


def _host(text: str) -> str:
    if not text.isascii():
        raise Refused("the name of a server is in ASCII; write an international one as `xn--...`")
    if text.startswith("["):
        try:
            return str(ipaddress.IPv6Address(text[1:-1]))
        except ValueError:
            raise Refused("what stands in brackets is no IPv6 address") from None
    labels = text.split(".")
    if _NUMBER.fullmatch(labels[-1] or labels[-2] if len(labels) > 1 else text):
        try:
            return str(ipaddress.IPv4Address(text))
        except ValueError:
            raise Refused("an IPv4 address is four decimal numbers, as in `10.0.0.5`") from None
    if len(text) > _MOST_OF_A_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise Refused("the name of a server has letters, digits, hyphens and single dots, and ends in none")
    return text


def _address(host: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
