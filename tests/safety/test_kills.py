"""Processes are killed: the service itself, and one worker of many."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.safety.plugin import Figure, Scale
from tests.support.asking import Address, Answer, address_of, ask, connected, head, quantile, request, until
from tests.support.deployment import shared_memory
from tests.support.serving import Service, children, service, wait_gone
from walkgraph.client import Client

FOUR = ("synthetic_loops", "synthetic_states", "reach", "shapes")
ON = {"reach": "reach_one_cpu", "shapes": "shapes_one_cpu"}
"""Graph -> placement, where it has one of its own."""
SECONDS = 300.0
"""No test waits longer: a bound for what hangs."""


def all_ready(found: Service, names: tuple[str, ...]) -> None:
    for name in names:
        found.wait_ready(name)


@pytest.mark.safety("R3")
def test_a_killed_service_brings_four_deployments_back(tmp_path: Path, scale: Scale, figure: Figure) -> None:
    before, gone, back = shared_memory(), list[float](), list[float]()
    names = FOUR[: scale(1, len(FOUR))]
    with service(tmp_path / "home", studio="false") as found:
        found.up("--no-deploy")
        began = time.monotonic()
        with found.client() as client:
            for name in names:
                client.deploy(name, ON.get(name))
        all_ready(found, names)
        load = time.monotonic() - began
        port = found.told["url"].rpartition(":")[2]
        chance = random.Random(3)
        for _ in range(scale(1, 50)):
            assert found.process is not None
            family = children(found.process.pid)
            assert len(family) >= 2 * len(names)
            time.sleep(chance.random() * 0.2)  # a random moment is what is tested
            found.signal(signal.SIGKILL)
            gone.append(wait_gone(family, SECONDS))
            found.ended()
            assert shared_memory() <= before, "shared memory of the killed is left"
            began = time.monotonic()
            found.up("--port", port)
            all_ready(found, names)
            back.append(time.monotonic() - began)
            with found.client() as client:
                assert {row["id"] for row in client.deployments()} == set(names)
                assert client.run("synthetic_loops", "spin", {"params": {"times": 5}})["outputs"]["value"]
        assert found.down() == 0
    assert shared_memory() <= before
    figure("workers gone", max(gone), "s", at_most=1.0)
    figure("load of the four", load, "s")
    figure("back, beyond their load", max(back) - load, "s", at_most=5.0)


# ── one worker of two deployments ───────────────────────────────────────────────────────────────

STREAMS = 32
KILLED, OTHER = "synthetic_states", "synthetic_loops"
LONG = {"stream": True, "params": {"prompt": 50, "times": 20_000}}
SHORT = {"stream": True, "params": {"times": 20}}


class Bystanders:
    """Streams of the deployment that nothing happens to: each client asks again and again."""

    def __init__(self, address: Address, number: int) -> None:
        self.answers: list[Answer] = []
        self._address = address
        self._tasks = [asyncio.create_task(self._client()) for _ in range(number)]

    async def _client(self) -> None:
        while True:
            self.answers.append(await ask(self._address, "POST", f"/v1/tasks/{OTHER}/spin", SHORT))

    async def during(self, count: int) -> list[Answer]:
        """The next so many."""
        begun = len(self.answers)
        while len(self.answers) < begun + count:
            for task in self._tasks:
                assert not task.done(), task.exception()
            await asyncio.sleep(0.05)
        return self.answers[begun:]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()


async def stream(address: Address, begun: asyncio.Event | None = None) -> tuple[dict[str, object], float]:
    """(the last event, when it came) of one long run."""
    async with connected(address) as (reader, writer):
        writer.write(request(address, "POST", f"/v1/tasks/{KILLED}/write", LONG))
        assert (await head(reader))[0] == 200
        await reader.readuntil(b"event: output\n")
        if begun is not None:
            begun.set()
        async with asyncio.timeout(SECONDS):
            while not (line := await reader.readline()).startswith((b"event: error", b"event: done")):
                assert line, "a stream ends with its run's last event"
            ended = time.monotonic()
            while not (line := await reader.readline()).startswith(b"data: "):
                pass
        return json.loads(line.removeprefix(b"data: ")), ended


def worker(client: Client) -> int:
    [row] = [row for row in client.deployments() if row["id"] == KILLED]
    return row["ranks"][0]["pid"]


async def is_ready(address: Address) -> bool:
    status = (await ask(address, "GET", f"/health/ready?deployment={KILLED}")).status
    assert status in (200, 503)
    return status == 200


async def until_lost(address: Address, restarts: int) -> float:
    """When the deployment is not ready, or has started its worker more often than `restarts` times: where the service
    answers late, the worker may be back by then."""

    async def told() -> bool:
        if not await is_ready(address):
            return True
        row = json.loads((await ask(address, "GET", f"/api/v1/deployments/{KILLED}")).body)
        return row["ranks"][0]["restarts"] > restarts

    return await until(told, 0.005)


@pytest.mark.safety("R1")
async def test_a_worker_is_killed_under_32_streams(running: Service, scale: Scale, figure: Figure) -> None:
    address, chance = address_of(running), random.Random(1)
    told, unready, back, shm = list[float](), list[float](), list[float](), shared_memory()
    disturbed: list[Answer] = []
    undisturbed: list[Answer] = []
    others = Bystanders(address, STREAMS // 2)
    with running.client() as client:
        before = {row["id"]: row["ranks"][0]["restarts"] for row in client.deployments()}
        for restarts in range(before[KILLED], before[KILLED] + scale(1, 100)):
            begun = [asyncio.Event() for _ in range(STREAMS // 2)]
            streams = [asyncio.create_task(stream(address, event)) for event in begun]
            async with asyncio.timeout(SECONDS):
                for event in begun:
                    await event.wait()
            undisturbed += await others.during(scale(16, 50))
            await asyncio.sleep(chance.random() * 0.2)  # a random step is what is tested
            pid = await asyncio.to_thread(worker, client)
            first = len(others.answers)
            os.kill(pid, signal.SIGKILL)
            killed = time.monotonic()
            unready.append(await until_lost(address, restarts) - killed)
            for last, ended in await asyncio.gather(*streams):
                error = last.get("error")
                assert isinstance(error, dict), last
                assert (error["code"], error["retryable"]) == ("worker_lost", True)
                told.append(ended - killed)
            back.append(await until(lambda: is_ready(address), 0.005) - killed)
            disturbed += others.answers[first:]
            answer = await ask(address, "POST", f"/v1/tasks/{KILLED}/write", {"params": {"times": 3}})
            assert answer.status == 200, answer.body
            await others.during(1)
        assert all(answer.served for answer in others.answers), "the other deployment has no error"
        others.stop()
        for row in client.deployments():
            assert row["ranks"][0]["restarts"] == before[row["id"]] + (scale(1, 100) if row["id"] == KILLED else 0)
    assert shared_memory() == shm
    figure("streams told", max(told), "s", at_most=1.0)
    figure("not ready", max(unready), "s", at_most=0.5)
    figure("back", max(back), "s", at_most=5.0)
    slower = quantile([one.seconds for one in disturbed], 0.99) / quantile([one.seconds for one in undisturbed], 0.99)
    figure("p99 of the other deployment, of that without a kill", slower, "times", at_most=1.5)
