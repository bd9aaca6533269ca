"""Tricks that would make the service call a server that nobody allowed, or hold it up: each against a server that
records every connection."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.safety.plugin import Figure
from tests.support.outside import called, names, outside
from tests.support.recording import Asked, Recording, Write, answered, recording, redirected
from walkgraph.errors import WalkgraphError
from walkgraph.service.outward.exchange import Outside, Resolve
from walkgraph.wire import messages as m

BOMB = gzip.compress(bytes(64 << 20))
MOST = 1 << 20
"""Bytes of an answer that the tests allow."""


@dataclass
class Place:
    """Two servers on one port: `allowed` at 127.0.0.2, which the settings list, and `canary` at 127.0.0.1."""

    allowed: Recording
    canary: Recording

    def outside(self, *more: str, resolve: Resolve | None = None) -> Outside:
        return outside(self.allowed.origin, *more, resolve=resolve)


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with recording("127.0.0.1") as canary, recording("127.0.0.2", canary.port) as allowed:
        yield Place(allowed, canary)


@dataclass(frozen=True)
class Trick:
    """A call of `http.request`. In its texts, `PORT` is the port of both servers."""

    url: str
    """Behind `scheme`."""
    servers: tuple[str, ...] = ()
    """Listed besides the allowed one."""
    found: tuple[str, ...] = ()
    """Addresses of every name."""
    params: dict[str, Any] = field(default_factory=dict)
    given: str | None = None
    """The input `url`."""
    answer: bytes | Callable[[Asked, Write], Awaitable[None]] | None = None
    """The allowed server's answer to `/`."""
    code: str = "refused"
    """The code of the error."""
    scheme: str = "http://"


