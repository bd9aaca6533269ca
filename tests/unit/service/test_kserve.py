"""The Open Inference Protocol: what a client of it finds, sends and gets."""

from __future__ import annotations

import base64
import json
import random
import struct
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from tests.system.test_service_fuzz import mutated
from tests.unit.service.conftest import Running
from tests.unit.service.fakes import PNG
from tests.unit.service.test_frames import IN_JSON, STATE
from walkgraph.errors import InvalidInput
from walkgraph.service.kserve import binary, protocol
from walkgraph.wire import messages as m

ACT = "/v2/models/reach/infer"
LENGTH = "inference-header-content-length"
INPUTS: list[dict[str, Any]] = [
    {"name": "camera", "shape": [1], "datatype": "BYTES", "data": [base64.b64encode(PNG).decode()]},
    {"name": "instruction", "shape": [1], "datatype": "BYTES", "data": ["reach the red ball"]},
    {"name": "state", "shape": [2], "datatype": "FP32", "data": [0.4, -0.8]},
]


@pytest.fixture
async def reach(service: Running) -> Running:
    await service.deploy()
    await service.deploy("reach", "reach_one_cpu")
    return service


def submits(running: Running, which: int = 1) -> list[m.Submit]:
    return [message for message in running.fleet.started[which].sent if isinstance(message, m.Submit)]


def with_bytes(head: dict[str, Any], *chunks: bytes) -> dict[str, Any]:
    """The request of a client that uses the binary extension."""
    text = json.dumps(head).encode()
    headers = {LENGTH: str(len(text)), "Content-Type": "application/octet-stream"}
    return {"content": text + b"".join(chunks), "headers": headers}


async def test_health_is_open_to_everybody_and_says_nothing_else(service: Running) -> None:
    assert (await service.anybody.get("/v2/health/live")).json() == {"live": True}
    assert (await service.anybody.get("/v2/health/ready")).json() == {"ready": True}
    assert (await service.anybody.get("/v2")).status_code == 401
    service.services.shutdown.begin()
    ready = await service.anybody.get("/v2/health/ready")
    assert (ready.status_code, ready.json()) == (503, {"ready": False})


async def test_a_deployment_is_a_model_and_its_tasks_are_versions(reach: Running) -> None:
    assert (await reach.http.get("/v2")).json()["name"] == "walkgraph"
    found = (await reach.http.get("/v2/models/reach")).json()
    assert (found["name"], found["versions"], found["platform"]) == ("reach", ["act", "episode"], "walkgraph")
    assert found["inputs"] == [
        {"name": "camera", "datatype": "BYTES", "shape": [-1]},
        {"name": "instruction", "datatype": "BYTES", "shape": [-1]},
        {"name": "state", "datatype": "FP32", "shape": [-1]},
    ]
    assert found["outputs"] == [{"name": "actions", "datatype": "FP32", "shape": [-1]}]
    other = (await reach.http.get("/v2/models/reach/versions/episode")).json()
    assert [(one["name"], one["datatype"]) for one in other["outputs"]][:2] == [("film", "BYTES"), ("reached", "BOOL")]
    for path in ("/v2/models/reach/ready", "/v2/models/reach/versions/act/ready"):
        assert (await reach.http.get(path)).json() == {"name": "reach", "ready": True}
    for path in ("/v2/models/nothing", "/v2/models/reach/versions/nothing", "/v2/models/nothing/ready", "/v2/nothing"):
        missing = await reach.http.get(path)
        assert missing.status_code == 404
        assert list(missing.json()) == ["error"]


async def test_json_and_bytes_are_the_same_request_and_answer(reach: Running) -> None:
    head = {"id": "mine", "parameters": {"steps": 3, "seed": 5, "session": "arm", "priority": 2}, "inputs": INPUTS}
    plain = await reach.http.post(ACT, json=head)
    assert plain.status_code == 200, plain.text
    chunks = [protocol.joined([PNG]), protocol.joined([b"reach the red ball"]), STATE]
    binary = [
        {**{k: v for k, v in one.items() if k != "data"}, "parameters": {"binary_data_size": len(chunk)}}
        for one, chunk in zip(INPUTS, chunks, strict=True)
    ]
    parameters = {**head["parameters"], "binary_data_output": True}
    got = await reach.http.post(ACT, **with_bytes({**head, "parameters": parameters, "inputs": binary}, *chunks))
    assert got.status_code == 200, got.text
    first, second = submits(reach)
    assert first.inputs == second.inputs
    assert first.params == second.params == {"steps": 3, "seed": 5}
    assert (first.session, first.priority) == ("arm", 2)
    assert plain.json()["id"] == "mine"
    assert (plain.json()["model_name"], plain.json()["model_version"]) == ("reach", "act")
    assert plain.json()["parameters"]["seed"] == 5


