"""Clients of WebSockets, and of bodies, that break off at any moment, or send what is none: a line of log each at most,
the right code, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import product
from pathlib import Path

import pytest
import uvicorn

from tests.support.serving import Service, service
from tests.support.storm.fleet import AbleFleet
from tests.support.storm.wire import CLOSED, ENDS, SAID, TEXT, Ended, frame, hit
from tests.unit.service.conftest import TOKEN, Running, quiet, serving
from walkgraph import logs
from walkgraph.service.http import protocols
from walkgraph.settings import Settings
from walkgraph.store.session import Store

SOCKETS = (
    "/ws/v1/telemetry",
    "/ws/v1/tasks/shapes/text_to_image",
    "/ws/v1/sessions/shapes/text_to_image",
    "/ws/v1/runs/" + "0" * 32,
    "/v1/realtime?model=shapes",
)
PROMPT = frame(TEXT, json.dumps({"inputs": {"prompt": "a red circle"}}).encode())
ASKED = {
    "a request": PROMPT,
    "a request, then garbage": PROMPT + b"\xff" * 30,
    "a request, then another opcode": PROMPT + frame(3, b"x"),
    "two requests": PROMPT * 2,
}
BODIES = (
    ("POST", "/v1/tasks/shapes/text_to_image", "application/json"),
    ("PUT", "/api/v1/graphs/x", "application/json"),
    ("POST", "/v1/images/edits", "multipart/form-data; boundary=b"),
    ("POST", "/v2/models/shapes/infer", "application/json"),
    ("POST", "/v1/chat/completions", "application/json"),
)
AT_ONCE = 64
GARBAGE = 10 * logs.LINES


async def storm(host: str, port: int, token: str, paths: tuple[str, ...], said: dict[str, bytes]) -> Counter[Ended]:
    """Every socket, message and end once, so many at a time."""
    room = asyncio.Semaphore(AT_ONCE)
    wrong: list[tuple[object, ...]] = []

    async def one(path: str, name: str, end: object) -> Ended:
        async with room:
            ended = await hit(host, port, token, path, said[name], end)  # type: ignore[arg-type]
        if ended.code is not None and ended.code not in CLOSED:
            wrong.append((path, name, end, ended))
        return ended

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(*case)) for case in product(paths, said, ENDS)]
    assert wrong == []
    return Counter(task.result() for task in tasks)


# ── a service inside this process ───────────────────────────────────────────────────────────────


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Running, int]]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    settings = Settings(home=home, studio=False)
    Store.open(settings.database).close()
    with quiet():
        async with serving(settings, AbleFleet()) as running:
            await running.deploy()
            config = uvicorn.Config(
                running.app,
                http=protocols.Http,
                ws=protocols.WebSockets,
                lifespan="off",
                log_config=None,
                access_log=False,
            )
            config.load()
            state = uvicorn.server.ServerState()
            server = await asyncio.get_running_loop().create_server(
                lambda: protocols.Http(config=config, server_state=state, app_state={}), "127.0.0.1", 0
            )
            yield running, server.sockets[0].getsockname()[1]
            server.close()
            for connection in tuple(state.connections):
                connection.transport.abort()


async def test_no_client_makes_a_socket_fail(served: tuple[Running, int], caplog: pytest.LogCaptureFixture) -> None:
    running, port = served
    ended = await storm("127.0.0.1", port, TOKEN, SOCKETS, SAID | ASKED)
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in told] == []
    assert sum(ended.values()) == len(SOCKETS) * len(SAID | ASKED) * len(ENDS)
    codes = {one.code for one in ended}
    assert {1002, 1007, 1008, 1009} <= codes
    # What they began has ended with them.
    for _ in range(10_000):
        if not running.services.runs.unfinished and not running.services.hub.clients:
            break
        await asyncio.sleep(0)
    assert (running.services.runs.unfinished, running.services.hub.clients) == ([], 0)


# ── a service of its own, with the studio ───────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Nothing is deployed."""
    with service(tmp_path_factory.mktemp("storm") / "home") as found:
        found.up("--no-deploy")
        yield found


def connections(port: int) -> int:
    """Connections that the service listening there has not closed."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] in _OPEN for row in rows)


_OPEN = ("01", "08")
"""Established, and left by the client alone."""


async def broken_off(port: int, token: str, method: str, path: str, kind: str) -> None:
    """A body that its client doesn't finish."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
    writer.write(f'{head}Content-Type: {kind}\r\nContent-Length: 1000\r\n\r\n{{"a":'.encode())
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def test_a_message_that_is_too_long_is_told_so(alone: Service) -> None:
    """The client is still sending when the answer is made: it must not be lost."""
    port = int(alone.told["url"].rpartition(":")[2])
    for _ in range(5):
        ended = await hit("127.0.0.1", port, alone.token, "/ws/v1/telemetry", SAID["too long"], "listen")
        assert ended == Ended(101, 1009)


async def test_floods_leave_few_lines(alone: Service) -> None:
    port, token = int(alone.told["url"].rpartition(":")[2]), alone.token
    with alone.client() as client:
        assert client.live()
    began = len(alone.log)
    # Streamlit's socket needs an origin from browsers alone; the token is enough for programs.
    paths = ("/studio/_stcore/stream", "/ws/v1/telemetry", "/v1/realtime")
    ended = await storm("127.0.0.1", port, token, paths, SAID)
    assert {1002, 1003, 1007, 1009} <= {one.code for one in ended}
    for method, path, kind in BODIES * 5:
        await broken_off(port, token, method, path, kind)
    for _ in range(GARBAGE):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\xff\xfe garbage\r\n\r\n")
        writer.close()
        await writer.wait_closed()
    with alone.client() as client:
        assert client.live()
    for _ in range(3000):
        if connections(port) == 0:
            break
        await asyncio.sleep(0.01)
    assert connections(port) == 0, "clients that are gone are kept"
    found = [json.loads(line) for line in alone.log[began:].splitlines() if line.startswith("{")]
    assert len(found) == len(alone.log[began:].splitlines()), "all in the form of the log"
    faults = [line for line in found if "exception" in line or line["level"] == "error"]
    assert not faults, faults[0].get("exception", faults[0])
    # The end of the service tells what was left out.
    assert alone.down() == 0
    told = [json.loads(line) for line in alone.log[began:].splitlines()]
    garbage = "Invalid HTTP request received."
    written = sum(line["event"] == garbage for line in told)
    left_out = sum(line["count"] for line in told if line.get("of") == garbage)
    assert written + left_out == GARBAGE
    assert left_out > 0
    assert any(line["event"] == "the client left before its body was whole" for line in told)
