"""Lists show of a run its texts, its first text and a small picture, whichever route it came by."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from typing import Any

import pytest
from PIL import Image

from tests.unit.service.conftest import Running
from tests.unit.service.fakes import PNG
from walkgraph.ids import RunId
from walkgraph.service.runs import glimpses
from walkgraph.wire import messages as m

RUN = RunId("a" * 32)
DRAWN = {"deployment": "shapes", "task": "text_to_image", "request": {"inputs": {"prompt": "a red circle"}}}


def encoded(size: tuple[int, int], form: str = "PNG", mode: str = "RGB") -> bytes:
    made = io.BytesIO()
    Image.new(mode, size, "red").save(made, form)
    return made.getvalue()


def output(name: str, value: m.Value, modality: str = "", index: int = 0) -> m.Output:
    return m.Output(run=RUN, name=name, index=index, value=value, modality=modality)


def submit(**inputs: m.Value) -> m.Submit:
    given: Any = {name: (value,) for name, value in inputs.items()}
    return m.Submit(run=RUN, task="t", params={}, inputs=given)


def test_texts_are_told_and_media_are_not() -> None:
    given = submit(prompt=m.Small(value="a cat"), image=m.Blob(data=PNG), count=m.Small(value=3))
    assert list(glimpses.texts_of(given)) == ["a cat"]


def test_of_a_conversation_the_last_words_are_told() -> None:
    def turn(role: Any, *texts: str) -> m.Turn:
        return m.Turn(role=role, parts=tuple(m.Part(modality="text", value=m.Small(value=text)) for text in texts))

    turns = (turn("system", "be kind"), turn("user", "and now", "this one"), turn("assistant"))
    assert list(glimpses.texts_of(submit(messages=m.Conversation(turns=turns)))) == ["and now", "this one"]


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        ([], ""),
        (["", " "], ""),
        (["a\n  b", "", "c"], "a b · c"),
        (["x" * 200], "x" * 200),
        (["x" * 201], "x" * 199 + "…"),
        (["x" * 150, "y" * 150], "x" * 150 + " · " + "y" * 46 + "…"),
    ],
)
def test_texts_become_one_line(texts: list[str], line: str) -> None:
    assert glimpses.shortened(texts, " · ") == line


def test_the_first_text_is_told_whole_though_it_came_in_pieces() -> None:
    pieces = [output("text", m.Small(value=text)) for text in ("a ", "red\n", "circle")]
    assert glimpses.written([output("n", m.Small(value=3)), *pieces, output("more", m.Small(value="no"))]) == (
        "a red circle"
    )
    assert glimpses.written([output("image", m.Blob(data=PNG), "image")]) == ""


def test_the_picture_is_the_newest_of_the_first_output_and_a_preview_only_until_then() -> None:
    first, second, third = (encoded((8, side)) for side in (1, 2, 3))
    seen = [output("preview", m.Blob(data=first), "image")]
    assert glimpses.picture_of(seen) == first
    seen.append(output("preview", m.Blob(data=second), "image"))
    assert glimpses.picture_of(seen) == second
    seen += [output("image", m.Blob(data=third), "image"), output("mask", m.Blob(data=first), "image")]
    assert glimpses.picture_of(seen) == third
    assert glimpses.picture_of([output("all", m.Many(items=(m.Small(value=1), m.Blob(data=first))), "image")]) == first
    assert glimpses.picture_of([output("sound", m.Blob(data=b"RIFF0000WAVE"), "audio")]) is None
    assert glimpses.picture_of([output("file", m.Blob(data=first), "bytes")]) is None


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF"])
@pytest.mark.parametrize(("size", "small"), [((640, 320), (128, 64)), ((20, 10), (20, 10)), ((1, 1000), (1, 128))])
def test_a_small_picture_keeps_its_shape(form: str, size: tuple[int, int], small: tuple[int, int]) -> None:
    made = glimpses.small(encoded(size, form))
    assert made is not None
    with Image.open(io.BytesIO(made)) as picture:
        assert (picture.format, picture.size) == ("PNG", small)


def test_what_can_not_be_seen_through_stays_so() -> None:
    made = glimpses.small(encoded((300, 300), mode="RGBA"))
    assert made is not None
    with Image.open(io.BytesIO(made)) as picture:
        assert picture.mode == "RGBA"


@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n\x1a\n and no more", encoded((9, 9))[:40], b"<svg/>"])
def test_what_is_no_picture_has_none(data: bytes) -> None:
    assert glimpses.small(data) is None


async def test_runs_of_every_route_are_listed_with_prompt_and_picture(service: Running) -> None:
    await service.deploy()
    asked = {"inputs": {"prompt": "by task"}, "params": {"seed": 7}}
    assert (await service.http.post("/v1/tasks/shapes/text_to_image", json=asked)).status_code == 200
    by_run = {"deployment": "shapes", "task": "text_to_image", "request": {"inputs": {"prompt": "by run"}}}
    assert (await service.http.post("/api/v1/runs", json=by_run)).status_code == 202
    by_openai = {"model": "shapes", "prompt": "by OpenAI's route"}
    assert (await service.http.post("/v1/images/generations", json=by_openai)).status_code == 200
    listed = (await service.http.get("/api/v1/runs?deployment=shapes")).json()
    assert [row["glimpse"]["said"] for row in listed] == ["by OpenAI's route", "by run", "by task"]
    assert all(row["glimpse"]["pictured"] and row["glimpse"]["wrote"] == "a red circle" for row in listed)
    for row in listed:
        answer = await service.http.get(f"/api/v1/runs/{row['id']}/thumbnail")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
        with Image.open(io.BytesIO(answer.content)) as picture:
            assert picture.size == (48, 32)


async def test_a_run_without_a_picture_has_no_small_one(service: Running) -> None:
    await service.deploy()
    body = {"deployment": "shapes", "task": "text_to_image", "request": {"inputs": {"prompt": "p"}}}
    body["request"] |= {"params": {"seed": 13}}  # type: ignore[operator]
    run = (await service.http.post("/api/v1/runs", json=body)).json()
    assert run["glimpse"] == {"said": "p", "wrote": "", "pictured": False}
    answer = await service.http.get(f"/api/v1/runs/{run['id']}/thumbnail")
    assert (answer.status_code, "has made no picture" in answer.json()["detail"]) == (404, True)


async def test_a_key_sees_no_glimpse_of_others(service: Running) -> None:
    await service.deploy()

    async def headers(name: str) -> dict[str, str]:
        made = await service.http.post("/api/v1/keys", json={"name": name, "scopes": ["infer"]})
        return {"Authorization": f"Bearer {made.json()['secret']}"}

    mine, theirs = await headers("mine"), await headers("theirs")
    body = {"deployment": "shapes", "task": "text_to_image", "request": {"inputs": {"prompt": "secret"}}}
    run = (await service.anybody.post("/api/v1/runs", json=body, headers=mine)).json()["id"]
    listed = await service.anybody.get("/api/v1/runs", headers=mine)
    assert [row["glimpse"]["said"] for row in listed.json()] == ["secret"]
    assert (await service.anybody.get("/api/v1/runs", headers=theirs)).json() == []
    found = [await service.anybody.get(f"/api/v1/runs/{run}/thumbnail", headers=one) for one in (mine, theirs)]
    assert [answer.status_code for answer in found] == [200, 404]


async def test_pictures_made_small_together_take_turns(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take hundreds of megabytes while it is decoded."""
    await service.deploy()
    run = (await service.http.post("/api/v1/runs", json=DRAWN)).json()["id"]
    there, most, lock = 0, 0, threading.Lock()

    def slow(data: bytes) -> bytes:
        nonlocal there, most
        with lock:
            there += 1
            most = max(most, there)
        time.sleep(0.02)
        with lock:
            there -= 1
        return data

    monkeypatch.setattr(glimpses, "small", slow)
    path = f"/api/v1/runs/{run}/thumbnail"
    answers = await asyncio.gather(*(service.http.get(path) for _ in range(12)))
    assert {answer.status_code for answer in answers} == {200}
    assert 1 <= most <= glimpses.AT_ONCE
