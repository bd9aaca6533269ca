"""A value of a mebibyte comes as it went, over every surface and in every form."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import numpy as stored
from websockets.sync.client import ClientConnection, connect

from tests.support.serving import Service
from walkgraph.client import Client

NAME = "echo"
GRAPH: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": NAME,
    "nodes": {
        "same": {"component": "synthetic.euler", "params": {"step": 0.0}},
        "again": {"component": "echo/echo"},
    },
    "walks": {
        "w": {
            "inputs": {"given": "tensor: float[n]"},
            "body": ["same"],
            "edges": [["@in.given", "same.items"], ["same.items", "@out.items"]],
        },
        "through": {
            "inputs": {"given": "tensor: float[n]"},
            "body": ["again"],
            "edges": [["@in.given", "again.given"], ["again.items", "@out.items"]],
        },
    },
    "tasks": {
        "through": {
            "inputs": {"given": {"modality": "tensor"}},
            "outputs": ["items"],
            "steps": [{"walk": "through", "with": {"given": "@task.given"}}],
        },
        "echo": {
            "inputs": {"given": {"modality": "tensor"}},
            "outputs": ["items"],
            "steps": [{"walk": "w", "with": {"given": "@task.given"}}],
        },
    },
}
PATH = f"/v1/tasks/{NAME}/echo"
COUNT = 262_144
Array = NDArray[np.float32]
GIVEN: Array = np.random.default_rng(5).standard_normal(COUNT, np.float32)
FRAME = {"type": "tensor", "dtype": "float32", "shape": [COUNT], "frame": 0}


@pytest.fixture(scope="module")
def client(plain: Service) -> Iterator[Client]:
    with plain.deployed(GRAPH, NAME) as found:
        yield found


def asked(plain: Service, accept: str, *, stream: bool = False) -> bytes:
    parts = {
        "request": (None, json.dumps({"inputs": {"given": FRAME}, "stream": stream})),
        "0": ("0", GIVEN.tobytes(), "application/octet-stream"),
    }
    headers = {"Authorization": f"Bearer {plain.token}", "Accept": accept}
    answer = httpx.post(plain.told["url"] + PATH, files=parts, headers=headers, timeout=60).raise_for_status()
    assert answer.headers["content-type"].startswith("text/event-stream" if stream and "json" in accept else accept)
    return answer.content


def same(value: Any) -> None:
    data = value["base64"]
    found = np.frombuffer(data if isinstance(data, bytes) else base64.b64decode(data), value["dtype"])
    assert np.array_equal(found.reshape(value["shape"]), GIVEN)


def test_whole(plain: Service, client: Client) -> None:
    (told,) = json.loads(asked(plain, "application/json"))["outputs"]["items"]
    same(told)
    for kind in ("application/msgpack", "application/vnd.msgpack"):
        (told,) = msgspec.msgpack.decode(asked(plain, kind))["outputs"]["items"]
        same(told)
    assert np.array_equal(stored.load(asked(plain, "application/x-safetensors"))["items"], GIVEN)
    assert asked(plain, "application/octet-stream") == GIVEN.tobytes()


def test_streamed(plain: Service, client: Client) -> None:
    lines = asked(plain, "application/json", stream=True).decode().splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    same(next(event["value"] for event in events if "value" in event))
    events = list(unpacked(asked(plain, "application/vnd.msgpack", stream=True)))
    assert [event["event"] for event in events] == ["accepted", "output", "done"]
    same(events[1]["value"])


def unpacked(content: bytes) -> Iterator[Any]:
    """The objects that follow each other in a stream of msgpack; each is a map that begins with its event's name."""
    begins = [found.start() - 1 for found in re.finditer(b"\xa5event", content)]
    for begin, end in pairwise([*begins, len(content)]):
        yield msgspec.msgpack.decode(content[begin:end])


@pytest.mark.parametrize("binary", [True, False])
def test_over_a_socket(plain: Service, client: Client, binary: bool) -> None:
    url = plain.told["url"].replace("http", "ws", 1) + f"/ws{PATH}" + ("?frames=binary" if binary else "")
    with connect(url, additional_headers={"Authorization": f"Bearer {plain.token}"}, max_size=None) as socket:
        socket.send(json.dumps({"inputs": {"given": FRAME}, "frames": 1}))
        socket.send(GIVEN.tobytes())
        events = list(followed(socket))
    assert [event["event"] for event, _ in events] == ["accepted", "output", "done"]
    event, frames = events[1]
    same({**event["value"], "base64": frames[0]} if binary else event["value"])


def followed(socket: ClientConnection) -> Iterator[tuple[Any, list[Any]]]:
    for event in map(json.loads, socket):
        yield event, [socket.recv() for _ in range(event.get("frames", 0))]


def test_with_the_client(client: Client) -> None:
    echo = client.task(NAME, "echo")
    found = echo(given=GIVEN)
    assert np.array_equal(found.tensor().numpy(), GIVEN)
    with echo.stream(given=GIVEN) as outputs:
        for _ in outputs:
            pass
    assert np.array_equal(outputs.result.tensor().numpy(), GIVEN)
    (told,) = client.result(found.run)["outputs"]["items"]
    same(told)


def test_through_a_called_task(client: Client) -> None:
    assert np.array_equal(client.task(NAME, "through")(given=GIVEN).tensor().numpy(), GIVEN)
