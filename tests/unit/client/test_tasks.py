"""Tasks as functions, and their outputs as they come."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
from typing import Any

import httpx
import pytest

from tests.unit.client.service import (
    ACCEPTED,
    DONE,
    TASK,
    Memory,
    awaiting,
    blocking,
    either,
    events,
    output,
    streamed,
    text,
)  # fmt: skip
from walkgraph.client import ClientError, Event, Picture, ProblemError, Result, RunError, Text
from walkgraph.client.events import PartReader
from walkgraph.client.parts import ACCEPT, ACCEPT_EVENTS

KINDS = ("blocking", "awaiting")
DECLARED = httpx.Response(200, json=TASK)
PNG = b"\x89PNG\r\n\x1a\n--\r\n--not-the-boundary\r\n\r\n"
RESULT: dict[str, Any] = {
    "run": "r", "deployment": "shapes", "task": "draw", "seed": 7, "seconds": 0.5, "queued": 0.25, "times": [],
    "usage": {
        "read": 3,
        "loops": [
            {"walk": "draw", "loop": "denoise", "iterations": 4, "reason": "bound"},
            {"walk": "", "loop": "turns", "iterations": 2, "reason": "stop"},
        ],
    },
    "outputs": {"preview": [{"type": "image", "mime": "image/png", "frame": 1}], "text": [text("ab")],
                "image": [{"type": "image", "mime": "image/png", "frame": 0}]},
}  # fmt: skip
EVENTS = [
    ACCEPTED,
    output("preview", 0, {"type": "image", "mime": "image/png", "data": "AAAA"}),
    output("text", 0, text("a")),
    output("text", 1, text("b")),
    output("image", 0, {"type": "image", "mime": "image/png", "data": "AAAB"}),
    DONE,
]


def form(*parts: tuple[str, bytes]) -> httpx.Response:
    body = b"".join(
        b'--xyz\r\nContent-Disposition: form-data; name="%s"\r\nContent-Type: a/b\r\nContent-Length: %d\r\n\r\n%s\r\n'
        % (name.encode(), len(data), data)
        for name, data in parts
    )
    return httpx.Response(200, content=body + b"--xyz--\r\n", headers={"Content-Type": "multipart/mixed; boundary=xyz"})


def form_of(*told: tuple[str, dict[str, Any]]) -> httpx.Response:
    """The same events in parts, their pictures in frames."""
    parts: list[tuple[str, bytes]] = []
    for name, data in told:
        value = dict(data.get("value", {}))
        found = [base64.b64decode(value.pop("data"))] if "data" in value else []
        shown = {**data, "value": {**value, **({"frame": 0} if found else {})}} if value else data
        parts.append(("event", json.dumps({"event": name, "frames": len(found), **shown}).encode()))
        parts += [(str(number), frame) for number, frame in enumerate(found)]
        parts.append(("event", b'{"event":"heartbeat"}'))
    return form(*parts)


def called(kind: str, memory: Memory, **given: Any) -> Result:
    if kind == "blocking":
        with blocking(memory) as client:
            return client.task("shapes", "draw")(**given)

    async def call() -> Result:
        async with awaiting(memory) as client:
            return await (await client.task("shapes", "draw"))(**given)

    return asyncio.run(call())


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_is_called_by_names_and_answers_with_values(kind: str) -> None:
    answer = form(("result", json.dumps(RESULT).encode()), ("0", PNG), ("1", b""))
    memory = Memory([DECLARED, answer])
    result = called(kind, memory, prompt="a circle", steps=3, seed=7)
    assert memory.bodies == [{"inputs": {"prompt": "a circle"}, "params": {"steps": 3, "seed": 7}}]
    assert memory.asked[1].headers["Accept"] == ACCEPT
    assert (result.run, result.seed, result.seconds, result.queued) == ("r", 7, 0.5, 0.25)
    assert list(result.outputs) == ["image", "preview", "text"], "in the order of their declaration"
    assert result.picture().data == PNG
    assert result.picture("preview").data == b""
    assert result.text() == "ab"
    assert result["text"] == [Text("ab")]
    assert "image" in result
    assert "sound" not in result
    assert result.usage["read"] == 3
    assert result.reasons == {"draw.denoise": "bound", "turns": "stop"}
    with pytest.raises(LookupError, match="no sound came from this run"):
        result.sound()
    with pytest.raises(LookupError, match="nothing came from `film`; there are image"):
        result.picture("film")


@pytest.mark.parametrize("kind", KINDS)
def test_media_go_as_parts_of_a_form(kind: str) -> None:
    plain = {**RESULT, "outputs": {"text": [text("seen")]}}
    memory = Memory([DECLARED, httpx.Response(200, json=plain)])
    assert called(kind, memory, image=PNG).text() == "seen"
    request = memory.asked[1]
    assert request.headers["Content-Type"].startswith("multipart/form-data; boundary=")
    assert b'name="request"' in request.content
    assert b'{"inputs":{"image":{"type":"image","frame":0}},"params":{}}' in request.content
    assert b'name="0"; filename="0"' in request.content
    assert PNG in request.content


@pytest.mark.parametrize("broken", [b"", b"--xyz", b'--xyz\r\nname="result"\r\n\r\n{}', b"--xyz\r\n\r\n{\r\n--xyz--"])
def test_a_form_that_is_cut_is_no_answer(broken: bytes) -> None:
    answer = httpx.Response(200, content=broken, headers={"Content-Type": "multipart/mixed; boundary=xyz"})
    with pytest.raises(ClientError):
        called("blocking", Memory([DECLARED, answer]))


@pytest.mark.parametrize("told", [events, form_of])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_come_one_by_one_and_are_joined_at_the_end(kind: str, told: Any) -> None:
    memory = Memory([DECLARED, told(*EVENTS)])

    async def stream_of(client: Any) -> Any:
        task = await client.task("shapes", "draw")
        async with task.stream(prompt="a") as found:
            assert found.run == ""
            got = [one async for one in found]
        return got, found

    if kind == "blocking":
        with blocking(memory) as client, client.task("shapes", "draw").stream(prompt="a") as found:
            with pytest.raises(ClientError, match="not over"):
                _ = found.result
            got = list(found)
    else:
        got, found = asyncio.run(_within(memory, stream_of))
    assert [(one.name, one.index, one.iteration) for one in got] == [
        ("preview", 0, (0,)), ("text", 0, (0,)), ("text", 1, (1,)), ("image", 0, (0,)),
    ]  # fmt: skip
    assert (found.run, found.seed) == ("r", 7)
    assert found.result.text() == "ab"
    assert isinstance(found.result["image"][0], Picture)
    assert list(found.result.outputs) == ["image", "preview", "text"]
    assert found.result.picture("image").data == b"\x00\x00\x01"
    assert memory.bodies[0] == {"inputs": {"prompt": "a"}, "params": {}, "stream": True}
    assert memory.asked[1].headers["Accept"] == ACCEPT_EVENTS


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_events_in_parts_are_those_of_the_whole_form_however_it_is_cut(size: int) -> None:
    frames = [PNG, b"", b"--xyz\r\n" * 100]
    told = [("event", b'{"event":"output","frames":3,"name":"a"}'), *((str(k), one) for k, one in enumerate(frames))]
    whole = form(*told, ("event", b'{"event":"done"}')).content
    reader = PartReader("xyz")
    cut = [whole[at : at + size] for at in range(0, len(whole), size)]
    found = [event for piece in cut for event in reader.take(piece)]
    assert [(event.name, event.data) for event in found] == [("output", {"name": "a"}), ("done", {})]
    assert [bytes(frame) for frame in found[0].frames] == frames
    assert next(PartReader("xyz").take(whole)).frames == found[0].frames


def test_parts_that_are_none_are_refused() -> None:
    for broken in (b"--abc\r\n\r\n", b"--xyz\r\nContent-Type: a/b\r\n\r\n", bytes(5000)):
        with pytest.raises(ValueError, match="part of the answer"):
            list(PartReader("xyz").take(broken))


async def _within(memory: Memory, do: Any) -> Any:
    async with awaiting(memory) as client:
        return await do(client)


@pytest.mark.parametrize("kind", KINDS)
def test_events_are_told_as_they_are(kind: str) -> None:
    found = streamed(kind, Memory([events(*EVENTS)]), lambda client: client.follow_run("r"))
    assert [event.name for event in found] == ["accepted", "output", "output", "output", "output", "done"]
    assert found[0] == Event("accepted", {"run": "r", "seed": 7})


def test_a_run_that_fails_while_it_is_followed_raises() -> None:
    error = {"code": "node_error", "message": "`llm` failed", "node": "llm", "retryable": False}
    told = events(ACCEPTED, output("text", 0, text("a")), ("error", {"run": "r", "seconds": 1.0, "error": error}))
    with blocking(Memory([DECLARED, told])) as client, client.task("shapes", "draw").stream() as outputs:
        assert next(outputs).value == "a"
        with pytest.raises(RunError, match="`llm` failed") as failed:
            next(outputs)
    assert (failed.value.code, failed.value.node) == ("node_error", "llm")


class Held(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A stream that says when it is closed."""

    def __init__(self) -> None:
        self.closed = False

    def __iter__(self) -> Any:
        yield b'event: accepted\ndata: {"run": "r", "seed": 1}\n\n'
        raise KeyboardInterrupt

    async def __aiter__(self) -> Any:
        yield b'event: accepted\ndata: {"run": "r", "seed": 1}\n\n'
        await asyncio.Event().wait()

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


