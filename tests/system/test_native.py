"""Robots and conversations over the native surface: sessions on WebSockets with frames, bit for bit what JSON gives."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from websockets.sync.client import ClientConnection, connect

from tests.support.serving import Service
from tests.support.yardstick import patience

CPU = {
    "format": "walkgraph/placement@1",
    "name": "one_cpu",
    "groups": [{"nodes": ["*"], "ranks": [0]}],
    "ranks": [{"rank": 0, "device": "cpu"}],
}
SIDE = 32
"""Pixels of the tiny world's pictures."""


@pytest.fixture(scope="module")
def running(plain: Service, repository: Path) -> Iterator[Service]:
    """A policy, a world and a memory, each deployed."""
    world = json.loads((repository / "graphs/vjepa2_ac.json").read_text())
    world["weights"]["vjepa2"]["source"] = "random:vjepa2-ac-tiny:3"
    world["nodes"]["picture_in"]["params"]["size"] = SIDE
    names = ("reach", "world", "synthetic_states")
    with plain.client() as client:
        client.deploy("reach", "reach_one_cpu")
        client.deploy(world, CPU, "world")
        client.deploy("synthetic_states", CPU)
    for name in names:
        plain.wait_ready(name)
    yield plain
    plain.take_back(*names)


class Robot:
    """A client of one session's socket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        json.loads(socket.recv())

    def ask(self, request: dict[str, Any], *frames: bytes) -> None:
        self.socket.send(json.dumps({"frames": len(frames), **request}))
        for frame in frames:
            self.socket.send(frame)

    def told(self, timeout: float | None = 60.0) -> tuple[dict[str, Any], list[bytes]]:
        message = json.loads(self.socket.recv(timeout))
        return message, [bytes(self.socket.recv(60.0)) for _ in range(message.get("frames", 0))]  # type: ignore[arg-type]

    def outputs(self) -> dict[str, list[np.ndarray]]:
        """All tensors of the next run that ends."""
        found: dict[str, list[np.ndarray]] = {}
        while (told := self.told())[0]["event"] != "done":
            assert told[0]["event"] != "error", told
            if told[0]["event"] == "output":
                found.setdefault(told[0]["name"], []).append(tensor(told[0]["value"], told[1]))
        return found


@contextmanager
def session(running: Service, path: str) -> Iterator[Robot]:
    url = running.told["url"].replace("http", "ws", 1)
    headers = {"Authorization": f"Bearer {running.token}"}
    query = "&frames=binary" if "?" in path else "?frames=binary"
    with connect(
        f"{url}/ws/v1/sessions/{path}{query}", additional_headers=headers, proxy=None, max_size=None
    ) as socket:
        yield Robot(socket)


def tensor(value: dict[str, Any], frames: list[bytes]) -> np.ndarray:
    if "frame" in value:
        return np.frombuffer(frames[value["frame"]], value["dtype"]).reshape(value["shape"])
    if "data" in value:
        return np.array(value["data"], value["dtype"])
    if "base64" in value:
        return np.frombuffer(base64.b64decode(value["base64"]), value["dtype"]).reshape(value["shape"])
    return np.array(value["value"])


def in_json(running: Service, task: str, body: dict[str, Any]) -> dict[str, list[np.ndarray]]:
    headers = {"Authorization": f"Bearer {running.token}"}
    answer = httpx.post(
        f"{running.told['url']}/v1/tasks/{task}", json=body, headers=headers, timeout=300, trust_env=False
    )
    assert answer.status_code == 200, answer.text
    return {name: [tensor(value, []) for value in made] for name, made in answer.json()["outputs"].items()}


def same(ours: dict[str, list[np.ndarray]], theirs: dict[str, list[np.ndarray]]) -> None:
    assert ours.keys() == theirs.keys()
    assert ours
    for name, made in ours.items():
        assert [(one.shape, one.tobytes()) for one in made] == [(one.shape, one.tobytes()) for one in theirs[name]], (
            name
        )


def picture(seed: int, side: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def encoded(data: bytes) -> dict[str, str]:
    return {"type": "image", "data": base64.b64encode(data).decode()}


def framed(number: int, array: np.ndarray, kind: str) -> dict[str, Any]:
    return {"type": kind, "frame": number, "dtype": array.dtype.name, "shape": list(array.shape)}


@pytest.mark.slow
def test_a_world_is_stepped_action_by_action(running: Service) -> None:
    rng = np.random.default_rng(5)
    pose = rng.uniform(-0.5, 0.5, 7).astype(np.float32)
    actions = rng.uniform(-0.05, 0.05, (3, 1, 7)).astype(np.float32)
    seen = picture(1, SIDE)
    with session(running, "world/begin?session=w") as begin, session(running, "world/step?session=w") as step:
        begin.ask(
            {"inputs": {"image": {"type": "image", "frame": 0}, "pose": framed(1, pose, "state")}}, seen, pose.tobytes()
        )
        first = begin.outputs()
        steps = []
        for action in actions:
            step.ask({"inputs": {"actions": framed(0, action, "actions")}}, action.tobytes())
            steps.append(step.outputs())
    state = {"type": "state", "data": pose.tolist()}
    same(first, in_json(running, "world/begin", {"session": "j", "inputs": {"image": encoded(seen), "pose": state}}))
    for action, made in zip(actions, steps, strict=True):
        body = {"session": "j", "inputs": {"actions": action.tolist()}}
        same(made, in_json(running, "world/step", body))
    assert steps[0]["features"][0].tobytes() != steps[1]["features"][0].tobytes(), "it goes on from where it was"
    headers = {"Authorization": f"Bearer {running.token}"}
    with httpx.Client(base_url=running.told["url"], headers=headers, trust_env=False) as http:
        told = http.get("/v1/sessions/world").json()
        assert {one["name"] for one in told["sessions"]} == {"w", "j"}
        assert told["bytes"] == sum(one["bytes"] for one in told["sessions"]) > 0
        assert http.delete("/v1/sessions/world/j").status_code == 202
        deadline = time.monotonic() + patience(5)
        while {one["name"] for one in http.get("/v1/sessions/world").json()["sessions"]} != {"w"}:
            assert time.monotonic() < deadline


@pytest.mark.slow
def test_a_policy_is_asked_ten_times_a_second(running: Service) -> None:
    params = {"seed": 3, "steps": 2}
    looks = [(picture(k, 64), np.float32([0.1 * k, -0.2])) for k in range(8)]
    done: dict[int, dict[str, list[np.ndarray]]] = {}
    over: set[int] = set()

    def take(robot: Robot, timeout: float) -> None:
        message, frames = robot.told(timeout)
        number = message["request"]
        if message["event"] == "output":
            done.setdefault(number, {}).setdefault(message["name"], []).append(tensor(message["value"], frames))
        if message["event"] == "error":
            assert message["error"]["code"] == "cancelled", "a newer observation took its place"
        if message["event"] in ("done", "error"):
            over.add(number)

    with session(running, "reach/act") as robot:
        began = time.monotonic()
        for k, (seen, state) in enumerate(looks):
            inputs = {"camera": {"type": "image", "frame": 0}, "state": framed(1, state, "state")}
            body = {"inputs": {**inputs, "instruction": "reach the red ball"}, "params": params}
            robot.ask(body, seen, state.tobytes())
            while (left := began + 0.1 * (k + 1) - time.monotonic()) > 0:
                try:
                    take(robot, left)
                except TimeoutError:
                    break
        while len(over) < len(looks):
            take(robot, 60.0)
    assert len(looks) - 1 in done, "the last observation is answered"
    for k, made in done.items():
        seen, state = looks[k]
        inputs = {"camera": encoded(seen), "state": state.tolist(), "instruction": "reach the red ball"}
        same(made, in_json(running, "reach/act", {"inputs": inputs, "params": params}))


@pytest.mark.slow
def test_a_conversation_goes_on_from_what_was_said(running: Service) -> None:
    with session(running, "synthetic_states/remember?session=c") as robot:
        robot.ask({"params": {"prompt": 4, "room": 64, "seed": 1}})
        first = robot.outputs()
        robot.ask({})
        second = robot.outputs()
    body = {"session": "d", "params": {"prompt": 4, "room": 64, "seed": 1}}
    same(first, in_json(running, "synthetic_states/remember", body))
    same(second, in_json(running, "synthetic_states/remember", body))
    assert first["token"][0].tolist() != second["token"][0].tolist()


@pytest.mark.slow
def test_a_picture_of_the_world_is_a_tensor_without_base64(running: Service) -> None:
    files = {"image": ("scene.png", picture(2, SIDE))}
    headers = {"Authorization": f"Bearer {running.token}", "Accept": "application/octet-stream"}
    url = f"{running.told['url']}/v1/tasks/world/encode"
    raw = httpx.post(url, files=files, headers=headers, timeout=300, trust_env=False)
    assert raw.status_code == 200, raw.text
    shape = tuple(int(side) for side in raw.headers["x-walkgraph-shape"].split(","))
    features = np.frombuffer(raw.content, raw.headers["x-walkgraph-dtype"]).reshape(shape)
    same({"features": [features]}, in_json(running, "world/encode", {"inputs": {"image": encoded(picture(2, SIDE))}}))
    url = f"{running.told['url']}/v2/models/world/versions/encode/infer"
    inputs = [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [encoded(picture(2, SIDE))["data"]]}]
    kserve = httpx.post(url, json={"inputs": inputs}, headers=headers, timeout=300, trust_env=False).json()["outputs"][
        0
    ]
    assert (kserve["datatype"], kserve["shape"]) == ("FP32", list(shape))
    assert np.float32(kserve["data"]).tobytes() == features.tobytes()
