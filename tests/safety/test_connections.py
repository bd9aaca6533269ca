"""Clients that leave, vanish, say nothing, or read nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import resource
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from tests.safety.plugin import Figure, Scale
from tests.support.asking import Address, address_of, ask, connected, head, quantile, request, reset, until
from tests.support.serving import Service
from tests.support.storm.wire import TEXT, frame
from tests.support.vanishing import vanish

Api = Literal["events", "result", "socket"]
APIS: tuple[Api, ...] = ("events", "result", "socket")
TASK = "/v1/tasks/synthetic_states/write"
LONG = {"params": {"prompt": 50, "times": 20_000}}
"""A run that no test waits for."""
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def asked(address: Address, api: Api) -> AsyncIterator[Connection]:
    """A client that has asked for a run in one of these ways; of those that tell so, one that was accepted."""
    async with connected(address) as (reader, writer):
        if api == "socket":
            writer.write(
                f"GET /ws{TASK} HTTP/1.1\r\nHost: {address.host}:{address.port}\r\n"
                f"Authorization: Bearer {address.token}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
            )
            assert (await head(reader))[0] == 101
            writer.write(frame(TEXT, json.dumps(LONG).encode()))
            await reader.readuntil(b"accepted")
        else:
            writer.write(request(address, "POST", TASK, {**LONG, "stream": api == "events"}))
            if api == "events":
                assert (await head(reader))[0] == 200
                await reader.readuntil(b"event: accepted\n")
        yield reader, writer


async def under_way(address: Address) -> int:
    """Runs of the deployment that are not over."""
    answer = await ask(address, "GET", "/api/v1/deployments/synthetic_states")
    told = json.loads(answer.body)
    assert told["state"] == "ready"
    return told["running"] + told["waiting"]


async def until_under_way(address: Address, number: int) -> float:
    """How long it took until so many were."""

    async def so_many() -> bool:
        return await under_way(address) == number

    began = time.monotonic()
    return await until(so_many) - began


async def until_cache_free(address: Address) -> None:
    """All pages, as the newest gauges tell."""

    async def free() -> bool:
        lines = (await ask(address, "GET", "/metrics")).body.decode().splitlines()
        used = [float(line.split()[-1]) for line in lines if line.startswith("walkgraph_kv_cache_usage_perc{")]
        return bool(used) and sum(used) == 0

    await until(free, 0.1)


@pytest.mark.safety("R5")
async def test_a_client_that_leaves_ends_its_run_at_any_moment(running: Service, scale: Scale, figure: Figure) -> None:
    address, chance = address_of(running), random.Random(5)
    took: list[float] = []
    for number in range(scale(9, 200 * len(APIS))):
        async with asked(address, APIS[number % len(APIS)]) as (_, writer):
            await until_under_way(address, 1)
            await asyncio.sleep(chance.random() * 0.2)  # a random moment is what is tested
            if chance.random() < 0.5:
                reset(writer)
        took.append(await until_under_way(address, 0))
    figure("a run ends after its client", max(took), "s", at_most=1.0)
    await until_cache_free(address)


@pytest.mark.safety("R5")
async def test_a_client_that_vanishes_is_found(running: Service, scale: Scale, figure: Figure) -> None:
    address, chance = address_of(running), random.Random(6)
    async with AsyncExitStack() as stack:
        for number in range(scale(1, 10) * len(APIS)):
            _, writer = await stack.enter_async_context(asked(address, APIS[number % len(APIS)]))
            await until_under_way(address, number + 1)
            await asyncio.sleep(chance.random() * scale(0.0, 0.3))
            vanish(writer.get_extra_info("socket"))
        figure("a client that vanished is found", await until_under_way(address, 0), "s", at_most=20.0)


def upload(address: Address, kind: str, path: str, start: bytes) -> bytes:
    """The head of a request with a large body, and the start of the body."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: {address.host}:{address.port}\r\nAuthorization: Bearer {address.token}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {8 << 20}\r\n\r\n".encode()
        + start
    )


def opening(address: Address, path: str) -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: {address.host}:{address.port}\r\nAuthorization: Bearer {address.token}\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )


