"""`http.request`: what is asked, and what comes of the answer."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.outside import called, outside
from tests.support.recording import Recording, answered, recording, redirected
from tests.unit.service.fakes import PNG
from walkgraph.errors import WalkgraphError
from walkgraph.service.outward.exchange import AT_ONCE, Outside
from walkgraph.service.outward.vault import Vault
from walkgraph.wire import messages as m

ALL = ("text", "image", "audio", "status", "content_type")
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(28)


@pytest.fixture
async def server() -> AsyncIterator[Recording]:
    async with recording() as found:
        yield found


@pytest.fixture
def reached(server: Recording) -> Outside:
    return outside(server.origin)


def text(value: str) -> m.Small:
    return m.Small(value=value)


async def test_an_answer_is_text_with_a_status(server: Recording, reached: Outside) -> None:
    server.answers["/x"] = answered("grün".encode(), kind="text/plain; charset=utf-8")
    found = await called("http.request", reached, {"url": f"{server.origin}/x?a=1"}, outputs=("text", "status"))
    assert found == {"text": text("grün"), "status": m.Small(value=200)}
    asked = server.asked[0]
    assert (asked.method, asked.target, asked.body) == ("GET", "/x?a=1", b"")
    assert asked.headers["host"] == server.origin.removeprefix("http://")
    assert asked.headers["user-agent"] == "walkgraph"


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("text/plain; charset=iso-8859-1", b"gr\xfcn", "grün"),
        ("text/html;charset=UTF-8; x=y", "é".encode(), "é"),
        ("application/problem+json", b"{}", "{}"),
        ("text/plain; charset=nonsense", b"a\xff", "a\ufffd"),
        ("text/plain; charset=rot13", b"uryyb", "uryyb"),
        ("", b"plain", "plain"),
    ],
)
async def test_text_is_decoded(server: Recording, reached: Outside, kind: str, data: bytes, expected: str) -> None:
    server.answers["/"] = answered(data, kind=kind)
    assert await called("http.request", reached, {"url": server.origin}) == {"text": text(expected)}


async def test_a_compressed_answer_is_unpacked(server: Recording, reached: Outside) -> None:
    server.answers["/"] = answered(gzip.compress(b"long" * 1000), "Content-Encoding: gzip")
    assert await called("http.request", reached, {"url": server.origin}) == {"text": text("long" * 1000)}


@pytest.mark.parametrize(
    ("inputs", "params", "kind", "body"),
    [
        ({"text": text("a b")}, {}, "text/plain; charset=utf-8", b"a b"),
        ({"text": text('{"a": 1}')}, {"body": "json"}, "application/json", b'{"a": 1}'),
        ({"text": text("a")}, {"headers": "content-type: text/csv"}, "text/csv", b"a"),
        ({"image": m.Blob(data=PNG)}, {}, "image/png", PNG),
        ({"audio": m.Blob(data=WAV)}, {}, "audio/wav", WAV),
    ],
)
async def test_a_body_is_sent(
    server: Recording, reached: Outside, inputs: dict[str, m.Value], params: dict[str, Any], kind: str, body: bytes
) -> None:
    await called("http.request", reached, {"url": server.origin, "method": "POST", **params}, inputs)
    assert (server.asked[0].body, server.asked[0].headers["content-type"]) == (body, kind)


@pytest.mark.parametrize(("name", "data", "kind"), [("image", PNG, "image/png"), ("audio", WAV, "audio/wav")])
async def test_media_is_what_its_bytes_are(
    server: Recording, reached: Outside, name: str, data: bytes, kind: str
) -> None:
    server.answers["/"] = answered(data, kind="application/octet-stream")
    found = await called("http.request", reached, {"url": server.origin}, outputs=(name,))
    assert found == {name: m.Blob(data=data)}
    server.answers["/"] = answered(b"<html>", kind=kind)
    with pytest.raises(WalkgraphError, match="the answer is not"):
        await called("http.request", reached, {"url": server.origin}, outputs=(name,))
    with pytest.raises(WalkgraphError, match="is no text"):
        await called("http.request", reached, {"url": server.origin}, outputs=("text",))


async def test_headers_are_sent(server: Recording, reached: Outside) -> None:
    await called("http.request", reached, {"url": server.origin, "headers": "\n X-A: b c \nAccept:text/csv\n"})
    assert server.asked[0].headers["x-a"] == "b c"
    assert server.asked[0].headers["accept"] == "text/csv"


@pytest.mark.parametrize(
    "headers", ["no colon", ": x", "X-A: ü", "Connection: close", "A: " + "x" * 20_000, "A: b\n" * 40]
)
async def test_headers_that_cannot_be_sent_are_refused(server: Recording, reached: Outside, headers: str) -> None:
    with pytest.raises(WalkgraphError) as raised:
        await called("http.request", reached, {"url": server.origin, "headers": headers})
    assert raised.value.code == "invalid_input"
    assert server.connections == 0


async def test_a_status_fails_the_run_unless_the_graph_reads_it(server: Recording, reached: Outside) -> None:
    server.answers["/"] = answered(b"not here", status="404 Not Found")
    with pytest.raises(WalkgraphError, match="status 404") as raised:
        await called("http.request", reached, {"url": server.origin})
    assert (raised.value.code, raised.value.retryable) == ("node_error", False)
    found = await called("http.request", reached, {"url": server.origin, "fail": False}, outputs=ALL)
    assert found == {"text": text("not here"), "status": m.Small(value=404), "content_type": text("text/plain")}
    server.answers["/"] = answered(b"later", status="503 Busy")
    with pytest.raises(WalkgraphError) as raised:
        await called("http.request", reached, {"url": server.origin})
    assert raised.value.retryable


@pytest.mark.parametrize(
    ("may", "given", "target"),
    [
        ("path", "/other?x=1", "/other?x=1"),
        ("path", "?y=2", "/base/a?y=2"),
        ("path", "b/c", "/base/b/c"),
        ("path", "../../../up", "/up"),
        ("whole", "{origin}/whole", "/whole"),
    ],
)
async def test_an_input_replaces_what_the_graph_lets_it(
    server: Recording, reached: Outside, may: str, given: str, target: str
) -> None:
    params = {"url": f"{server.origin}/base/a?x=0", "url_input": may}
    await called("http.request", reached, params, {"url": text(given.format(origin=server.origin))})
    assert server.asked[0].target == target


@pytest.mark.parametrize(
    ("status", "method", "then", "body"),
    [
        ("301 Moved", "POST", "GET", b""),
        ("303 See Other", "PUT", "GET", b""),
        ("307 Temporary", "POST", "POST", b"x"),
        ("308 Permanent", "PUT", "PUT", b"x"),
        ("302 Found", "HEAD", "HEAD", b""),
    ],
)
async def test_a_redirect_on_the_same_server_is_followed(
    server: Recording, reached: Outside, status: str, method: str, then: str, body: bytes
) -> None:
    server.answers["/a"] = redirected("/b?c", status)
    server.answers["/b"] = answered(b"" if method == "HEAD" else b"there")
    inputs: dict[str, m.Value] = {} if method == "HEAD" else {"text": text("x")}
    params = {"url": f"{server.origin}/a", "method": method}
    found = await called("http.request", reached, params, inputs)
    assert found["text"] == text("" if method == "HEAD" else "there")
    assert (server.asked[1].method, server.asked[1].target, server.asked[1].body) == (then, "/b?c", body)


@pytest.mark.parametrize(
    ("params", "inputs"),
    [
        ({"body": "json"}, {"text": text("{")}),
        ({"body": "json"}, {"text": text("NaN")}),
        ({"body": "json"}, {"text": text("[" * 100_000)}),
        ({}, {"text": text("a"), "image": m.Blob(data=PNG)}),
        ({}, {"text": m.Blob(data=PNG)}),
        ({}, {"image": text("a")}),
        ({}, {"url": text("/x")}),
    ],
)
async def test_inputs_that_make_no_request_are_refused(
    server: Recording, reached: Outside, params: dict[str, Any], inputs: dict[str, m.Value]
) -> None:
    with pytest.raises(WalkgraphError) as raised:
        await called("http.request", reached, {"url": server.origin, **params}, inputs)
    assert raised.value.code == "invalid_input"
    assert server.connections == 0


async def test_an_answer_of_the_largest_size_is_taken(server: Recording, reached: Outside) -> None:
    server.answers["/"] = answered(b"x" * 1000)
    assert (await called("http.request", reached, {"url": server.origin, "max_bytes": 1000}))["text"] == text(
        "x" * 1000
    )
    for answer in (answered(b"x" * 1001), answered(gzip.compress(b"x" * 1001), "Content-Encoding: gzip")):
        server.answers["/"] = answer
        with pytest.raises(WalkgraphError, match="more than 1000 bytes"):
            await called("http.request", reached, {"url": server.origin, "max_bytes": 1000})


async def test_a_server_that_is_gone_is_an_error_that_may_pass(server: Recording, reached: Outside) -> None:
    async with recording() as gone:
        pass
    with pytest.raises(WalkgraphError, match="can't be reached") as raised:
        await called("http.request", outside(gone.origin), {"url": gone.origin})
    assert raised.value.retryable


async def test_one_server_gets_so_many_calls_at_once(server: Recording, reached: Outside) -> None:
    full, go = asyncio.Event(), asyncio.Event()

    async def hold(asked: Any, write: Any) -> None:
        if len(server.asked) == AT_ONCE:
            full.set()
        await go.wait()
        await write(answered(b"done"))

    server.answers["/"] = hold
    calls = [asyncio.create_task(called("http.request", reached, {"url": server.origin})) for _ in range(AT_ONCE + 8)]
    await full.wait()
    async with recording() as other:
        other_one = outside(server.origin, other.origin)
        assert await called("http.request", other_one, {"url": other.origin}) == {"text": text("hit")}
    assert len(server.asked) == AT_ONCE
    go.set()
    assert len(await asyncio.gather(*calls)) == len(server.asked) == AT_ONCE + 8


async def test_a_secret_is_sent_and_not_told(server: Recording, tmp_path: Path) -> None:
    vault = Vault(tmp_path / "secrets")
    vault.set("key", "s3cret-value", (server.origin,))
    reached = outside(server.origin, vault=tmp_path / "secrets")

    async def echo(asked: Any, write: Any) -> None:
        await write(answered(f"you sent {asked.headers['authorization']}"))

    server.answers["/"] = echo
    params = {"url": server.origin, "headers": "Authorization: Bearer secret:key"}
    found = await called("http.request", reached, params)
    assert server.asked[0].headers["authorization"] == "Bearer s3cret-value"
    assert found["text"] == text("you sent Bearer secret:key")


async def test_a_secret_goes_to_its_servers_alone(server: Recording, tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.set("key", "s3cret-value", ("https://api.example",))
    reached = outside(server.origin, vault=tmp_path)
    params = {"url": server.origin, "headers": "X-Key: secret:key"}
    with pytest.raises(WalkgraphError, match="may not be sent to") as raised:
        await called("http.request", reached, params)
    assert "s3cret" not in str(raised.value)
    params["headers"] = "X-Key: secret:other"
    with pytest.raises(WalkgraphError, match="no secret `other`"):
        await called("http.request", reached, params)
    vault.set("key", "s3cret-value", (server.origin,))
    (tmp_path / "key").chmod(0o640)
    params["headers"] = "X-Key: secret:key"
    with pytest.raises(WalkgraphError, match="mode to 0600"):
        await called("http.request", reached, params)
    assert server.connections == 0