async def test_outputs_are_texts_media_and_numbers(reach: Running) -> None:
    fake = reach.fleet.started[1]
    half = np.array([1.5, -2], np.float32)
    words = (half.view(np.uint32) >> 16).astype(np.uint16)

    def answer(run: m.Submit) -> None:
        fake.say(m.Accepted(run=run.run, seed=9))
        for name, value in (
            ("film", m.Blob(data=PNG)),
            ("film", m.Blob(data=PNG + b"2")),
            ("reached", m.Small(value=True)),
            ("actions_taken", m.InlineTensor(dtype="bfloat16", shape=(2,), data=words.tobytes())),
            ("actions_taken", m.InlineTensor(dtype="bfloat16", shape=(2,), data=words.tobytes())),
        ):
            fake.say(m.Output(run=run.run, name=name, index=0, value=value, modality=""))
        loops = (
            m.LoopEnd(walk="act", loop="denoise", iterations=9, reason="bound"),
            m.LoopEnd(walk="", loop="turns", iterations=2, reason="stop"),
        )
        fake.say(m.Finished(run=run.run, read=12, found=4, loops=loops))

    fake._begin = answer  # type: ignore[method-assign]
    path = "/v2/models/reach/versions/episode/infer"
    inputs = [INPUTS[1]]
    told = (await reach.http.post(path, json={"inputs": inputs})).json()
    assert (told["parameters"]["read"], told["parameters"]["cached_tokens"]) == (12, 4)
    assert told["parameters"]["reason.act.denoise"] == "bound"
    assert told["parameters"]["reason.turns"] == "stop"
    film, reached, taken = told["outputs"]
    assert [base64.b64decode(one) for one in film["data"]] == [PNG, PNG + b"2"]
    assert (film["datatype"], film["shape"]) == ("BYTES", [2])
    assert (reached["datatype"], reached["data"]) == ("BOOL", [True])
    assert (taken["datatype"], taken["shape"], taken["data"]) == ("FP32", [2, 2], [1.5, -2.0, 1.5, -2.0])
    wanted = [{"name": "actions_taken"}, {"name": "film", "parameters": {"binary_data": True}}]
    got = await reach.http.post(path, json={"inputs": inputs, "outputs": wanted})
    length = int(got.headers[LENGTH])
    numbers, film = json.loads(got.content[:length])["outputs"]
    assert numbers["data"] == [1.5, -2.0, 1.5, -2.0]
    assert "data" not in film
    rest = got.content[length:]
    assert film["parameters"]["binary_data_size"] == len(rest)
    assert rest == struct.pack("<I", len(PNG)) + PNG + struct.pack("<I", len(PNG) + 1) + PNG + b"2"


def changed(number: int, **fields: Any) -> list[dict[str, Any]]:
    return [{**one, **fields} if i == number else one for i, one in enumerate(INPUTS)]


WRONG: tuple[Any, ...] = (
    {"inputs": []},
    {"inputs": INPUTS[:2]},
    {"inputs": [*INPUTS, INPUTS[0]]},
    {"inputs": changed(0, name="cheese")},
    {"inputs": changed(0, datatype="FP32")},
    {"inputs": changed(0, data=["%%%"])},
    {"inputs": changed(0, shape=[2])},
    {"inputs": changed(1, data=[3])},
    {"inputs": changed(2, datatype="BYTES")},
    {"inputs": changed(2, datatype="FP128")},
    {"inputs": changed(2, datatype="BF16")},
    {"inputs": changed(2, datatype="FP64")},
    {"inputs": changed(2, datatype="INT8")},
    {"inputs": changed(2, data=[1e300, 0])},
    {"inputs": changed(2, data=[[1], 2])},
    {"inputs": changed(2, data=[])},
    {"inputs": changed(2, data=["1", "2"])},
    {"inputs": changed(2, shape=[-1])},
    {"inputs": changed(2, shape=[1] * 33)},
    {"inputs": changed(2, parameters={"binary_data_size": 8})},
    {"inputs": INPUTS, "parameters": {"stpes": 3}},
    {"inputs": INPUTS, "parameters": {"steps": "3"}},
    {"inputs": INPUTS, "outputs": [{"name": "film"}]},
    {"inputs": INPUTS, "code": "import os"},
    [],
)