@pytest.mark.safety("R5")
async def test_clients_that_vanish_in_an_upload_or_while_they_follow_are_found(
    running: Service, figure: Figure
) -> None:
    """In the midst of a body, as JSON or as a form; and on sockets and streams on which nothing happens."""
    assert running.process is not None
    address, files = address_of(running), Path(f"/proc/{running.process.pid}/fd")
    body = {"deployment": "synthetic_states", "task": "write", "request": {**LONG, "hold": True}}
    run = json.loads((await ask(address, "POST", "/api/v1/runs", body)).body)["id"]
    await ask(address, "GET", "/openapi.json")

    def open_files() -> int:
        return len(list(files.iterdir()))

    baseline = open_files()
    form = b'--b\r\nContent-Disposition: form-data; name="image"; filename="x.png"\r\n\r\n'
    followed = f"/api/v1/runs/{run}/events"
    asks = (
        (upload(address, "application/json", TASK, b'{"params": {"prompt": 5'), None),
        (upload(address, "multipart/form-data; boundary=b", TASK, form), None),
        (upload(address, "multipart/form-data; boundary=b", "/v1/images/edits", form), None),
        (request(address, "GET", followed, keep=True), b"event: accepted\n"),
        (opening(address, f"/ws/v1/runs/{run}"), b"accepted"),
        (opening(address, "/ws/v1/telemetry"), b"\r\n\r\n"),
        (opening(address, f"/ws{TASK}"), b"\r\n\r\n"),
        (opening(address, "/ws/v1/sessions/synthetic_states/remember"), b"\r\n\r\n"),
    )
    async with AsyncExitStack() as stack:
        connections: list[Connection] = []
        for sent, told in asks:
            reader, writer = await stack.enter_async_context(connected(address))
            writer.write(sent)
            await writer.drain()
            if told is not None:
                await reader.readuntil(told)
            connections.append((reader, writer))

        async def all_there() -> bool:
            return open_files() - baseline >= len(asks)

        await until(all_there)
        for _, writer in connections:
            vanish(writer.get_extra_info("socket"))
        began = time.monotonic()

        async def gone() -> bool:
            return open_files() <= baseline

        took = await until(gone, 0.1) - began
        figure("clients that vanished in uploads, streams and sockets are found", took, "s", at_most=20.0)
    assert (await ask(address, "DELETE", f"/api/v1/runs/{run}")).status == 202
    await until_under_way(address, 0)


@contextlib.contextmanager
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.safety("R8")
async def test_a_flood_of_idle_and_slow_clients(running: Service, scale: Scale, figure: Figure) -> None:
    assert running.process is not None
    address, files = address_of(running), Path(f"/proc/{running.process.pid}/fd")

    def open_files() -> int:
        return len(list(files.iterdir()))

    await ask(address, "GET", "/openapi.json")
    baseline = open_files()
    many, few = scale(100, 2000), scale(20, 200)
    with many_files():
        async with AsyncExitStack() as stack:
            for _ in range(many):
                await stack.enter_async_context(connected(address))
            slow = [await stack.enter_async_context(connected(address)) for _ in range(few)]
            for _ in range(few):
                _, writer = await stack.enter_async_context(connected(address, receive_bytes=2048))
                writer.write(request(address, "GET", "/openapi.json"))
            async with asyncio.TaskGroup() as group:
                dripping = group.create_task(drip([writer for _, writer in slow]))
                answers = [await ask(address, "GET", "/health/live") for _ in range(scale(50, 500))]
                held = open_files() - baseline
                dripping.cancel()
    assert {answer.status for answer in answers} == {200}
    assert held >= few, "the clients were there"
    figure("`/health/live`, p99", 1000 * quantile([answer.seconds for answer in answers], 0.99), "ms", at_most=100.0)
    figure("connections held while it was asked", held)

    async def closed() -> bool:
        return open_files() <= baseline

    await until(closed)
    figure("open files more than before", open_files() - baseline, at_most=0)


async def drip(writers: list[asyncio.StreamWriter]) -> None:
    """A byte a second of a head that never ends."""
    for byte in b"GET /health/live HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 1000:
        for writer in writers:
            writer.write(bytes([byte]))
        await asyncio.sleep(1.0)
