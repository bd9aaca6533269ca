"""Forms: parts are read unchanged, however the body is split; bombs get their codes; a cookie is not accepted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import time
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.yardstick import fastest_answer
from tests.unit.service.conftest import Running
from walkgraph.errors import InvalidInput
from walkgraph.service.access import access
from walkgraph.service.http import limits, multipart
from walkgraph.service.http.body import BadForm, BodyTooLarge
from walkgraph.service.http.multipart import Form, Part, read_body

KIND = "multipart/form-data; boundary=line"
PATH = "/v1/tasks/shapes/text_to_image"
OWN = "http://127.0.0.1:8421"
MOST_SECONDS = 1.5


async def pieces(data: bytes, sizes: Iterable[int] = ()) -> AsyncIterator[bytes]:
    """`data` cut into pieces of these sizes, in turn; the rest follows."""
    position = 0
    for size in sizes:
        yield data[position : position + size]
        position += size
    yield data[position:]


def read(data: bytes, kind: str = KIND, sizes: Iterable[int] = ()) -> Form:
    return asyncio.run(read_body(kind, pieces(data, sizes)))


def part(disposition: str = 'form-data; name="a"', data: bytes = b"1", headers: str = "") -> bytes:
    return f"--line\r\nContent-Disposition: {disposition}\r\n{headers}\r\n".encode() + data + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--line--\r\n"


def written(parts: Iterable[Part], boundary: bytes) -> bytes:
    """As the standard asks, by hand: the reader's twin."""
    found = b""
    for one in parts:
        name = f'form-data; name="{one.name}"'
        name += f'; filename="{one.filename}"' if one.filename is not None else ""
        kind = f"content-TYPE: {one.mime}; x=y\r\n" if one.mime else ""
        found += b"--" + boundary + f"\r\nContent-Disposition: {name}\r\n{kind}\r\n".encode() + one.data + b"\r\n"
    return found + b"--" + boundary + b"--\r\n"


# ── what was put in comes out ───────────────────────────────────────────────────────────────────

NAMES = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters='"\\;'), min_size=1, max_size=12)
# Much of what is drawn looks like a delimiter, and none is.
DATA = st.lists(st.sampled_from([b"\r", b"\n", b"-", b"--", b"\r\n--", b"\r\n--lin", b"x", b"\x00\xff"])).map(b"".join)
PARTS = st.builds(Part, NAMES, DATA, st.none() | NAMES, st.sampled_from(["", "image/png", "application/json"]))


@given(st.lists(PARTS, max_size=6), st.lists(st.integers(0, 9), max_size=60))
def test_what_was_put_in_comes_out_whatever_the_pieces(parts: list[Part], sizes: list[int]) -> None:
    if not parts:
        assert read(b"--line--\r\n", sizes=sizes) == Form(())
        return
    assert read(written(parts, b"line"), sizes=sizes) == Form(tuple(parts))


@given(st.binary(max_size=120), st.lists(st.integers(0, 9), max_size=20))
def test_any_bytes_are_a_form_or_a_typed_error(data: bytes, sizes: list[int]) -> None:
    named = part('form-data; name="a"; ' + data.decode("latin-1"))
    for body in (data, b"--line\r\n" + data, form(part(), data), named):
        with contextlib.suppress(BadForm, BodyTooLarge):
            read(body, sizes=sizes)


@given(st.text(st.characters(max_codepoint=255), max_size=90))
def test_any_content_type_is_one_or_a_typed_error(boundary: str) -> None:
    try:
        read(form(part()), f"multipart/form-data; boundary={boundary}")
    except BadForm:
        return
    assert boundary.strip().partition(";")[0].strip().strip('"') == "line"


def test_pieces_of_one_byte_are_one_form() -> None:
    data = written([Part("a", os.urandom(5000), "x.png", "image/png"), Part("b", b"")], b"line")
    assert read(data, sizes=[1] * len(data)) == read(data)


def test_a_form_is_asked_by_name() -> None:
    found = Form((Part("a", b"1"), Part("b[]", b"2"), Part("a", b"\xff"), Part("c", "é".encode())))
    assert found.names == ("a", "b[]", "c")
    assert [p.data for p in found.named("a", "b[]")] == [b"1", b"2", b"\xff"]
    assert found.one("nothing") is None
    only = found.one("c")
    assert only is not None
    assert only.text == "é"
    with pytest.raises(BadForm, match="2 times"):
        found.one("a")
    with pytest.raises(BadForm, match="UTF-8"):
        _ = found.parts[2].text


