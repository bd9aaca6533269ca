"""A request that a task which hears, sees and speaks can't serve ends with a typed error, on its own route and on
OpenAI's, beside requests that go on as if they were alone."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from tests.golden.qwen3_omni import whole
from tests.support.listening import heard
from tests.support.serving import Service
from tests.system.openai.conftest import qwen3_omni

NAME = "qwen3_omni"
PARAMS: dict[str, Any] = {
    "max_tokens": 4, "max_frames": 6, "context": 512, "seed": 3,
    "temperature": 0.0, "speech_temperature": 0.0, "code_temperature": 0.0,
}  # fmt: skip
WIDE = {**PARAMS, "context": 2048}
VIDEO = bytearray(whole.VIDEO.read_bytes())
VIDEO[len(VIDEO) // 3 : len(VIDEO) // 2] = bytes(len(VIDEO) // 2 - len(VIDEO) // 3)
INNER = ("Traceback", "walkgraph.", ".py", "Error(", "torch")
"""Words that tell of the inside of the service."""


@pytest.fixture(scope="module")
def http(plain: Service) -> Iterator[httpx.Client]:
    """The talker's guard bounds an answer by a frame for each of its tokens, and five seconds."""
    graph = qwen3_omni()
    graph["nodes"]["talker"]["params"]["frames_per_token"] = 1
    with plain.client() as client:
        client.deploy(graph, name=NAME)
    plain.wait_ready(NAME)
    headers = {"Authorization": f"Bearer {plain.token}"}
    with httpx.Client(base_url=plain.told["url"], headers=headers, timeout=300) as http:
        yield http
    plain.take_back(NAME)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def as_task(part: Any) -> dict[str, Any]:
    kind, data = part
    return {"type": "text", "text": data} if kind == "text" else {"type": kind, "data": encoded(data)}


def as_message(part: Any) -> dict[str, Any]:
    kind, data = part
    if kind == "text":
        return {"type": "text", "text": data}
    if kind == "audio":
        return {"type": "input_audio", "input_audio": {"data": encoded(data), "format": "wav"}}
    mime = "image/png" if kind == "image" else "video/mp4"
    return {"type": f"{kind}_url", f"{kind}_url": {"url": f"data:{mime};base64,{encoded(data)}"}}


def ask(http: httpx.Client, task: str, parts: list[Any], params: dict[str, Any]) -> httpx.Response:
    inputs: dict[str, Any] = {"parts": [as_task(part) for part in parts]}
    if task == "watch":
        inputs = {part[0]: as_task(part) for part in parts}
    return http.post(f"/v1/tasks/{NAME}/{task}", json={"inputs": inputs, "params": params})


def chat(http: httpx.Client, task: str, parts: list[Any], params: dict[str, Any]) -> httpx.Response:
    asked = {key: value for key, value in params.items() if key != "speaker"}
    spoken = {"modalities": ["text", "audio"], "audio": {"voice": params.get("speaker", "ethan"), "format": "wav"}}
    messages = [{"role": "user", "content": [as_message(part) for part in parts]}]
    return http.post("/v1/chat/completions", json={"model": f"{NAME}/{task}", "messages": messages, **spoken, **asked})


def alike(outputs: dict[str, Any], alone: dict[str, Any]) -> None:
    """Equal but for the rounding of other batches, and of pages that were read before."""
    assert outputs["text"] == alone["text"]
    (one, _), (other, _) = (heard(base64.b64decode(found["audio"][0]["data"])) for found in (outputs, alone))
    assert one.shape == other.shape
    assert np.abs(one.astype(np.int64) - other).max() <= 33, "of 32,768"


PICTURE = ("image", whole.picture(64, 64))
FAULTS: dict[str, tuple[str, list[Any], dict[str, Any], str]] = {
    "a prompt too long": ("chat", [("text", "word " * 300)], PARAMS, "raise `context`"),
    "no samples": ("chat", [("audio", whole.sound(0))], PARAMS, "has 0; record more of it"),
    "no sound": ("chat", [("audio", b"RIFF, but nothing else")], PARAMS, "encode it again"),
    "no picture": ("chat", [("image", b"\x89PNG\r\n\x1a\n, and no more")], PARAMS, "encode it again"),
    "a corrupt video": ("watch", [("video", bytes(VIDEO)), ("text", "What?")], WIDE, "encode it again"),
    "an unknown voice": ("chat", [("text", "Hi")], {**PARAMS, "speaker": "nobody"}, "one of `chelsie`, `ethan`"),
    "pictures that don't fit": ("chat", [("image", whole.picture(256, 256))] * 31, PARAMS, "raise `context`"),
    "too many pictures": ("chat", [PICTURE] * 129, WIDE, "these are 129 pictures"),
}


def test_what_cant_be_served_is_a_typed_error_and_nothing_else_is_lost(http: httpx.Client) -> None:
    question = [("text", "Who are you?"), PICTURE]
    alone = ask(http, "chat", question, PARAMS).json()["outputs"]
    assert alone["audio"]
    with ThreadPoolExecutor(3) as pool:
        beside = []
        for name, (task, parts, params, says) in FAULTS.items():
            beside.append(pool.submit(ask, http, "chat", question, PARAMS))
            told = ask(http, task, parts, params)
            assert told.status_code == 422, (name, told.text)
            problem = told.json()
            assert (problem["code"], problem["retryable"]) == ("invalid_input", False), name
            assert says in problem["detail"] + " ".join(fault["message"] for fault in problem["errors"]), name
            answer = chat(http, task, parts, params)
            assert answer.status_code == 400, (name, answer.text)
            error = answer.json()["error"]
            assert error["type"] == "invalid_request_error", name
            assert says in error["message"], name
            assert not [word for word in INNER if word in problem["detail"] + error["message"]], name
        for one in beside:
            alike(one.result().json()["outputs"], alone)
    alike(ask(http, "chat", question, PARAMS).json()["outputs"], alone)
    path = f"/api/v1/deployments/{NAME}"
    state = http.get(path).json()
    while state["running"] or state["waiting"]:
        # A client has its answer before the last rank has let go of the run.
        state = http.get(path, params={"after": state["revision"]}).json()
    assert state["restarts"] == 0


def test_codes_that_derail_and_limits_are_typed_ends(http: httpx.Client) -> None:
    long = {"max_tokens": 4, "max_frames": 300, "context": 512, "seed": 1, "temperature": 1.0}
    found = ask(http, "chat", [("text", "Hi")], long).json()
    ends = {one["loop"]: one["reason"] for one in found["usage"]["loops"]}
    assert ends == {"answer": "bound", "frames": "derailed"}
    assert found["outputs"]["audio"], "what was spoken until then is sent"
    choice = chat(http, "chat", [("text", "Hi")], long).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["finish_reasons"] == {"text": "bound", "audio": "derailed"}
    assert choice["message"]["audio"]["data"]
    short = ask(http, "chat", [("text", "Hi")], {**long, "max_frames": 6}).json()
    assert {one["loop"]: one["reason"] for one in short["usage"]["loops"]}["frames"] == "bound"


def test_thirty_one_pictures_are_seen(http: httpx.Client) -> None:
    for asked in (ask, chat):
        assert asked(http, "chat", [PICTURE] * 31, WIDE).status_code == 200
