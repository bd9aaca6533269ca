"""Conversations through the official client's realtime connection, with models that speak and models that look."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import openai
import pytest
from PIL import Image, ImageDraw
from websockets.exceptions import InvalidStatus

from tests.support.listening import heard
from tests.support.serving import Service
from tests.support.yardstick import patience
from tests.system.openai.conftest import CIRCLES

pytestmark = pytest.mark.filterwarnings(
    # The official client that blocks opens its sockets in a way that websockets 17 advises against.
    r"ignore:connect\(\) must be used as a context manager:DeprecationWarning"
)

TEXT = "A heron stands in the river."
ASKED = {"seed": 3, "max_output_tokens": 49}
LONG: Any = {"seed": 3, "max_output_tokens": 8000, **CIRCLES}
"""Runs until it is cancelled."""
PCM = base64.b64encode(bytes(4800)).decode()


def circle() -> str:
    picture = Image.new("RGB", (64, 64), "white")
    ImageDraw.Draw(picture).ellipse((16, 16, 48, 48), fill="red")
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def seen(url: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": url}]}


@contextmanager
def talking(client: openai.OpenAI, model: str) -> Iterator[Any]:
    with client.realtime.connect(model=model) as connection:
        created = connection.recv()
        assert created.type == "session.created"
        yield connection


def until(connection: Any, kind: str) -> list[Any]:
    """Events up to the first of this kind; the client has made its own types of them. Fails if the response ends
    without one."""
    found = [connection.recv()]
    while found[-1].type != kind:
        assert found[-1].type not in {"error", "response.done"}, found[-1]
        found.append(connection.recv())
    return found


def test_a_speaker_speaks(running: Service, client: openai.OpenAI) -> None:
    with talking(client, "orpheus") as connection:
        connection.session.update(session={"type": "realtime", "audio": {"output": {"voice": "leo"}}})
        assert until(connection, "session.updated")[-1].session.audio.output.voice == "leo"
        connection.conversation.item.create(item=said(TEXT))
        connection.response.create(response={**ASKED, "metadata": {"turn": "1"}})
        events = until(connection, "response.done")
    kinds = list(dict.fromkeys(event.type for event in events))
    assert kinds == [
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.done",
    ]
    got = b"".join(base64.b64decode(e.delta) for e in events if e.type == "response.output_audio.delta")
    params = {"seed": 3, "max_tokens": 49, "voice": "leo"}
    with running.client() as native:
        result = native.run("orpheus", "speak", {"inputs": {"text": TEXT}, "params": params})
    wanted, _ = heard(base64.b64decode(result["outputs"]["audio"][0]["data"]))
    assert np.array_equal(np.frombuffer(got, "<i2"), wanted[:, 0])
    response = events[-1].response
    assert response.status in ("completed", "incomplete")
    assert response.metadata == {"turn": "1"}
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert response.usage.output_token_details.audio_tokens > 30


def test_one_that_looks_writes(client: openai.OpenAI) -> None:
    with talking(client, "shapes") as connection:
        connection.conversation.item.create(item=seen(circle()))
        connection.response.create(response={"output_modalities": ["text"], "max_output_tokens": 12})
        events = until(connection, "response.done")
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    [item] = events[-1].response.output
    assert deltas == item.content[0].text
    assert "circle" in deltas
    order = [event.type for event in events if event.type.endswith(".done")]
    assert order[1:] == [
        "response.output_text.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]


def test_texts_and_pictures_go_in_turn(client: openai.OpenAI) -> None:
    content = [{"type": "input_image", "image_url": circle()}, {"type": "input_text", "text": "What is it?"}]
    with talking(client, "bagel/image_to_text") as connection:
        connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        connection.response.create(response={"max_output_tokens": 5, "temperature": 0})
        done = until(connection, "response.done")[-1]
    assert done.response.status == "incomplete"
    assert done.response.status_details.reason == "max_output_tokens"
    assert done.response.usage.output_tokens == 5


async def test_a_response_is_cancelled(aio: openai.AsyncOpenAI) -> None:
    async with aio.realtime.connect(model="orpheus") as connection:
        await connection.recv()
        await connection.conversation.item.create(item=said(TEXT))  # type: ignore[arg-type]
        await connection.response.create(response=LONG)
        event: Any = await connection.recv()
        while event.type != "response.output_audio.delta":
            assert event.type != "response.done", event
            event = await connection.recv()
        await connection.response.create(event_id="again")
        await connection.response.cancel()
        codes: list[str | None] = []
        event = await connection.recv()
        while event.type != "response.done":
            codes += [event.error.code] if event.type == "error" else []
            event = await connection.recv()
    assert codes == ["conversation_already_has_active_response"]
    assert event.response.status == "cancelled"
    assert event.response.status_details.reason == "client_cancelled"


def test_a_client_that_leaves_ends_its_run(running: Service, client: openai.OpenAI) -> None:
    with running.client() as native:
        before = {row["id"] for row in native.runs("orpheus")}
        with talking(client, "orpheus") as connection:
            connection.conversation.item.create(item=said(TEXT))
            connection.response.create(response=LONG)
            until(connection, "response.output_audio.delta")
        deadline = time.monotonic() + patience(5)
        states = {"running"}
        while "running" in states and time.monotonic() < deadline:
            states = {row["state"] for row in native.runs("orpheus") if row["id"] not in before}
    assert states == {"cancelled"}


def test_items_are_kept_shown_and_deleted(client: openai.OpenAI) -> None:
    with talking(client, "shapes") as connection:
        connection.conversation.item.create(item={**seen(circle()), "id": "item_circle"})
        added = until(connection, "conversation.item.done")[0]
        assert (added.item.id, added.previous_item_id) == ("item_circle", None)
        connection.conversation.item.retrieve(item_id="item_circle")
        assert connection.recv().item.content[0].image_url == circle()
        connection.conversation.item.delete(item_id="item_circle")
        assert connection.recv().type == "conversation.item.deleted"
        connection.response.create()
        assert connection.recv().error.message.startswith("there is nothing to answer")


WRONG: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "turns by the server": (
        {"type": "session.update", "session": {"audio": {"input": {"turn_detection": {"type": "server_vad"}}}}},
        "session.audio.input.turn_detection",
        "turns are not detected here",
    ),
    "OpenAI's voice": (
        {"type": "session.update", "session": {"audio": {"output": {"voice": "marin"}}}},
        "session.audio.output.voice",
        "`tara`",
    ),
    "text of a speaker": (
        {"type": "session.update", "session": {"output_modalities": ["text"]}},
        "session.output_modalities",
        '`["audio"]`',
    ),
    "another format": (
        {"type": "session.update", "session": {"audio": {"output": {"format": {"type": "audio/pcma"}}}}},
        "session.audio.output.format.type",
        "24000 Hz",
    ),
    "tools": ({"type": "session.update", "session": {"tools": [{"type": "function"}]}}, "session.tools", "tools are"),
    "a picture": ({"type": "conversation.item.create", "item": seen("data:,")}, "item.content[0].type", "no image"),
    "sound": ({"type": "input_audio_buffer.commit"}, None, "takes no audio"),
    "no base64": ({"type": "input_audio_buffer.append", "audio": "?"}, "audio", "base64"),
    "no item": ({"type": "conversation.item.delete", "item_id": "item_1"}, "item_id", "no item"),
    "no turn": ({"type": "response.create"}, None, "nothing to answer"),
    "no response": ({"type": "response.cancel"}, None, "no such response"),
    "no event": ({"type": "transcription_session.update"}, "type", "there are `session.update`"),
}


def test_what_is_wrong_is_named_and_the_socket_stays_open(client: openai.OpenAI) -> None:
    with talking(client, "orpheus") as connection:
        for row, (event, param, words) in WRONG.items():
            connection.send({**event, "event_id": row})
            told = connection.recv()
            assert told.type == "error", row
            assert (told.error.event_id, told.error.param, told.error.type) == (row, param, "invalid_request_error")
            assert words in told.error.message, row
        connection.input_audio_buffer.append(audio=PCM)
        connection.input_audio_buffer.clear()
        assert connection.recv().type == "input_audio_buffer.cleared"


@pytest.mark.parametrize(
    ("model", "status", "code"),
    [("gpt-realtime", 404, "model_not_found"), ("reach", 400, "unsupported_route"), ("", 400, "invalid_value")],
)
def test_who_cannot_talk_refuses_the_handshake(model: str, status: int, code: str, client: openai.OpenAI) -> None:
    with pytest.raises(InvalidStatus) as refused, client.realtime.connect(model=model):
        pass
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body or b"")["error"]["code"] == code


def test_a_wrong_key_is_refused(client: openai.OpenAI) -> None:
    with (
        pytest.raises(InvalidStatus) as refused,
        client.with_options(api_key="sk-wrong").realtime.connect(model="orpheus"),
    ):
        pass
    assert refused.value.response.status_code == 401