async def endless(asked: Asked, write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")


async def dripping(asked: Asked, write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        await write(b"x")
        await asyncio.sleep(0.01)


async def silent(asked: Asked, write: Write) -> None:
    await asyncio.Event().wait()


async def endless_head(asked: Asked, write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\n")
    while True:
        await write(b"X-Filler: " + b"x" * 4000 + b"\r\n")


NAME = "inside.example:PORT/"
LISTED = ("http://inside.example:PORT",)
CANARY = "http://127.0.0.1:PORT/"
GZIP = "Content-Encoding: gzip"

TRICKS = {
    # what isn't listed
    "the address itself": Trick("127.0.0.1:PORT/"),
    "a name of this machine": Trick("localhost:PORT/"),
    "another port of a listed server": Trick("127.0.0.2:1/"),
    "another scheme of a listed server": Trick("127.0.0.2:PORT/", scheme="https://"),
    # other ways to write an address
    "a decimal address": Trick("2130706433:PORT/"),
    "an octal address": Trick("0177.0.0.1:PORT/"),
    "a hexadecimal address": Trick("0x7f000001:PORT/"),
    "a mixed address": Trick("0x7f.1:PORT/"),
    "a short address": Trick("127.1:PORT/"),
    "an address with leading zeros": Trick("127.000.000.001:PORT/"),
    "the address of all": Trick("0.0.0.0:PORT/"),
    "IPv6 of this machine": Trick("[::1]:PORT/"),
    "mapped IPv6": Trick("[::ffff:127.0.0.1]:PORT/"),
    "mapped IPv6 in hexadecimal": Trick("[::ffff:7f00:1]:PORT/"),
    "compatible IPv6": Trick("[::127.0.0.1]:PORT/"),
    "translated IPv6": Trick("[64:ff9b::7f00:1]:PORT/"),
    "an address with a zone": Trick("[::1%25lo]:PORT/"),
    "a trailing dot": Trick("127.0.0.1.:PORT/"),
    "digits of other alphabets": Trick("①②⑦.⓪.⓪.①:PORT/"),
    # two readers that disagree
    "a user before the server": Trick("127.0.0.2:PORT@127.0.0.1:PORT/"),
    "a user after a backslash": Trick("127.0.0.1:PORT\\@127.0.0.2:PORT/"),
    "a fragment before an @": Trick("127.0.0.1:PORT#@127.0.0.2:PORT/"),
    "two ports": Trick("127.0.0.2:PORT:PORT/"),
    "a line break in the server": Trick("127.0.0.2\r\n.127.0.0.1:PORT/"),
    "a homograph of a listed name": Trick("insid\u0435.example:PORT/", LISTED, ("127.0.0.1",)),
    "a name that ends in a listed one": Trick("xinside.example:PORT/", LISTED, ("127.0.0.1",)),
    "a name below a listed one": Trick("a.inside.example:PORT/", LISTED, ("127.0.0.1",)),
    "an encoded slash in the server": Trick("127.0.0.2%2f:PORT/"),
    # other schemes
    "file": Trick("file:///etc/passwd", scheme=""),
    "gopher": Trick("127.0.0.1:PORT/_GET%20/", scheme="gopher://"),
    "data": Trick("data:text/plain,hit", scheme=""),
    "no scheme": Trick("//127.0.0.1:PORT/", scheme=""),
    # listed names that lead elsewhere
    "a name of this machine's address": Trick(NAME, LISTED, ("127.0.0.1",)),
    "a name of a mapped address": Trick(NAME, LISTED, ("::ffff:127.0.0.1",)),
    "a name of the address of all": Trick(NAME, LISTED, ("0.0.0.0",)),
    "a name of a private address": Trick(NAME, LISTED, ("10.0.0.1",)),
    "a name of a cloud's metadata": Trick(NAME, LISTED, ("169.254.169.254",)),
    "a name of a cloud's metadata by IPv6": Trick(NAME, LISTED, ("fd00:ec2::254",)),
    "a name of two addresses": Trick(NAME, LISTED, ("127.0.0.2", "127.0.0.1")),
    "a wildcard's name of a private address": Trick(
        "a.inside.example:PORT/", ("http://*.inside.example:PORT",), ("127.0.0.1",)
    ),
    # redirects
    "a redirect to another server": Trick("127.0.0.2:PORT/", answer=redirected(CANARY)),
    "a redirect without a scheme": Trick("127.0.0.2:PORT/", answer=redirected("//127.0.0.1:PORT/")),
    "a redirect to a file": Trick("127.0.0.2:PORT/", answer=redirected("file:///etc/passwd")),
    "a redirect past a backslash": Trick("127.0.0.2:PORT/", answer=redirected("/\\127.0.0.1:PORT/")),
    "a redirect that keeps the body": Trick(
        "127.0.0.2:PORT/", params={"method": "POST"}, answer=redirected(CANARY, "307 Temporary Redirect")
    ),
    "redirects in a circle": Trick("127.0.0.2:PORT/", answer=redirected("/"), code="node_error"),
    # what a client sends
    "an input where none may be": Trick("127.0.0.2:PORT/", given=CANARY, code="invalid_input"),
    "a whole URL for a path": Trick(
        "127.0.0.2:PORT/", params={"url_input": "path"}, given=CANARY, code="invalid_input"
    ),
    "a path that is a server": Trick(
        "127.0.0.2:PORT/", params={"url_input": "path"}, given="//127.0.0.1:PORT/", code="invalid_input"
    ),
    "a whole URL": Trick("127.0.0.2:PORT/", params={"url_input": "whole"}, given=CANARY),
    # headers
    "another host in a header": Trick(
        "127.0.0.2:PORT/", params={"headers": "hOsT: 127.0.0.1"}, code="invalid_input"
    ),
    "a length in a header": Trick(
        "127.0.0.2:PORT/", params={"headers": "Content-Length: 5"}, code="invalid_input"
    ),
    "a line break in a header": Trick(
        "127.0.0.2:PORT/", params={"headers": "X-A: b\r\rGET / HTTP/1.1"}, code="invalid_input"
    ),
    "a line break in a header's name": Trick(
        "127.0.0.2:PORT/", params={"headers": "X A\x0b: b"}, code="invalid_input"
    ),
    # answers that hold the service up
    "an endless answer": Trick("127.0.0.2:PORT/", answer=endless, code="node_error"),
    "an answer that expands": Trick("127.0.0.2:PORT/", answer=answered(BOMB, GZIP), code="node_error"),
    "an answer that isn't compressed": Trick(
        "127.0.0.2:PORT/", answer=answered(b"plain", GZIP), code="node_error"
    ),
    "an answer compressed otherwise": Trick(
        "127.0.0.2:PORT/", answer=answered(b"x", "Content-Encoding: br"), code="node_error"
    ),
    "an endless head": Trick("127.0.0.2:PORT/", answer=endless_head, code="node_error"),
    "an answer that drips": Trick("127.0.0.2:PORT/", answer=dripping, code="late"),
    "no answer": Trick("127.0.0.2:PORT/", answer=silent, code="late"),
    "an answer that is no HTTP": Trick("127.0.0.2:PORT/", answer=b"SSH-2.0-x\r\n", code="node_error"),
}  # fmt: skip


def at(port: int, value: Any) -> Any:
    match value:
        case str():
            return value.replace("PORT", str(port))
        case bytes():
            return value.replace(b"PORT", str(port).encode())
        case tuple():
            return tuple(at(port, one) for one in value)
        case _:
            return value


async def refusal(place: Place, trick: Trick) -> str:
    """The code of the trick's error; `late` for one that was given up."""
    port = place.canary.port
    if trick.answer is not None:
        place.allowed.answers["/"] = at(port, trick.answer)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return trick.found

    reached = place.outside(*at(port, trick.servers), resolve=resolve)
    inputs: dict[str, m.Value] = {} if trick.given is None else {"url": m.Small(value=at(port, trick.given))}
    params = {"url": trick.scheme + at(port, trick.url), "max_bytes": MOST, **trick.params}
    # Whatever answers in time does so at once: only what never would is given up.
    seconds = 1.0 if trick.code == "late" else 120.0
    try:
        async with asyncio.timeout(seconds):
            found = await called("http.request", reached, params, inputs)
    except TimeoutError:
        return "late"
    except WalkgraphError as error:
        told = any(address in str(error) for address in trick.found)
        return "what the name means inside is told" if told else error.code
    return f"answered {found}"


@pytest.mark.safety("S17")
@pytest.mark.parametrize("name", TRICKS)
async def test_a_trick_reaches_no_other_server(place: Place, name: str) -> None:
    tracemalloc.start()
    try:
        code = await refusal(place, TRICKS[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert code == TRICKS[name].code
    assert place.canary.connections == 0
    assert place.allowed.connections <= (4 if TRICKS[name].answer is not None else 0)
    assert peak < 16 * MOST, "what is too large is never held"


@pytest.mark.safety("S17")
def test_the_table_is_as_long_as_it_says(figure: Figure) -> None:
    assert len(TRICKS) >= 40
    figure("tricks, none of which reached another server", len(TRICKS), "")


@pytest.mark.safety("S17")
async def test_the_canary_is_where_the_tricks_go(place: Place) -> None:
    """Without the list of servers, the same calls would reach it."""
    await called("http.request", outside(place.canary.origin), {"url": f"{place.canary.origin}/x"})
    assert [asked.target for asked in place.canary.asked] == ["/x"]


@pytest.mark.safety("S17")
async def test_a_name_that_changes_its_address_is_resolved_once(place: Place) -> None:
    answers = iter((["127.0.0.2"], ["127.0.0.1"], ["127.0.0.1"]))
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return next(answers)

    url = f"http://{at(place.canary.port, NAME)}"
    reached = place.outside(url.rstrip("/"), resolve=resolve)
    found = await called("http.request", reached, {"url": url})
    assert found["text"] == m.Small(value="hit")
    assert asked == ["inside.example"]
    assert place.allowed.asked[0].headers["host"] == f"inside.example:{place.canary.port}"
    with pytest.raises(WalkgraphError, match="isn't public"):
        await called("http.request", reached, {"url": url})
    assert place.canary.connections == 0


@pytest.mark.safety("S17")
async def test_the_machines_proxies_are_ignored(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, place.canary.origin)
    await called("http.request", place.outside(), {"url": place.allowed.origin})
    assert (place.allowed.connections, place.canary.connections) == (1, 0)


@pytest.mark.safety("S17")
async def test_by_default_nothing_may_be_called(place: Place) -> None:
    with pytest.raises(WalkgraphError, match="WALKGRAPH_CALL_HOSTS"):
        await called("http.request", outside(), {"url": place.canary.origin})
    with pytest.raises(WalkgraphError, match="WALKGRAPH_CALL_HOSTS"):
        await called(
            "http.request", outside(resolve=names(inside_example=("127.0.0.1",))), {"url": "http://inside.example/"}
        )
    assert place.canary.connections == 0