def test_who_leaves_early_or_interrupts_closes_the_connection() -> None:
    left, interrupted = Held(), Held()
    with blocking(Memory([httpx.Response(200, stream=left)])) as client:
        found = client.stream("d", "t", {})
        assert next(found).name == "accepted"
        assert not left.closed
        found.close()
        assert left.closed
    with blocking(Memory([httpx.Response(200, stream=interrupted)])) as client:
        found = client.stream("d", "t", {})
        next(found)
        with pytest.raises(KeyboardInterrupt):
            next(found)
        assert interrupted.closed


async def test_a_task_that_is_cancelled_closes_the_connection() -> None:
    held = Held()
    async with awaiting(Memory([httpx.Response(200, stream=held)])) as client:

        async def follow() -> None:
            async for _ in client.stream("d", "t", {}):
                pass

        task = asyncio.create_task(follow())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(task, 0.05)
    assert held.closed


def test_a_stream_that_is_refused_is_tried_again_and_then_told() -> None:
    busy = httpx.Response(503, json={"detail": "full", "code": "overloaded"}, headers={"Retry-After": "0"})
    memory = Memory([busy, events(*EVENTS)])
    assert len(streamed("blocking", memory, lambda client: client.stream("d", "t", {}))) == 6
    assert len({request.headers["Idempotency-Key"] for request in memory.asked}) == 1
    with pytest.raises(ProblemError, match="full"):
        streamed("awaiting", Memory([busy]), lambda client: client.stream("d", "t", {}))


