"""One request to a server outside and its answer, within limits of time and size.

    URL ──> on the list? ──> name resolved once ──> addresses may be called? ──> connection to one of these ──> answer

The connection goes to the address that was checked, so a name that changes its meaning meanwhile changes nothing. The
machine's proxies are ignored. A redirect stays on its server, and is checked as a first request is.
"""

import asyncio
import ipaddress
import socket
import ssl
import zlib
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

import httpx

from walkgraph.errors import InvalidInput, Refused, WalkgraphError
from walkgraph.servers import SECRET, IPAddress, Server, Url, is_public
from walkgraph.service.outward.vault import Vault

MOST_REDIRECTS = 3
MOST_HEADERS = 32
MOST_HEADER_BYTES = 16 * 1024
CONNECT_SECONDS = 10.0
AT_ONCE = 64
"""Calls of one server at once; more wait for one of these."""
MOST_ADDRESSES = 4
"""The addresses of a name that are tried."""
RESOLVERS = 8
"""Threads that resolve names."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host, port) -> its network addresses."""

_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts no certificate: plain http has none."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEEPS_BODY = frozenset({307, 308})
_OURS = frozenset(
    "host connection content-length transfer-encoding accept-encoding keep-alive te trailer upgrade expect "
    "proxy-authorization proxy-connection".split()
)
"""Headers that say where a request goes, or how it is framed."""
_NAME = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class CallOutFailed(WalkgraphError):
    """The server outside can't be reached, or its answer can't be used."""

    code = "node_error"

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """A request. In its headers, `secret:NAME` stands for a value of the vault."""

    method: str
    url: Url
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    most_bytes: int
    """The largest body of the answer, as sent and decompressed."""


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """The answer, without the values of secrets that were sent for it."""

    status: int
    content_type: str
    body: bytes


Piece = Callable[[bytes], None]
"""Takes a line of the body."""


class Outside:
    """The servers that may be called, and how they are reached."""

    def __init__(self, servers: Sequence[Server], vault: Vault, resolve: Resolve | None = None) -> None:
        """`resolve`: the machine's by default."""
        self._servers, self._vault = tuple(servers), vault
        self._resolve = resolve or _Resolver().resolve
        self._at_once: dict[str, asyncio.Semaphore] = {}

    async def exchange(self, asked: Outgoing, piece: Piece | None = None) -> Incoming:
        """Send a request and return its answer. `piece` gets the lines of a success as they come.

        Raises Refused for a server that may not be called, InvalidInput for a request that can't be sent,
        CallOutFailed.
        """
        first = asked.url
        for _ in range(MOST_REDIRECTS + 1):
            addresses = await self._reached(asked.url)
            limit = self._at_once.setdefault(asked.url.origin, asyncio.Semaphore(AT_ONCE))
            async with limit:
                found, location = await self._once(asked, addresses, piece)
            if location is None:
                return found
            url = asked.url.to(location)
            if url.host != first.host:
                raise Refused(f"`{first.origin}` redirects to another server, which is not followed; call that one")
            asked = replace(asked, url=url)
            if found.status not in _KEEPS_BODY and asked.method != "HEAD":
                kept = tuple(header for header in asked.headers if header[0].lower() != "content-type")
                asked = replace(asked, method="GET", body=b"", headers=kept)
        raise CallOutFailed(f"`{first.origin}` redirects more than {MOST_REDIRECTS} times")

    async def _reached(self, url: Url) -> list[IPAddress]:
        """The addresses of a URL's server. Raises Refused if the settings don't list it, or one of them must be listed
        itself."""
        if not any(server.covers(url) for server in self._servers):
            raise Refused(
                f"nodes may not call `{url.origin}`; an operator allows it in the setting `WALKGRAPH_CALL_HOSTS`"
            )
        if url.address is not None:
            return [url.address]
        try:
            found = [ipaddress.ip_address(text) for text in await self._resolve(url.host, url.port)]
        except (OSError, UnicodeError, ValueError):
            found = []
        if not found:
            raise CallOutFailed(f"the name `{url.host}` has no address", retryable=True)
        for address in found:
            itself = replace(url, host=str(address))
            if not is_public(address) and not any(server.covers(itself) for server in self._servers):
                raise Refused(
                    f"`{url.host}` leads to an address that isn't public; an operator allows it by listing "
                    "the address too, in the setting `WALKGRAPH_CALL_HOSTS`"
                )
        return found

    async def _once(
        self, asked: Outgoing, addresses: Sequence[IPAddress], piece: Piece | None
    ) -> tuple[Incoming, str | None]:
        """One request. With a redirect's answer, where to."""
        headers, secrets = await asyncio.to_thread(self._headers, asked)
        url = asked.url
        trusted = await asyncio.to_thread(lambda: self._certificates) if url.scheme == "https" else _NOBODY
        transport = httpx.AsyncHTTPTransport(verify=trusted, trust_env=False, http2=False, retries=0)
        async with transport:
            try:
                answer = await _sent(transport, asked, headers, addresses[:MOST_ADDRESSES])
                try:
                    location = answer.headers.get("location") if answer.status_code in _REDIRECTS else None
                    streamed = piece if answer.is_success else None
                    body = b"" if location else await _Body(asked.most_bytes, secrets, streamed).read(answer)
                finally:
                    await answer.aclose()
            except httpx.HTTPError as error:
                raise CallOutFailed(f"`{url.origin}` {_fault(error)}", retryable=True) from None
        content_type = _hidden(answer.headers.get("content-type", "").encode(), secrets).decode()
        found = Incoming(status=answer.status_code, content_type=content_type, body=body)
        return found, location

    def _headers(self, asked: Outgoing) -> tuple[list[tuple[str, str]], dict[str, str]]:
        """The headers with the values of secrets, and these by name."""
        secrets: dict[str, str] = {}
        made = [("Host", asked.url.authority), ("User-Agent", "walkgraph"), ("Accept-Encoding", "gzip")]
        if len(asked.headers) > MOST_HEADERS or sum(len(a) + len(b) for a, b in asked.headers) > MOST_HEADER_BYTES:
            raise InvalidInput(f"a request has at most {MOST_HEADERS} headers of {MOST_HEADER_BYTES} bytes together")
        for name, text in asked.headers:
            for secret in SECRET.findall(text):
                secrets[secret] = self._vault.value_for(secret, asked.url)
            value = SECRET.sub(lambda match: secrets[match[1]], text)
            check_header(name, value)
            made.append((name, value))
        return made, secrets

    @cached_property
    def _certificates(self) -> ssl.SSLContext:
        """The published authorities, and those of the machine."""
        context = httpx.create_ssl_context(trust_env=False)
        with suppress(ssl.SSLError):
            context.load_default_certs()
        return context


