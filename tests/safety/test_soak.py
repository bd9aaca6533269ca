"""Valid, invalid, cancelled and lost requests for a given time: the service's resources must not grow."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

import pytest

from tests.safety.plugin import Figure, Scale
from tests.support.asking import Address, address_of, ask, connected, head, request, until
from tests.support.deployment import children
from tests.support.sampling import growth, more, sampled, thread_heaps
from tests.support.serving import Service, service

CLIENTS = 6
KILL_SECONDS = 60.0
WARM = 0.6
"""Share of a soak in which what is bounded fills up. Of fifteen minutes with 39,000 requests it took the first ten;
from then on the service's memory stayed within 0.02 MB."""
STATES, LOOPS = "synthetic_states", "synthetic_loops"
WRITE, SPIN = f"/v1/tasks/{STATES}/write", f"/v1/tasks/{LOOPS}/spin"
WRONG = (
    ("POST", SPIN, {"params": {"times": 0}}),
    ("POST", SPIN, {"params": {"unknown": 1}}),
    ("POST", SPIN, [1, 2]),
    ("POST", f"/v1/tasks/{LOOPS}/nothing", {}),
    ("POST", "/v1/tasks/nothing/spin", {}),
    ("POST", "/api/v1/deployments", {"graph": "nothing"}),
    ("GET", "/api/v1/runs/" + "0" * 32, None),
    ("POST", "/v1/chat/completions", {"model": LOOPS, "messages": []}),
)
ENDS = {"worker_lost", "overloaded", "shutting_down", "cancelled", "refused"}
"""Codes with which a valid request may end while workers are killed: `refused` where its deployment isn't ready."""


class Soak:
    """Clients of a service with two deployments."""

    def __init__(self, address: Address, seed: int) -> None:
        self.asked: Counter[str] = Counter()
        self.untyped: list[object] = []
        self._address, self._chance = address, random.Random(seed)
        self._kinds: tuple[Callable[[], Awaitable[None]], ...] = (self._valid, self._result, self._wrong, self._left)

    async def client(self, ends_at: float) -> None:
        while time.monotonic() < ends_at:
            kind = self._chance.choice(self._kinds)
            try:
                await kind()
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                self.untyped.append(repr(error))
            self.asked[kind.__name__] += 1

    async def _valid(self) -> None:
        """A stream that is followed to its end."""
        path, params = self._chance.choice(((WRITE, {"prompt": self._chance.randrange(1, 300)}), (SPIN, {"times": 50})))
        answer = await ask(self._address, "POST", path, {"stream": True, "params": params})
        if answer.status != 200:
            self._typed(answer.status, answer.body)
        elif not answer.served:
            last = answer.body.rpartition(b"event: error\n")[2].partition(b"data: ")[2]
            self._typed(503, last or answer.body)

    async def _result(self) -> None:
        answer = await ask(self._address, "POST", SPIN, {"params": {"times": 20}})
        if answer.status != 200:
            self._typed(answer.status, answer.body)

    async def _wrong(self) -> None:
        answer = await ask(self._address, *self._chance.choice(WRONG))
        if not 400 <= answer.status < 500:
            self.untyped.append((answer.status, answer.body[:200]))

    async def _left(self) -> None:
        """A client that leaves in the midst of its run."""
        async with connected(self._address) as (reader, writer):
            body = {"stream": True, "params": {"prompt": 20, "times": 5000}}
            writer.write(request(self._address, "POST", WRITE, body))
            if (await head(reader))[0] == 200:
                await reader.readline()
                await asyncio.sleep(self._chance.random() * 0.1)  # a random moment is what is tested

    def _typed(self, status: int, body: bytes) -> None:
        try:
            told = json.loads(body.splitlines()[0])
            code = (told.get("error") or told)["code"]
        except (ValueError, LookupError, TypeError, AttributeError):
            code = None
        if status not in (404, 409, 503) or code not in ENDS:
            self.untyped.append((status, body[:200]))