async def test_what_is_wrong_is_said_in_the_protocols_words(reach: Running) -> None:
    for body in WRONG:
        answer = await reach.http.post(ACT, json=body)
        assert answer.status_code == 400, (body, answer.text)
        assert list(answer.json()) == ["error"]
        assert len(answer.json()["error"]) > 10
    assert submits(reach) == []


async def test_bytes_that_do_not_add_up_are_refused(reach: Running) -> None:
    def named(size: Any) -> dict[str, Any]:
        state = {"name": "state", "shape": [2], "datatype": "FP32", "parameters": {"binary_data_size": size}}
        return {"inputs": [*INPUTS[:2], state]}

    for size, chunk in ((8, STATE[:7]), (8, STATE + b"x"), (7, STATE[:7]), (-1, b""), (True, b"x"), (2**40, STATE)):
        answer = await reach.http.post(ACT, **with_bytes(named(size), chunk))
        assert answer.status_code == 400, (size, answer.text)
    text = {**INPUTS[1], "parameters": {"binary_data_size": 8}}
    del text["data"]
    for chunk in (struct.pack("<I", 5) + b"four", struct.pack("<I", 4) + b"\xff\xff\xff\xff", b"\x00\x00\x00"):
        sized = {**text, "parameters": {"binary_data_size": len(chunk)}}
        answer = await reach.http.post(ACT, **with_bytes({"inputs": [INPUTS[0], sized, INPUTS[2]]}, chunk))
        assert answer.status_code == 400, answer.text
    for length in ("", "-1", "0", "9999999", "1" * 30, "x"):
        headers = {LENGTH: length, "Content-Type": "application/octet-stream"}
        assert (await reach.http.post(ACT, content=b"{}", headers=headers)).status_code == 400
    assert submits(reach) == []


async def test_json_needs_no_content_type(reach: Running) -> None:
    """NVIDIA's client sends none."""
    body = json.dumps({"inputs": INPUTS})
    assert (await reach.http.post(ACT, content=body)).status_code == 200
    assert (await reach.http.post("/v1/tasks/reach/act", content=body)).status_code == 415
    twice = [(LENGTH, "2"), (LENGTH, "2")]
    assert (await reach.http.post(ACT, content=body, headers=twice)).status_code == 415


async def test_such_bodies_are_taken_nowhere_else(reach: Running) -> None:
    octets = {"Content-Type": "application/octet-stream"}
    for path, headers in (
        (ACT, octets),
        ("/v1/tasks/reach/act", {**octets, LENGTH: "2"}),
        ("/api/v1/runs", {**octets, LENGTH: "2"}),
        (ACT, {"Content-Type": "text/plain", LENGTH: "2"}),
    ):
        assert (await reach.http.post(path, content=b"{}", headers=headers)).status_code == 415, (path, headers)


async def test_a_failed_run_has_the_protocols_error(reach: Running) -> None:
    answer = await reach.http.post(ACT, json={"inputs": INPUTS, "parameters": {"seed": 14}})
    assert answer.status_code == 400
    assert "velocity" in answer.json()["error"]


async def test_mutated_requests_are_served_or_refused(reach: Running) -> None:
    """Both surfaces that read tensors never run what they refuse."""
    dice = random.Random(20261122)
    native = {
        "inputs": {**IN_JSON["inputs"], "state": {"type": "state", "dtype": "float32", "shape": [2], "base64": ""}}
    }
    native["inputs"]["state"]["base64"] = base64.b64encode(STATE).decode()
    answered: dict[str, Counter[int]] = defaultdict(Counter)
    for _ in range(150):
        for path, body in ((ACT, {"inputs": INPUTS, "parameters": {"seed": 5}}), ("/v1/tasks/reach/act", native)):
            answer = await reach.http.post(path, json=mutated(body, dice))
            answered[path][answer.status_code] += 1
            assert answer.status_code in (200, 400, 422), answer.text
    for counts in answered.values():
        assert counts[200] > 5
        assert counts.total() - counts[200] > 50
    assert len(submits(reach)) == sum(counts[200] for counts in answered.values())


def test_many_empty_elements_are_refused_before_they_are_made() -> None:
    assert binary.elements(bytes(4 * 256), "/inputs/0") == [b""] * 256
    with pytest.raises(InvalidInput, match="256 elements"):
        binary.elements(bytes(4 * 257), "/inputs/0")