def test_a_run_is_started_without_waiting() -> None:
    memory = Memory([DECLARED, httpx.Response(202, json={"id": "r"})])
    with blocking(memory) as client:
        assert client.task("shapes", "draw").start(prompt="a", record=True)["id"] == "r"
    request = {"inputs": {"prompt": "a"}, "params": {}, "record": True}
    assert memory.bodies == [{"deployment": "shapes", "task": "draw", "request": request}]


def test_a_task_shows_what_it_takes() -> None:
    with blocking(Memory([DECLARED])) as client:
        task = client.task("shapes", "draw")
    assert dict(task) == TASK
    assert json.loads(json.dumps(task)) == TASK
    shown = inspect.signature(task)
    assert str(shown).startswith("(*, prompt, ")
    assert "steps=50, cfg=1.0, seed=None" in str(shown)
    assert repr(client) == "Client('http://127.0.0.1:1')"
    assert repr(task) == ("<task shapes/draw(prompt, image, sound, state, steps=50, cfg=1.0) -> image, preview, text>")


def test_changes_of_a_deployment_are_followed_until_it_is_gone() -> None:
    answers = [httpx.Response(200, json={"revision": k}) for k in (1, 2)]
    memory = Memory([*answers, httpx.Response(404, json={"detail": "gone", "code": "not_found"})])
    with blocking(memory) as client:
        changes = client.follow_deployment("d")
        assert [next(changes)["revision"], next(changes)["revision"]] == [1, 2]
        with pytest.raises(ProblemError, match="gone"):
            next(changes)
    assert [request.url.query for request in memory.asked] == [b"", b"after=1", b"after=2"]


def test_documents_keep_their_etags() -> None:
    memory = Memory([httpx.Response(200, json={"name": "g"}, headers={"ETag": '"3"'})])
    assert either("awaiting", memory, "document", "graph", "g") == ({"name": "g"}, '"3"')
    either("blocking", memory, "put_document", "placement", "p", {}, '"3"')
    assert memory.asked[-1].headers["If-Match"] == '"3"'
    assert memory.asked[-1].url.path == "/api/v1/placements/p"
    with pytest.raises(TypeError, match="`graph`, `placement` or `blueprint`"):
        either("blocking", memory, "put_document", "graphs", "g", {})
