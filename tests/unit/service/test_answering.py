"""A task's request as a form, and its answer as what the client accepts."""

from __future__ import annotations

import base64
import email
import json
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.unit.service.conftest import Running
from tests.unit.service.fakes import PNG
from tests.unit.service.sockets import connect
from tests.unit.service.test_frames import IN_JSON, REQUEST, STATE
from walkgraph.client.events import EventReader, PartReader
from walkgraph.service.runs.answering import EVENTS, JSON, accepted
from walkgraph.wire import messages as m

DRAW = "/v1/tasks/shapes/text_to_image"
PROMPT = {"inputs": {"prompt": "a red circle"}}


@pytest.fixture
async def reach(service: Running) -> Running:
    await service.deploy()
    await service.deploy("reach", "reach_one_cpu")
    return service


def submits(running: Running, which: int = 1) -> list[m.Submit]:
    return [message for message in running.fleet.started[which].sent if isinstance(message, m.Submit)]


async def test_a_form_of_a_request_and_its_frames_is_the_request_in_json(reach: Running) -> None:
    request = {key: value for key, value in REQUEST.items() if key != "frames"}
    parts = {"request": (None, json.dumps(request)), "0": ("state.bin", STATE), "1": ("camera.png", PNG)}
    for answer in (
        await reach.http.post("/v1/tasks/reach/act", files=parts),
        await reach.http.post("/v1/tasks/reach/act", json=IN_JSON),
    ):
        assert answer.status_code == 200, answer.text
    assert submits(reach)[0].inputs == submits(reach)[1].inputs
    assert submits(reach)[0].params == submits(reach)[1].params == {"seed": 5}


async def test_a_form_by_the_names_of_the_inputs_is_too(reach: Running) -> None:
    parts: list[tuple[str, Any]] = [
        ("camera", ("camera.png", PNG)),
        ("instruction", (None, "reach the red ball")),
        ("state", (None, "[0.4, -0.8]")),
        ("params", (None, '{"seed": 5}')),
        ("session", (None, "arm")),
        ("priority", (None, "3")),
    ]
    answer = await reach.http.post("/v1/tasks/reach/act", files=parts)
    assert answer.status_code == 200, answer.text
    found = submits(reach)[0]
    assert found.inputs["state"] == (m.InlineTensor(dtype="float32", shape=(2,), data=STATE),)
    assert found.inputs["camera"] == (m.Blob(data=PNG),)
    assert (found.params, found.session, found.priority) == ({"seed": 5}, "arm", 3)
    many = [("image", ("a.png", PNG)), ("image", ("b.png", PNG + b"2")), ("instruction", (None, "mix"))]
    assert (await reach.http.post("/v1/tasks/shapes/edit", files=many)).status_code == 200
    assert submits(reach, 0)[0].inputs["image"] == (m.Blob(data=PNG), m.Blob(data=PNG + b"2"))


FAULTY: list[tuple[dict[str, Any], int]] = [
    ({"request": (None, json.dumps({"inputs": REQUEST["inputs"]})), "0": ("s", STATE)}, 422),
    ({"request": (None, json.dumps(IN_JSON)), "0": ("s", STATE)}, 422),
    ({"request": (None, json.dumps(IN_JSON)), "2": ("s", STATE)}, 422),
    ({"request": (None, "{"), "0": ("s", STATE)}, 400),
    ({"request": (None, "[]")}, 422),
    ({"camera": ("s", PNG), "state": (None, "0.4 -0.8")}, 400),
    ({"camera": ("s", PNG), "instruction": (None, b"\xff")}, 400),
    ({"camera": ("s", PNG), "instruction": (None, "x"), "state": (None, "[1, 2]"), "cheese": (None, "1")}, 422),
]


async def test_a_faulty_form_is_refused(reach: Running) -> None:
    for parts, status in FAULTY:
        answer = await reach.http.post("/v1/tasks/reach/act", files=parts)
        assert answer.status_code == status, (parts, answer.text)
    assert submits(reach) == []


async def test_a_form_that_is_sent_again_gets_the_run_of_the_first(reach: Running) -> None:
    def ask(data: bytes) -> Any:
        parts = {"image": ("a.png", data), "instruction": (None, "mix")}
        return reach.http.post("/v1/tasks/shapes/edit", files=parts, headers={"Idempotency-Key": "one"})

    first, again, other = [await ask(data) for data in (PNG, PNG, PNG + b"2")]
    assert first.json() == again.json()
    assert len(submits(reach, 0)) == 1
    assert other.status_code == 422
    assert other.json()["errors"][0]["code"] == "idempotency_conflict"