async def _sent(
    transport: httpx.AsyncHTTPTransport,
    asked: Outgoing,
    headers: list[tuple[str, str]],
    addresses: Sequence[IPAddress],
) -> httpx.Response:
    """The head of the answer, from the first address that accepts a connection. A certificate must be the name's."""
    url = asked.url
    extensions = {
        "sni_hostname": url.host,
        "timeout": {"connect": CONNECT_SECONDS, "read": None, "write": None, "pool": None},
    }
    for number, address in enumerate(addresses, 1):
        place = httpx.URL(scheme=url.scheme, host=str(address), port=url.port, raw_path=url.target.encode())
        request = httpx.Request(asked.method, place, headers=headers, content=asked.body, extensions=extensions)
        try:
            return await transport.handle_async_request(request)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            if number == len(addresses):
                raise
    raise ValueError("a request needs an address")


def check_header(name: str, value: str) -> None:
    """Raises InvalidInput for a header that can't be sent, or that isn't the node's to choose."""
    if not name or not set(name) <= _NAME:
        raise InvalidInput("a header is written `Name: value`, one a line")
    if name.lower() in _OURS:
        raise InvalidInput(f"the header `{name}` follows from the request; remove it")
    if not (value.isascii() and value.isprintable()):
        raise InvalidInput(f"the header `{name}` has characters that a header can't have")


@dataclass
class _Body:
    """Reads an answer's body."""

    most: int
    secrets: dict[str, str]
    piece: Piece | None
    _chunks: list[bytes] = field(default_factory=list[bytes])
    _size: int = 0
    _line: bytes = b""
    """The beginning of a line, whose end hasn't come."""

    async def read(self, answer: httpx.Response) -> bytes:
        encoding = answer.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", "x-gzip", ""):
            raise CallOutFailed("the answer is compressed in a way that wasn't asked for")
        unpacked = zlib.decompressobj(16 + zlib.MAX_WBITS) if "gzip" in encoding else None
        sent = 0
        async for raw in answer.aiter_raw():
            sent += len(raw)
            if sent > self.most:
                raise self._too_large()
            try:
                # At most one byte more than there may be: what is larger is never held.
                self._take(raw if unpacked is None else unpacked.decompress(raw, self.most - self._size + 1))
            except zlib.error:
                raise CallOutFailed("the answer is not compressed as it says") from None
        if self.piece is not None and self._line:
            self.piece(_hidden(self._line, self.secrets))
        return _hidden(b"".join(self._chunks), self.secrets)

    def _take(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > self.most:
            raise self._too_large()
        self._chunks.append(chunk)
        if self.piece is not None:
            *lines, self._line = (self._line + chunk).split(b"\n")
            for line in lines:
                self.piece(_hidden(line, self.secrets))

    def _too_large(self) -> CallOutFailed:
        return CallOutFailed(f"the answer has more than {self.most} bytes; raise `max_bytes`, or ask for less")


def _hidden(data: bytes, secrets: dict[str, str]) -> bytes:
    """The data with the names of secrets in place of their values: some servers repeat what they were sent."""
    for name, value in secrets.items():
        data = data.replace(value.encode(), f"secret:{name}".encode())
    return data


def _fault(error: httpx.HTTPError) -> str:
    match error:
        case httpx.ConnectError() | httpx.ConnectTimeout():
            return "can't be reached; see if it runs, and if its certificate is valid"
        case httpx.TimeoutException():
            return "doesn't answer"
        case _:
            return "broke off, or doesn't speak HTTP"


class _Resolver:
    """Resolves names in threads of its own, as the machine's resolver may take its time."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolve")

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _addresses, host, port)
        return list(dict.fromkeys(found))


def _addresses(host: str, port: int) -> list[str]:
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
