"""A session as its server sees it: messages and their frames, in both directions, blocking and awaited."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from tests.unit.client.service import TASK
from walkgraph.client import AsyncClient, Client, ClientError, ProblemError, RunError, Unreachable

Server = Callable[[ServerConnection], None]
KINDS = ("blocking", "awaiting")
HELLO = {"event": "session", "session": "robot"}


def tell(socket: ServerConnection, event: str, request: int, *frames: bytes, **more: Any) -> None:
    counted = {"frames": len(frames)} if frames else {}
    socket.send(json.dumps({"event": event, "request": request, **counted, **more}))
    for frame in frames:
        socket.send(frame)


def answered(socket: ServerConnection, request: int, numbers: list[float]) -> None:
    data = np.array(numbers, "<f4").tobytes()
    tell(socket, "accepted", request, run=f"r{request}", seed=1)
    value = {"type": "actions", "dtype": "float32", "shape": [len(numbers)], "frame": 0}
    tell(socket, "output", request, data, name="text", index=0, iteration=[], value=value)
    tell(socket, "done", request, run=f"r{request}", seconds=0.1, queued=0.0, times=[])


@contextmanager
def served(answer: Server, asked: list[Any] | None = None) -> Iterator[str]:
    def hold(socket: ServerConnection) -> None:
        assert socket.request is not None
        if asked is not None:
            asked.append((socket.request.path, socket.request.headers["Authorization"]))
        try:
            answer(socket)
        except ConnectionClosed:
            return

    with serve(hold, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join()


def declared(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json=TASK)


def within(kind: str, url: str, do: Callable[[Any], list[Any]], name: str | None = None) -> list[Any]:
    """The answers of a session to the steps `do`, in order: (method, arguments) or `next`."""
    if kind == "blocking":
        with (
            Client(url, "secret", transport=httpx.MockTransport(declared)) as client,
            client.session("my shapes", "draw", name) as session,
        ):
            return [step(session) for step in do(session)]

    async def run() -> list[Any]:
        async with (
            AsyncClient(url, "secret", transport=httpx.MockTransport(declared)) as client,
            client.session("my shapes", "draw", name) as session,
        ):
            return [await step(session) for step in do(session)]

    return asyncio.run(run())


def following(session: Any) -> Any:
    return session.__next__() if hasattr(session, "__next__") else session.__anext__()


@pytest.mark.parametrize("kind", KINDS)
def test_requests_and_answers_have_their_frames(kind: str) -> None:
    asked: list[Any] = []
    heard: list[Any] = []

    def answer(socket: ServerConnection) -> None:
        socket.send(json.dumps(HELLO))
        for _ in range(2):
            message = json.loads(socket.recv())
            heard.append((message, [socket.recv() for _ in range(message.get("frames", 0))]))
            answered(socket, message["id"], [0.5, -1.0])
        socket.recv()

    def steps(_: Any) -> list[Any]:
        picture = b"\x89PNG"
        return [
            lambda session: session.ask(prompt="a", image=picture, steps=3),
            lambda session: session.ask(prompt="b", state=[0.5]),
        ]

    with served(answer, asked) as url:
        results = within(kind, url, steps, "robot")
    assert [result.tensor().tolist() for result in results] == [[0.5, -1.0]] * 2
    assert [result.run for result in results] == ["r0", "r1"]
    assert asked == [("/ws/v1/sessions/my%20shapes/draw?session=robot&frames=binary", "Bearer secret")]
    first = {
        "id": 0,
        "inputs": {"prompt": "a", "image": {"type": "image", "frame": 0}},
        "params": {"steps": 3},
        "frames": 1,
    }
    second = {"id": 1, "inputs": {"prompt": "b", "state": [0.5]}}
    assert heard == [(first, [b"\x89PNG"]), (second, [])], "parameters that are not given hold"


@pytest.mark.parametrize("kind", KINDS)
def test_answers_come_in_their_own_order_and_are_kept(kind: str) -> None:
    def answer(socket: ServerConnection) -> None:
        socket.send(json.dumps(HELLO))
        for _ in range(3):
            socket.recv()
        newer = {"code": "cancelled", "message": "a newer request took its place"}
        tell(socket, "error", 1, run="r1", seconds=0.0, error=newer)
        answered(socket, 2, [2.0])
        answered(socket, 0, [0.0])
        socket.recv()

    def steps(_: Any) -> list[Any]:
        send = [lambda session: session.send(prompt="a"), lambda session: session.send(prompt="b")]
        return [*send, lambda session: session.ask(prompt="c"), following, following]

    with served(answer) as url:
        first, second, third, one, zero = within(kind, url, steps)
    assert (first, second) == (0, 1)
    assert third.tensor().tolist() == [2.0]
    assert (one.request, one.ok, one.superseded) == (1, False, True)
    with pytest.raises(RunError, match="took its place"):
        _ = one.result
    assert (zero.request, zero.ok, zero.result.tensor().tolist()) == (0, True, [0.0])


def test_outputs_of_one_request_come_as_they_are_made() -> None:
    def answer(socket: ServerConnection) -> None:
        socket.send(json.dumps(HELLO))
        socket.recv()
        socket.recv()
        answered(socket, 0, [0.0])
        for k in range(2):
            value = {"type": "text", "text": str(k)}
            tell(socket, "output", 1, name="text", index=k, iteration=[k], value=value)
        tell(socket, "done", 1, run="r", seconds=0.1, queued=0.0, times=[])
        socket.recv()

    with (
        served(answer) as url,
        Client(url, "secret", transport=httpx.MockTransport(declared)) as client,
        client.session("d", "t") as session,
    ):
        session.send(prompt="a")
        assert session.waiting == 1
        assert [output.value for output in session.stream(prompt="b")] == ["0", "1"]
        assert next(session).request == 0, "what came for others is kept"
        session.close()
        assert list(session) == []


def test_both_kinds_cancel_what_is_under_way() -> None:
    heard: list[Any] = []

    def answer(socket: ServerConnection) -> None:
        socket.send(json.dumps(HELLO))
        heard.append(json.loads(socket.recv()))

    for kind in KINDS:
        with served(answer) as url:
            within(kind, url, lambda _: [lambda session: session.cancel()])
    assert heard == [{"cancel": True}] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_goes_wrong_has_its_kind(kind: str) -> None:
    def refuses(socket: ServerConnection) -> None:
        error = {"code": "invalid_input", "message": "task `draw` keeps no session"}
        socket.send(json.dumps({"event": "error", "error": error, "errors": []}))
        socket.close(1008)

    def faulty(socket: ServerConnection) -> None:
        socket.send(json.dumps(HELLO))
        socket.recv()
        error = {"code": "invalid_input", "message": "see `errors`"}
        fault = {"pointer": "/params/steps", "code": "bad_value", "message": "too many"}
        tell(socket, "error", 0, error=error, errors=[fault])
        socket.recv()

    def breaks(socket: ServerConnection) -> None:
        socket.send(json.dumps(HELLO))
        socket.recv()
        socket.socket.close()

    def ask(_: Any) -> list[Any]:
        return [lambda session: session.ask(prompt="a")]

    with served(refuses) as url, pytest.raises(ProblemError, match="keeps no session"):
        within(kind, url, ask)
    with served(faulty) as url, pytest.raises(ProblemError) as refused:
        within(kind, url, ask)
    assert [fault.pointer for fault in refused.value.faults] == ["/params/steps"]
    with served(breaks) as url, pytest.raises(Unreachable):
        within(kind, url, ask)
    with pytest.raises(Unreachable, match="broke or can't be opened"):
        within(kind, "http://127.0.0.1:1", ask)


def test_a_session_that_was_not_opened_says_how() -> None:
    with Client("http://127.0.0.1:1", "secret") as client, pytest.raises(ClientError, match=r"with client\.session"):
        client.session("d", "t").cancel()