async def test_a_picture_comes_without_base64(reach: Running) -> None:
    for accept in ("image/png", "image/*", "application/xml, image/*;q=0.9, */*;q=0.1", "audio/wav, image/png"):
        answer = await reach.http.post(DRAW, json=PROMPT, headers={"Accept": accept})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "image/png"
        assert answer.headers["x-walkgraph-output"] == "image", "the first, not its previews"
        assert answer.headers["x-walkgraph-seed"] == "7"
        assert answer.content == PNG
    text = await reach.http.post(DRAW, json=PROMPT, headers={"Accept": "audio/wav, */*;q=0.1"})
    assert text.headers["content-type"] == JSON, "what is accepted otherwise"


async def test_what_can_not_be_had_is_said(reach: Running) -> None:
    nothing = await reach.http.post(DRAW, json=PROMPT, headers={"Accept": "application/xml"})
    assert nothing.status_code == 406
    assert submits(reach, 0) == [], "nothing was run for it"
    sound = await reach.http.post(DRAW, json=PROMPT, headers={"Accept": "audio/*"})
    assert sound.status_code == 406
    assert "`image`" in sound.json()["detail"]


async def test_all_outputs_come_in_parts(reach: Running) -> None:
    for kind in ("multipart/mixed", "multipart/form-data"):
        answer = await reach.http.post(DRAW, json=PROMPT, headers={"Accept": kind})
        assert answer.status_code == 200, answer.text
        head = f"Content-Type: {answer.headers['content-type']}\r\n\r\n".encode()
        parts = email.message_from_bytes(head + answer.content).get_payload()
        assert answer.headers["content-type"].startswith(kind)
        result = json.loads(parts[0].get_payload(decode=True))
        assert result["frames"] == 2
        assert result["outputs"]["image"] == [{"type": "image", "mime": "image/png", "frame": 1}]
        assert [part.get_content_type() for part in parts[1:]] == ["image/png"] * 2
        assert [part.get_param("name", header="content-disposition") for part in parts[1:]] == ["0", "1"]
        assert b"\r\n\r\n" + PNG + b"\r\n--" in answer.content


async def test_events_come_in_parts_with_their_frames(reach: Running) -> None:
    body, accept = {**PROMPT, "stream": True}, {"Accept": "multipart/mixed"}
    lines = await reach.http.post(DRAW, json=body, headers={"Accept": EVENTS})
    assert lines.headers["content-type"].startswith(EVENTS)
    answer = await reach.http.post(DRAW, json=body, headers=accept)
    assert answer.status_code == 200, answer.text
    kind, _, boundary = answer.headers["content-type"].partition("; boundary=")
    assert kind == "multipart/mixed"
    reader = EventReader()
    naive = [event for line in lines.text.splitlines() for event in reader.take(line)]
    found = list(PartReader(boundary).take(answer.content))
    assert [event.name for event in found] == [event.name for event in naive]
    assert [event.name for event in found][-1] == "done"
    pictures = 0
    for one, other in zip(found, naive, strict=True):
        if one.frames:
            pictures += 1
            assert bytes(one.frames[one.data["value"]["frame"]]) == base64.b64decode(other.data["value"]["data"])
    assert pictures == 2


async def test_a_tensor_comes_as_its_bytes(reach: Running) -> None:
    numbers = np.arange(6, dtype=np.float16)
    fake = reach.fleet.started[1]

    def answer(run: m.Submit) -> None:
        tensor = m.InlineTensor(dtype="float16", shape=(2, 3), data=numbers.tobytes())
        fake.say(m.Accepted(run=run.run, seed=9))
        fake.say(m.Output(run=run.run, name="actions", index=0, value=tensor, modality="actions"))
        fake.say(m.Finished(run=run.run, read=12, found=4, loops=(LOOP,)))

    fake._begin = answer  # type: ignore[method-assign]
    got = await reach.http.post("/v1/tasks/reach/act", json=IN_JSON, headers={"Accept": "application/octet-stream"})
    assert got.status_code == 200, got.text
    assert (got.headers["x-walkgraph-dtype"], got.headers["x-walkgraph-shape"]) == ("float16", "2,3")
    assert got.content == numbers.tobytes()
    told = (await reach.http.post("/v1/tasks/reach/act", json=IN_JSON)).json()
    assert told["usage"] == {
        "read": 12,
        "cached_tokens": 4,
        "loops": [{"walk": "act", "loop": "denoise", "iterations": 10, "reason": "bound"}],
    }
    assert told["outputs"]["actions"][0]["data"] == numbers.reshape(2, 3).tolist()
    odd = {**IN_JSON, "inputs": {**IN_JSON["inputs"], "instruction": "reach the purple elephant"}}
    told = (await reach.http.post("/v1/tasks/reach/act", json=odd)).json()
    assert told["usage"]["unknown_words"] == ["elephant"]


