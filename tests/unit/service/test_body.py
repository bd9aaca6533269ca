"""The table of bombs: every one has its exact answer, and none takes long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.yardstick import fastest_answer
from tests.unit.service.conftest import Running
from walkgraph.errors import InvalidInput
from walkgraph.service.access import access
from walkgraph.service.http import body, limits

MOST_SECONDS = 0.5
CHECK = "/api/v1/graphs/check"
JSON = {"Content-Type": "application/json"}
BOMBS = {
    "deep lists": (b"[" * 1000, 400),
    "very deep lists": (b"[" * 100_000, 400),
    "deep closed lists": (b"[" * 5000 + b"]" * 5000, 400),
    "too deep by one": (b"[" * 65 + b"1" + b"]" * 65, 400),
    "deep objects": (b'{"a":' * 100_000, 400),
    "lists at the limit": (b"[" * 64 + b"1" + b"]" * 64, 200),
    "NaN": (b'{"x": NaN}', 400),
    "Infinity": (b'{"x": -Infinity}', 400),
    "1e400": (b'{"x": 1e400}', 400),
    "a long fraction": (b'{"x": 0.' + b"1" * 5000 + b"}", 400),
    "5000 digits": (b'{"x": ' + b"9" * 5000 + b"}", 400),
    "over 64 bits": (b'{"x": 9223372036854775808}', 400),
    "64 bits": (b'{"x": 9223372036854775807}', 200),
    "a lone surrogate": (b'{"x": "\\ud800"}', 400),
    "a lone surrogate as key": (b'{"\\udfff": 1}', 400),
    "a pair": (b'{"x": "\\ud83d\\ude00"}', 200),
    "empty": (b"", 400),
    "truncated": (b'{"x": ', 400),
    "bad UTF-8": (b'{"x": "\xff"}', 400),
    "UTF-16": ('{"x": 1}'.encode("utf-16"), 400),
    "NUL": (b'{"x": "\\u0000"}', 200),
    "a raw NUL": (b'{"x": "\x00"}', 400),
    "duplicate keys": (b'{"x": 1, "x": 2}', 400),
    "BOM": (b'\xef\xbb\xbf{"x": 1}', 200),
    "a million nodes": (b'{"nodes": {' + b",".join(b'"n%d":{}' % i for i in range(1_000_000)) + b"}}", 413),
    "a huge string": (b'{"x": "' + b"a" * (8 * 1024 * 1024) + b'"}', 200),
    "33 MiB": (b" " * (33 * 1024 * 1024), 413),
    "two values": (b"{} {}", 400),
    "comments": (b"{} // x", 400),
    "single quotes": (b"{'x': 1}", 400),
}


@pytest.mark.safety("S3")
@pytest.mark.parametrize("name", BOMBS)
async def test_bombs(service: Running, name: str) -> None:
    content, expected = BOMBS[name]
    ask = partial(service.http.post, CHECK, content=content, headers=JSON)
    answer, seconds = await fastest_answer(ask, MOST_SECONDS)
    assert answer.status_code == expected, answer.text[:300]
    assert seconds < MOST_SECONDS
    if expected >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
    else:
        assert answer.json()["ok"] is False


@pytest.mark.safety("S3")
async def test_a_body_that_says_no_length_is_bounded_too(service: Running) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 1024 * 1024

    answer = await service.http.post(CHECK, content=endless(), headers=JSON)
    assert answer.status_code == 413


async def test_a_body_that_does_not_come_is_given_up(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access.limits, "BODY_SECONDS", 0.02)

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    answer = await service.http.post(CHECK, content=never(), headers=JSON)
    assert answer.status_code == 408


@pytest.mark.safety("S10")
async def test_errors_echo_nothing_of_the_request(service: Running) -> None:
    answer = await service.http.post(CHECK, content=b'{"x": 9999999999999999999999, "y": "s3cret"}', headers=JSON)
    assert "s3cret" not in answer.text
    assert "Traceback" not in answer.text
    named = await service.http.get("/api/v1/graphs/%3Cscript%3E")
    assert named.status_code == 422
    assert "script" not in named.text


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)


@given(VALUES)
def test_plain_json_is_read_as_the_standard_library_reads_it(value: object) -> None:
    text = json.dumps(value)
    assert body.parse(text) == json.loads(text)


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
@pytest.mark.safety("S3")
def test_any_bytes_are_a_value_or_a_typed_error(data: bytes) -> None:
    try:
        value = body.parse(data)
    except InvalidInput:
        return
    json.dumps(value, allow_nan=False).encode()


def test_limits_name_what_they_bound() -> None:
    assert limits.TABLE["body_bytes"] == 32 * 1024 * 1024
    assert limits.TABLE["nodes"] == 2000