async def killing(found: Service, pause: float, ends_at: float) -> int:
    """A worker every `pause` seconds, in turn; how many were."""
    killed = 0
    with found.client() as client:
        while time.monotonic() + pause < ends_at:
            await asyncio.sleep(pause)
            rows = [row for row in await asyncio.to_thread(client.deployments) if row["state"] == "ready"]
            if rows:
                os.kill(rows[killed % len(rows)]["ranks"][0]["pid"], signal.SIGKILL)
                killed += 1
    return killed


@pytest.fixture
def seconds(request: pytest.FixtureRequest, scale: Scale) -> float:
    minutes: float | None = request.config.getoption("--soak-minutes")
    return scale(4.0, 7200.0) if minutes is None else 60 * minutes


@pytest.mark.safety("R18")
async def test_a_soak_leaves_nothing(running: Service, seconds: float, figure: Figure) -> None:
    assert running.process is not None
    address, ends_at = address_of(running), time.monotonic() + seconds
    soak = Soak(address, 18)
    with sampled(running.process.pid, max(0.25, seconds / 3600)) as samples:
        tasks = [asyncio.create_task(soak.client(ends_at)) for _ in range(CLIENTS)]
        killed = await killing(running, min(KILL_SECONDS, 0.6 * seconds), ends_at)
        await asyncio.gather(*tasks)
    assert soak.untyped == []
    assert all(soak.asked.values())

    async def all_over() -> bool:
        rows = json.loads((await ask(address, "GET", "/api/v1/deployments")).body)
        return all((row["state"], row["running"], row["waiting"]) == ("ready", 0, 0) for row in rows)

    await until(all_over)
    figure("soaked", seconds / 60, "minutes")
    figure("requests", soak.asked.total())
    figure("cancelled by their clients", soak.asked["_left"])
    figure("workers killed", killed)
    figure("memory of the service", growth(samples.service, WARM), "MB an hour", at_most=1.0)
    figure("memory of all processes", growth(samples.family, WARM), "MB an hour")
    figure("open files more, service", more([held.files for held in samples.service]), at_most=0)
    figure("threads more, service", more([held.threads for held in samples.service]), at_most=0)
    figure("open files more, all processes", more([held.files for held in samples.family]), at_most=8)
    figure("segments of shared memory more", more(samples.shared), at_most=0)


@pytest.mark.safety("R18")
def test_the_threads_of_a_process_share_a_heap(running: Service) -> None:
    """With one for each, what is free is spread over them, and the process grows for hours."""
    assert running.process is not None
    # Its own children are two conductors and the fork server.
    heaps = {pid: thread_heaps(pid) for pid in (running.process.pid, *children(running.process.pid))}
    assert len(heaps) == 4
    assert not any(heaps.values()), heaps


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("leak") / "home", studio="false") as found:
        found.command = (sys.executable, "-m", "tests.support.leaking")
        found.up("--no-deploy")
        yield found


@pytest.mark.safety("R18")
def test_a_planted_leak_is_found(leaking: Service, running: Service) -> None:
    """By the same samples that find none in the service itself."""
    found = {}
    for name, one in (("leaking", leaking), ("as it is", running)):
        assert one.process is not None
        with sampled(one.process.pid, 0.1) as samples:
            while len(samples.service) < 24:
                time.sleep(0.1)
        found[name] = (growth(samples.service), more([held.files for held in samples.service]))
    memory, files = found["leaking"]
    assert memory > 100, "MB an hour; it leaks 4 MB a second"
    assert files > 0
    assert found["as it is"][0] < memory / 10
    assert found["as it is"][1] <= 0


def test_growth_is_that_of_most_samples() -> None:
    from tests.support.sampling import Held

    flat = [Held(float(at), 100.0 + (50.0 if at == 70 else 0.0), 9, 4) for at in range(100)]
    assert growth(flat) == 0
    assert abs(growth([one._replace(memory=one.memory + one.at / 3600) for one in flat]) - 1.0) < 1e-6
    assert more([9, 9, 12, 12, 9, 12, 12, 9]) == 0
    assert more([9, 9, 9, 9, 10, 10, 11, 11]) > 0