async def test_a_file_comes_as_an_attachment(reach: Running) -> None:
    archive = b"PK\x05\x06" + bytes(18)
    fake = reach.fleet.started[1]

    def answer(run: m.Submit) -> None:
        fake.say(m.Accepted(run=run.run, seed=9))
        fake.say(m.Output(run=run.run, name="preview", index=0, value=m.Blob(data=PNG), modality="image"))
        fake.say(m.Output(run=run.run, name="actions", index=0, value=m.Blob(data=archive), modality="bytes"))
        fake.say(m.Finished(run=run.run))

    fake._begin = answer  # type: ignore[method-assign]
    for kind in ("application/zip", "application/octet-stream"):
        got = await reach.http.post("/v1/tasks/reach/act", json=IN_JSON, headers={"Accept": kind})
        assert got.status_code == 200, got.text
        assert (got.content, got.headers["content-type"]) == (archive, kind)
        assert got.headers["content-disposition"] == 'attachment; filename="actions.zip"'
    told = (await reach.http.post("/v1/tasks/reach/act", json=IN_JSON)).json()
    assert told["outputs"]["actions"][0]["type"] == "bytes"
    assert told["outputs"]["actions"][0]["mime"] == "application/zip"


LOOP = m.LoopEnd(walk="act", loop="denoise", iterations=10, reason="bound")


@pytest.mark.parametrize(
    ("accept", "kinds"),
    [
        ("", (JSON,)),
        ("*/*", (JSON,)),
        ("text/event-stream", (EVENTS,)),
        ("application/json;q=0.5, text/event-stream", (EVENTS, JSON)),
        ("image/png;q=0, */*", (JSON,)),
        ("IMAGE/PNG ; q=nonsense , text/plain;q=0.2", ("image/png", "text/plain")),
        ("text/html", ()),
        ("image/png;q=0", ()),
        (",".join(["a/b"] * 500 + ["*/*"]), ()),
    ],
)
def test_what_a_client_accepts(accept: str, kinds: tuple[str, ...]) -> None:
    assert tuple(one.kind for one in accepted(accept)) == kinds


async def test_what_a_request_says_of_itself_is_kept_on_every_way(reach: Running) -> None:
    """Priority, deadline, seed and session over JSON, events, forms and sockets alike."""
    extra = {"priority": 7, "deadline": 12.5, "params": {"seed": 42, "steps": 3}, "session": "arm"}
    body = {**IN_JSON, **extra}
    path = "/v1/tasks/reach/act"
    for headers in ({}, {"Accept": EVENTS}):
        assert (await reach.http.post(path, json=body, headers=headers)).status_code == 200
    form = {"request": (None, json.dumps(body))}
    assert (await reach.http.post(path, files=form)).status_code == 200
    for at, sent in (("/ws" + path, body), ("/ws/v1/sessions/reach/act?session=arm", {**body, "session": None})):
        async with connect(reach.app, at) as socket:
            await socket.send({key: value for key, value in sent.items() if value is not None})
            while (await socket.receive())["event"] != "done":
                pass
    assert len(submits(reach)) == 5
    for found in submits(reach):
        assert (found.priority, found.deadline, found.session) == (7, 12.5, "arm")
        assert found.params == {"seed": 42, "steps": 3}
    assert base64.b64decode(IN_JSON["inputs"]["camera"]["data"]) == PNG


async def test_a_result_in_msgpack_has_its_bytes(reach: Running) -> None:
    answer = await reach.http.post(DRAW, json=PROMPT, headers={"Accept": "application/msgpack"})
    assert answer.headers["content-type"] == "application/msgpack"
    told, wanted = msgspec.msgpack.decode(answer.content), (await reach.http.post(DRAW, json=PROMPT)).json()
    assert told.keys() == wanted.keys()
    (picture,) = told["outputs"]["image"]
    assert picture == {"type": "image", "mime": "image/png", "data": PNG}


async def test_an_output_that_is_no_tensor_is_in_no_file_of_tensors(reach: Running) -> None:
    accepts = {"Accept": "application/x-safetensors"}
    answer = await reach.http.post(DRAW, json=PROMPT, headers=accepts)
    assert answer.status_code == 406
    assert "`image`" in answer.json()["detail"]
    answer = await reach.http.post(DRAW, json=PROMPT, headers={"Accept": "application/x-safetensors, image/png;q=0.5"})
    assert answer.content == PNG
