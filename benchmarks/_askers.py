"""A client that asks a task again and again, ready once it has warmed up: a script for `_clients.together`. `robots.py`
runs one for each client, as clients that share a process wait for each other."""

import base64
import io
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx
import numpy as np
from PIL import Image
from websockets.sync.client import connect

from walkgraph.client import Client, Result, Tensor

LARGEST = 2**28
"""Bytes of a message: thirty frames of features are 43 MB as JSON."""
TIMEOUT = 600

Tell = Callable[[str], None]
"""Says what the client has got to."""
Ask = Callable[[Tell], tuple[str, Any]]
"""Sends a request and waits for its end; returns the run and its nodes' times."""


def main() -> None:
    orders = json.loads(sys.stdin.readline())
    with WAYS[orders["way"]](orders) as ask:
        for _ in range(orders["warm_up"]):
            timed(ask)
        print("ready", flush=True)
        if sys.stdin.readline():
            print(json.dumps([timed(ask) for _ in range(orders["rounds"])]), flush=True)


def timed(ask: Ask) -> dict[str, Any]:
    told: list[tuple[str, float]] = []

    def tell(what: str) -> None:
        told.append((what, time.time()))

    tell("sends")
    used, began = time.process_time(), time.perf_counter()
    run, times = ask(tell)
    seconds, used = time.perf_counter() - began, time.process_time() - used
    tell("has it")
    return {"seconds": seconds, "used": used, "run": run, "times": times, "told": told}


@contextmanager
def sdk(orders: Mapping[str, Any]) -> Iterator[Ask]:
    """A call by the SDK: media and tensors as bytes."""
    given = _given(orders)
    with Client(orders["url"], orders["token"]) as client:
        task = client.task(orders["deployment"], orders["task"])
        yield lambda _: _read(task(**given))


@contextmanager
def sdk_stream(orders: Mapping[str, Any]) -> Iterator[Ask]:
    """A call by the SDK whose outputs are read as they come."""
    given = _given(orders)
    with Client(orders["url"], orders["token"]) as client:
        task = client.task(orders["deployment"], orders["task"])

        def ask(tell: Tell) -> tuple[str, Any]:
            with task.stream(**given) as outputs:
                for output in outputs:
                    tell(f"{output.name} {output.index}")
            return _read(outputs.result)

        yield ask


@contextmanager
def sdk_session(orders: Mapping[str, Any]) -> Iterator[Ask]:
    """A request on a session of the SDK."""
    given = _given(orders)
    with (
        Client(orders["url"], orders["token"]) as client,
        client.session(orders["deployment"], orders["task"]) as session,
    ):
        yield lambda _: _read(session.ask(**given))


@contextmanager
def http(orders: Mapping[str, Any]) -> Iterator[Ask]:
    """A POST of JSON, answered in JSON: media and tensors in base64."""
    path, body = f"/v1/tasks/{orders['deployment']}/{orders['task']}", _body(orders)
    with httpx.Client(base_url=orders["url"], headers=_headers(orders), timeout=TIMEOUT, trust_env=False) as connection:

        def ask(_: Tell) -> tuple[str, Any]:
            answer = connection.post(path, json=body)
            if answer.is_error:
                raise RuntimeError(answer.text)
            found = answer.json()
            return found["run"], found["times"]

        yield ask


@contextmanager
def session(orders: Mapping[str, Any]) -> Iterator[Ask]:
    """A request on a session's socket, answered by events, all of them JSON."""
    body = _body(orders)
    address = f"ws{orders['url'].removeprefix('http')}/ws/v1/sessions/{orders['deployment']}/{orders['task']}"
    with connect(address, additional_headers=_headers(orders), max_size=LARGEST, proxy=None) as socket:
        socket.recv()

        def ask(tell: Tell) -> tuple[str, Any]:
            socket.send(json.dumps(body))
            while True:
                event = json.loads(socket.recv())
                tell(event["event"])
                if event["event"] == "error":
                    raise RuntimeError(event["error"]["message"])
                if event["event"] == "done":
                    return event["run"], event["times"]

        yield ask


WAYS: Mapping[str, Callable[[Mapping[str, Any]], AbstractContextManager[Ask]]] = {
    "sdk": sdk,
    "sdk_stream": sdk_stream,
    "sdk_session": sdk_session,
    "http": http,
    "session": session,
}


def picture(side: int, seed: int) -> bytes:
    """A smooth random one, as a robot's camera sends it."""
    coarse = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=92)
    return buffer.getvalue()


def _pictures(orders: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: picture(orders["side"], number) for number, name in enumerate(orders["pictures"])}


def _given(orders: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of the SDK's call."""
    request = orders["request"]
    wanted = {"outputs": request["outputs"]} if "outputs" in request else {}
    return {**_pictures(orders), **request["inputs"], **request["params"], **wanted}


def _body(orders: Mapping[str, Any]) -> dict[str, Any]:
    """The request as JSON."""
    found = {
        name: {"mime": "image/jpeg", "data": base64.b64encode(data).decode()}
        for name, data in _pictures(orders).items()
    }
    return {**orders["request"], "inputs": {**found, **orders["request"]["inputs"]}}


def _headers(orders: Mapping[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {orders['token']}"}


def _read(result: Result) -> tuple[str, Any]:
    """Read every tensor as an array."""
    for made in result.outputs.values():
        for value in made:
            if isinstance(value, Tensor):
                value.numpy()
    return result.run, result.times


if __name__ == "__main__":
    main()
