"""A request's selection comes over every surface; next to the whole output, reduced by the client."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from websockets.sync.client import connect

from tests.support.serving import Service
from walkgraph.client import Client

NAME = "selecting"
TIMES, NUMBERS = 7, 30_000
LOOP = {"loop": "steps", "times": "times", "body": ["flow"]}
EDGES = [["@in.start", "noise.value"], ["noise.items", "flow.items"], ["flow.items", "flow.items"]]
GRAPH: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": NAME,
    "nodes": {
        "noise": {"component": "synthetic.tensor", "params": {"n": "=numbers"}},
        "flow": {"component": "synthetic.euler", "params": {"time": "=@loop.index / times", "step": "=1 / times"}},
    },
    "walks": {
        "flow": {
            "inputs": {"start": "scalar: int"},
            "body": ["noise", LOOP],
            "edges": [
                *EDGES,
                {"from": "flow.items", "to": "@out.each", "each": True},
                {"from": "flow.items", "to": "@out.all", "collect": True},
            ],
        }
    },
    "tasks": {
        "flow": {
            "outputs": ["each", "all"],
            "params": {
                "start": {"type": "integer", "default": 3},
                "times": {"type": "integer", "default": TIMES, "min": 1, "max": 64},
                "numbers": {"type": "integer", "default": NUMBERS, "min": 1, "max": 1048576},
            },
            "steps": [{"walk": "flow", "with": {"start": "@task.start"}}],
        }
    },
}
PATH = f"/v1/tasks/{NAME}/flow"
Array = NDArray[Any]


@pytest.fixture(scope="module")
def client(plain: Service) -> Iterator[Client]:
    with plain.deployed(GRAPH, NAME) as found:
        yield found


@pytest.fixture(scope="module")
def whole(client: Client) -> Array:
    """All values of the stream."""
    return np.stack(list(map(array, client.task(NAME, "flow")(outputs=["each"])["each"])))


@pytest.fixture
def http(plain: Service) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {plain.token}"}
    with httpx.Client(base_url=plain.told["url"], headers=headers) as found:
        yield found


SELECTED: Mapping[str, tuple[dict[str, Any], slice, str]] = {
    "all": ({}, slice(None), "float32"),
    "every": ({"every": 3}, slice(None, None, 3), "float32"),
    "half": ({"dtype": "float16", "every": 2}, slice(None, None, 2), "float16"),
    "last": ({"last": True, "dtype": "float16"}, slice(-1, None), "float16"),
}


@pytest.fixture(params=SELECTED)
def asked(request: pytest.FixtureRequest, whole: Array) -> tuple[dict[str, Any], Array]:
    """A request's `outputs`, and the values that it should bring."""
    selected, kept, dtype = SELECTED[request.param]
    return {"each": selected}, whole[kept].astype(dtype)


def array(value: Any) -> Array:
    return value.numpy()


def read(value: Mapping[str, Any], data: bytes | None = None) -> Array:
    if data is None:
        return np.asarray(value["data"], value["dtype"])
    return np.frombuffer(data, value["dtype"]).reshape(value["shape"])


def same(found: Any, wanted: Array) -> None:
    made = np.stack(list(found))
    assert made.dtype == wanted.dtype
    assert np.array_equal(made, wanted)


def test_over_rest(http: httpx.Client, asked: tuple[dict[str, Any], Array]) -> None:
    told = http.post(PATH, json={"outputs": asked[0]}).raise_for_status().json()
    assert list(told["outputs"]) == ["each"]
    same(map(read, told["outputs"]["each"]), asked[1])


def test_over_events(http: httpx.Client, asked: tuple[dict[str, Any], Array]) -> None:
    text = http.post(PATH, json={"outputs": asked[0], "stream": True}).raise_for_status().text
    events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
    outputs = [event for event in events if "value" in event]
    assert [event["index"] for event in outputs] == list(range(len(asked[1])))
    same((read(event["value"]) for event in outputs), asked[1])


def test_over_a_socket(plain: Service, client: Client, asked: tuple[dict[str, Any], Array]) -> None:
    url = plain.told["url"].replace("http", "ws", 1) + f"/ws{PATH}?frames=binary"
    found: list[Array] = []
    with connect(url, additional_headers={"Authorization": f"Bearer {plain.token}"}, max_size=None) as socket:
        socket.send(json.dumps({"outputs": asked[0]}))
        for event in map(json.loads, socket):
            frames = [socket.recv() for _ in range(event.get("frames", 0))]
            if event["event"] == "output":
                data = frames[event["value"]["frame"]]
                assert isinstance(data, bytes)
                found.append(read(event["value"], data))
    same(found, asked[1])


def test_over_kserve(http: httpx.Client, asked: tuple[dict[str, Any], Array]) -> None:
    outputs = [{"name": "each", "parameters": {"binary_data": True, **asked[0]["each"]}}]
    answer = http.post(f"/v2/models/{NAME}/versions/flow/infer", json={"outputs": outputs}).raise_for_status()
    length = int(answer.headers["inference-header-content-length"])
    (told,) = json.loads(answer.content[:length])["outputs"]
    assert told["datatype"] == {"float16": "FP16", "float32": "FP32"}[asked[1].dtype.name]
    same(np.frombuffer(answer.content[length:], asked[1].dtype).reshape(-1, NUMBERS), asked[1])


def test_with_the_client(client: Client, asked: tuple[dict[str, Any], Array]) -> None:
    task = client.task(NAME, "flow")
    same(map(array, task(outputs=asked[0])["each"]), asked[1])
    with task.stream(outputs=asked[0]) as outputs:
        same((array(output.value) for output in outputs), asked[1])


def test_what_a_loop_collects_is_converted_whole(client: Client, whole: Array) -> None:
    found = client.task(NAME, "flow")(outputs={"all": {"dtype": "bfloat16"}}).tensor()
    assert found.dtype == "bfloat16"
    assert np.allclose(found.numpy(), whole, rtol=2**-8)


def test_one_value_is_bytes(http: httpx.Client, whole: Array) -> None:
    body = {"outputs": {"each": {"last": True, "dtype": "float16"}}}
    answer = http.post(PATH, json=body, headers={"Accept": "application/octet-stream"}).raise_for_status()
    assert answer.headers["x-walkgraph-dtype"] == "float16"
    assert answer.content == whole[-1].astype("float16").tobytes()


def test_what_can_not_be_selected_is_refused(http: httpx.Client) -> None:
    answer = http.post(PATH, json={"outputs": {"all": {"every": 2}}})
    assert answer.status_code == 422
    assert [fault["pointer"] for fault in answer.json()["errors"]] == ["/outputs/all/every"]
