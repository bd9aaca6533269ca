"""Telemetry clients that read nothing, next to one that reads everything."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.safety.plugin import Figure, Scale
from tests.support.asking import Address, address_of, ask, connected, head, quantile, until
from tests.support.sampling import of_process
from tests.support.serving import Service

STEPS = 400
RUN = {"params": {"times": STEPS}}
TASK, LEVEL = "/v1/tasks/synthetic_loops/spin", "/api/v1/deployments/synthetic_loops/watch/level"
MIB = 1.048576
"""Megabytes."""


async def steps(address: Address, runs: int) -> list[float]:
    """Seconds a step, of each run."""
    took: list[float] = []
    for _ in range(runs):
        answer = await ask(address, "POST", TASK, RUN)
        assert answer.status == 200, answer.body
        took.append(json.loads(answer.body)["seconds"] / STEPS)
    return took


async def follow(address: Address, frames: list[dict[str, Any]]) -> None:
    headers = {"Authorization": f"Bearer {address.token}"}
    url = f"ws://{address.host}:{address.port}/ws/v1/telemetry"
    async with connect(url, additional_headers=headers, proxy=None) as socket:
        async for message in socket:
            frames.append(json.loads(message))


async def closed_after(address: Address) -> float:
    """How long a client that reads nothing is kept, beside the one that reads."""

    async def alone() -> bool:
        await steps(address, 1)
        return b"walkgraph_telemetry_clients 1.0\n" in (await ask(address, "GET", "/metrics")).body

    await until(alone)
    async with connected(address, receive_bytes=2048) as (stuck, writer):
        writer.write(handshake(address))
        assert (await head(stuck))[0] == 101
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        began = time.monotonic()
        await asyncio.sleep(1)
        return await until(alone) - began


def handshake(address: Address) -> bytes:
    return (
        f"GET /ws/v1/telemetry HTTP/1.1\r\nHost: {address.host}:{address.port}\r\n"
        f"Authorization: Bearer {address.token}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    ).encode()


@pytest.mark.safety("R9")
async def test_fifty_that_read_nothing(running: Service, scale: Scale, figure: Figure) -> None:
    assert running.process is not None
    address, pid, many = address_of(running), running.process.pid, scale(10, 50)
    assert (await ask(address, "PUT", LEVEL, {"level": "full"})).status < 300
    frames: list[dict[str, Any]] = []
    alone: list[float] = []
    beside: list[float] = []
    async with asyncio.TaskGroup() as group:
        reader = group.create_task(follow(address, frames))
        await steps(address, 2)
        for _ in range(scale(1, 5)):
            alone += await steps(address, scale(4, 40))
            before = of_process(pid, 0)
            async with AsyncExitStack() as stack:
                readers: list[asyncio.StreamReader] = []
                for _ in range(many):
                    stuck, writer = await stack.enter_async_context(connected(address, receive_bytes=2048))
                    writer.write(handshake(address))
                    assert (await head(stuck))[0] == 101
                    # Its own buffer is full soon, and then the kernel's: nothing of it is taken.
                    writer.transport.pause_reading()  # type: ignore[attr-defined]
                    readers.append(stuck)
                beside += await steps(address, scale(4, 40))
                after = of_process(pid, 0)
        if scale(False, True):
            figure("one that reads nothing is closed after", await closed_after(address), "s", at_most=30.0)
        reader.cancel()
    assert (await ask(address, "PUT", LEVEL, {"level": "summary"})).status < 300
    numbers = [frame["seq"] for frame in frames if "seq" in frame]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "who reads sees no gap"
    assert not any(frame["type"] == "dropped" for frame in frames)
    assert len(numbers) > 10
    assert before is not None
    assert after is not None
    figure("telemetry clients that read nothing", many)
    figure("memory a client", max(0.0, after.memory - before.memory) / MIB / many, "MiB", at_most=1.0)
    change = 100 * (quantile(beside, 0.99) / quantile(alone, 0.99) - 1)
    figure("a step, p50", 1e6 * quantile(beside, 0.5), "µs")
    figure("a step's p99 changes", change, "%", at_most=2.0)
