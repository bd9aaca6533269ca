"""Effects of the machine on processes: no more open files, signals during calls, clock jumps, full pipes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio

from tests.safety.plugin import Figure, Scale
from tests.support.deployment import Deployment, deployed, plan_named, workers_of
from tests.support.serving import Service
from tests.support.yardstick import patience
from tests.unit.service.conftest import Running
from walkgraph.settings import Settings

FILES = 64
HARMLESS = (signal.SIGCONT, signal.SIGWINCH, signal.SIGCHLD, signal.SIGURG)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Its output and its log are one pipe, which is full from the beginning and which nobody reads."""
    home = tmp_path_factory.mktemp("machine") / "home"
    reader, writer = os.pipe()
    fill(writer)
    command = [sys.executable, "-m", "walkgraph.cli.main", "up", "--port", "0", "--no-deploy"]
    environment = {**os.environ, "WALKGRAPH_HOME": str(home), "WALKGRAPH_LOG_LEVEL": "debug"}
    process = subprocess.Popen(command, stdout=writer, stderr=writer, text=True, env=environment)
    found = Service(home, process=process)
    try:
        found.told = address(found)
        yield found
    finally:
        process.kill()
        process.wait()
        os.close(reader)
        os.close(writer)


def address(found: Service) -> dict[str, str]:
    """From the file that tells other programs of a service, once it serves."""
    end = time.monotonic() + patience(60)
    file = found.home / "service.json"
    while not file.exists():
        assert found.process is not None
        assert found.process.poll() is None, "the service has ended"
        assert time.monotonic() < end, "the service does not start"
        time.sleep(0.05)
    return json.loads(file.read_text())


def fill(pipe: int) -> None:
    """As one whose reader has stopped."""
    while select.select([], [pipe], [], 0)[1]:
        os.write(pipe, b"x" * select.PIPE_BUF)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def streams() -> AsyncIterator[Deployment]:
    async with deployed(*plan_named("synthetic_streams")) as deployment:
        yield deployment


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208


@contextlib.contextmanager
def few_files(pid: int, more: int) -> Iterator[None]:
    """A process may open so many more files, and 64 in all at most where it has fewer."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    most = max(open_files(pid) + more, 1)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.safety("R19")
def test_a_service_that_may_open_no_more_files_answers_again_once_it_may(running: Service, figure: Figure) -> None:
    """Connections wait, what it should start fails in words; those that are there are served meanwhile."""
    assert running.process is not None
    pid, url = running.process.pid, running.told["url"]
    host, port = urlsplit(url).hostname, urlsplit(url).port
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {running.token}"}, trust_env=False) as http:
        assert http.get("/health/live").status_code == 200
        before = open_files(pid)
        with contextlib.ExitStack() as held, few_files(pid, FILES - 60):
            for _ in range(FILES):
                held.enter_context(socket.create_connection((str(host), int(port or 0))))
            assert http.get("/health/live", timeout=patience(10)).status_code == 200
            deployed = http.post("/api/v1/deployments", json={"graph": "synthetic_loops"}, timeout=patience(20))
            assert deployed.status_code in (202, 503), deployed.text
            status = failed(http) if deployed.status_code == 202 else "refused"
            assert status in ("failed", "refused"), status
        began = time.monotonic()
        with httpx.Client(base_url=url, trust_env=False) as another:
            assert another.get("/health/live", timeout=patience(20)).status_code == 200
        figure("connected again once files may be opened", time.monotonic() - began, "s", at_most=5.0)
        http.delete("/api/v1/deployments/synthetic_loops")
        assert http.post("/api/v1/deployments", json={"graph": "synthetic_loops"}).status_code == 202
        running.wait_ready("synthetic_loops")
        assert http.delete("/api/v1/deployments/synthetic_loops").status_code == 204
        end = time.monotonic() + patience(20)
        while open_files(pid) > before + 4 and time.monotonic() < end:
            time.sleep(0.1)
        assert open_files(pid) <= before + 4, "files that were open are closed"


def failed(http: httpx.Client) -> str:
    end = time.monotonic() + patience(20)
    state = ""
    while time.monotonic() < end:
        state = http.get("/api/v1/deployments/synthetic_loops", timeout=patience(20)).json()["state"]
        if state == "failed":
            break
        time.sleep(0.1)
    return state


@pytest.mark.safety("R19")
@pytest.mark.asyncio(loop_scope="module")
async def test_signals_in_the_middle_of_calls_change_nothing(streams: Deployment, scale: Scale, figure: Figure) -> None:
    chance, signals, answers = random.Random(19), scale(300, 5000), set[str]()
    pids = [streams.process.pid, *workers_of(streams.process.pid)]
    runs = [streams.submit("all", {"items": 20, "seed": 1}) for _ in range(8)]
    for number in range(signals):
        os.kill(chance.choice(pids), chance.choice(HARMLESS))
        if number % 10 == 0:
            await asyncio.sleep(0.001)
    for run in runs:
        assert (await streams.end(run)).error is None
        answers.add(repr(sorted(streams.outputs[run].items())))
    assert [rank.restarts for rank in streams.status.ranks] == [0, 0]
    assert len(answers) == 1
    figure("signals that interrupted calls", signals)


@pytest.mark.safety("R19")
@pytest.mark.asyncio(loop_scope="module")
async def test_processes_that_were_stopped_go_on(streams: Deployment, scale: Scale) -> None:
    """To them the clock has jumped: nobody is taken for dead, and no run is lost."""
    pids = [streams.process.pid, *workers_of(streams.process.pid)]
    run = streams.submit("all", {"items": 200, "seed": 1})
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(scale(1.5, 30.0))  # how long they are stopped is what is tested
    for pid in reversed(pids):
        os.kill(pid, signal.SIGCONT)
    assert (await streams.end(run)).error is None
    assert [rank.restarts for rank in streams.status.ranks] == [0, 0]


@pytest.mark.safety("R19")
@pytest.mark.parametrize("years", [-20, 20])
async def test_a_wall_clock_that_jumps(settings: Settings, monkeypatch: pytest.MonkeyPatch, years: int) -> None:
    """Backwards and forwards: requests are answered, keys and limits count by a clock that can't jump."""
    from tests.unit.service.conftest import serving
    from tests.unit.service.fakes import FakeFleet

    real = time.time
    async with serving(settings, FakeFleet()) as running:
        await running.deploy()
        await drawn(running)
        monkeypatch.setattr(time, "time", lambda: real() + years * 365 * 86_400)
        for _ in range(5):
            await drawn(running)
        monkeypatch.setattr(time, "time", real)
        await drawn(running)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    from walkgraph.store.session import Store

    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    made = Settings(home=home, studio=False)
    Store.open(made.database).close()
    return made


async def drawn(running: Running) -> None:
    answer = await running.http.post("/v1/tasks/shapes/text_to_image", json={"inputs": {"prompt": "a red circle"}})
    assert answer.status_code == 200, answer.text


@pytest.mark.safety("R19")
def test_a_log_that_nobody_reads_holds_nothing_up(running: Service) -> None:
    """Neither the start nor what comes then."""
    url = running.told["url"]
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {running.token}"}, trust_env=False) as http:
        for number in range(50):
            assert http.get(f"/nothing/{number}", timeout=patience(10)).status_code == 404
            assert http.get("/health/live", timeout=patience(10)).status_code == 200