def test_file_names_are_told_and_nothing_else() -> None:
    names = ["../../etc/passwd", "C:\\x\\y.png", "a" * 1000, "", "x\x01y"]
    found = read(form(*(part(f'form-data; name="a"; filename="{name}"') for name in names)))
    assert [p.filename for p in found.parts] == ["../../etc/passwd", "y.png", "a" * 200, "", "x\x01y"]


# ── bombs ───────────────────────────────────────────────────────────────────────────────────────

BOMBS: dict[str, tuple[Callable[[], bytes], str, type[InvalidInput]]] = {
    "nothing": (lambda: b"", KIND, BadForm),
    "no boundary": (lambda: form(part()), "multipart/form-data", BadForm),
    "an empty boundary": (lambda: form(part()), 'multipart/form-data; boundary=""', BadForm),
    "a long boundary": (lambda: form(part()), f"multipart/form-data; boundary={'x' * 71}", BadForm),
    "a boundary with a line": (lambda: form(part()), 'multipart/form-data; boundary="a\rb"', BadForm),
    "another boundary": (lambda: form(part()), "multipart/form-data; boundary=other", BadForm),
    "another type": (lambda: form(part()), "multipart/mixed; boundary=line", BadForm),
    "JSON": (lambda: b"{}", KIND, BadForm),
    "a text before": (lambda: b"hello\r\n" + form(part()), KIND, BadForm),
    "truncated in its data": (lambda: part(data=b"x" * 100)[:-20], KIND, BadForm),
    "truncated in its headers": (lambda: part()[:20], KIND, BadForm),
    "without its end": (part, KIND, BadForm),
    "without a disposition": (lambda: b"--line\r\nContent-Type: x/y\r\n\r\n1\r\n--line--", KIND, BadForm),
    "without headers": (lambda: b"--line\r\n\r\n1\r\n--line--", KIND, BadForm),
    "without a name": (lambda: form(part("form-data")), KIND, BadForm),
    "with an empty name": (lambda: form(part('form-data; name=""')), KIND, BadForm),
    "an attachment": (lambda: form(part('attachment; name="a"')), KIND, BadForm),
    "an unprintable name": (lambda: form(part('form-data; name="a\x01"')), KIND, BadForm),
    "a long name": (lambda: form(part(f'form-data; name="{"a" * 201}"')), KIND, BadForm),
    "a name that is not UTF-8": (lambda: form(part()).replace(b'"a"', b'"\xff"'), KIND, BadForm),
    "two dispositions": (lambda: form(part(headers='content-disposition: form-data; name="b"\r\n')), KIND, BadForm),
    "base64": (lambda: form(part(headers="Content-Transfer-Encoding: base64\r\n")), KIND, BadForm),
    "nested": (lambda: form(part(headers="Content-Type: Multipart/Mixed; boundary=b\r\n")), KIND, BadForm),
    "9 headers": (lambda: form(part(headers="".join(f"x-{i}: 1\r\n" for i in range(8)))), KIND, BadForm),
    "a huge header": (lambda: form(part(headers=f"x: {'1' * 5000}\r\n")), KIND, BadForm),
    "a header without end": (lambda: b"--line\r\nx: " + b"1" * 8_000_000, KIND, BadForm),
    "a header's name without end": (lambda: b"--line\r\n" + b"x" * 8_000_000, KIND, BadForm),
    "257 files": (lambda: form(*[part('form-data; name="a"; filename="b"')] * 257), KIND, BodyTooLarge),
    "257 fields": (lambda: form(*[part()] * 257), KIND, BodyTooLarge),
    "1e6 parts": (lambda: form(*[part()] * 1_000_000), KIND, BodyTooLarge),
    "1e6 delimiters": (
        lambda: form(part('form-data; name="a"; filename="b"', b"\r\n--linex" * 1_000_000)),
        KIND,
        BodyTooLarge,
    ),
    "a huge field": (lambda: form(part(data=b"x" * 4_194_305)), KIND, BodyTooLarge),
    "64 MiB and a bit": (
        lambda: form(part('form-data; name="a"; filename="b"', b"\r\n-" * (64 * 1024 * 1024 // 3))),
        KIND,
        BodyTooLarge,
    ),
}


@pytest.mark.safety("S3")
@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str) -> None:
    make, kind, expected = BOMBS[name]
    data = make()
    began = time.process_time()
    with pytest.raises(expected) as raised:
        read(data, kind, sizes=[65_536] * (len(data) // 65_536))
    assert time.process_time() - began < MOST_SECONDS
    assert len(str(raised.value)) < 200


def test_the_limits_themselves_fit() -> None:
    field = part(data=b"x" * limits.FORM_FIELD_BYTES)
    files = [part('form-data; name="a"; filename="b"')] * limits.FORM_FILES
    found = read(form(field, *files, *[part()] * (limits.FORM_FIELDS - 1)))
    assert len(found.parts) == limits.FORM_FILES + limits.FORM_FIELDS
    whole = limits.FORM_BYTES - len(form(part('form-data; name="a"; filename="b"', b"")))
    assert len(read(form(part('form-data; name="a"; filename="b"', b"x" * whole))).parts[0].data) == whole


def test_single_bytes_in_many_pieces_take_no_memory_of_their_own() -> None:
    """100 forms of 1e6 bytes, each byte by itself as far as the reader is asked: it keeps one form at most."""
    size = 1_000_000

    async def bytewise() -> AsyncIterator[bytes]:
        yield b'--line\r\nContent-Disposition: form-data; name="a"; filename="b"\r\n\r\n'
        for _ in range(size):
            yield b"x"
        yield b"\r\n--line--"

    async def again(times: int) -> None:
        for _ in range(times):
            assert len((await read_body(KIND, bytewise())).parts[0].data) == size

    asyncio.run(again(1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    asyncio.run(again(3))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 8 * 1024 * 1024


# ── what the service lets through ───────────────────────────────────────────────────────────────


async def test_forms_are_taken_where_a_path_says_so(service: Running) -> None:
    headers = {"Content-Type": KIND}
    for path in ("/v1/images/edits", PATH):
        answer = await service.http.post(path, content=form(part()), headers=headers)
        assert answer.status_code not in (401, 403, 415), path
        assert (await service.anybody.post(path, content=form(part()), headers=headers)).status_code == 401
    for method, path in (
        ("PUT", PATH),
        ("PATCH", PATH),
        ("DELETE", PATH),
        ("POST", "/v1/tasks/shapes"),
        ("POST", "/v1/tasks/shapes/text_to_image/x"),
        ("POST", "/V1/images/edits"),
        ("POST", "/v1/images/edits/"),
        ("POST", "/v1/images/generations"),
        ("POST", "/api/v1/plans"),
    ):
        answer = await service.http.request(method, path, content=form(part()), headers=headers)
        assert answer.status_code == 415, (method, path)
    for kind in ("multipart/form-dat", "multipart/mixed; boundary=line", "x; multipart/form-data; boundary=line"):
        answer = await service.http.post(PATH, content=form(part()), headers={"Content-Type": kind})
        assert answer.status_code == 415, kind
    doubled = [("Content-Type", KIND), ("Content-Type", KIND)]
    assert (await service.http.post(PATH, content=form(part()), headers=doubled)).status_code == 415


async def test_a_page_sends_no_forms(service: Running) -> None:
    made = (await service.http.post("/api/v1/studio/codes", json={})).json()
    cookie = (await service.anybody.get(made["path"])).headers["set-cookie"].partition(";")[0]
    service.anybody.cookies.clear()
    for path in ("/v1/images/edits", PATH):
        for origin, status in ((OWN, 403), ("http://evil.example", 403), ("null", 403), (None, 401)):
            headers = {"Cookie": cookie, "Content-Type": KIND} | ({"Origin": origin} if origin else {})
            answer = await service.anybody.post(path, content=form(part()), headers=headers)
            assert answer.status_code == status, (path, origin)
        headers = {"Cookie": cookie, "Content-Type": "application/json", "Origin": OWN}
        answer = await service.anybody.post(path, content=b"{}", headers=headers)
        assert answer.status_code not in (401, 403, 415)


async def test_a_form_may_be_larger_and_slower_than_json(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b'--line\r\nContent-Disposition: form-data; name="a"; filename="b"\r\n\r\n'
        for _ in range(70):
            yield b"x" * 1024 * 1024

    async def never() -> AsyncIterator[bytes]:
        yield b"--line\r\n"
        await asyncio.Event().wait()

    path, headers = "/v1/images/edits", {"Content-Type": KIND}
    said = {**headers, "Content-Length": str(limits.FORM_BYTES + 1)}
    assert (await service.http.post(path, content=b"x", headers=said)).status_code == 413
    ask = partial(service.http.post, path, content=endless(), headers=headers)
    answer, _ = await fastest_answer(ask, 5)
    assert answer.status_code == 413
    assert str(limits.FORM_BYTES) in answer.text
    monkeypatch.setattr(access.limits, "FORM_SECONDS", 0.02)
    assert (await service.http.post(path, content=never(), headers=headers)).status_code == 408


def test_paths_that_take_forms_are_posts_of_media() -> None:
    for path in ("/v1/images/edits", "/v1/tasks/a/b"):
        assert multipart.PATHS.fullmatch(path)
    for path in ("/v1/tasks/a/b/", "/v1/tasks/a/b/c", "/v1/tasks//b", "/v1/images/edits\n", "/x/v1/images/edits"):
        assert not multipart.PATHS.fullmatch(path)
