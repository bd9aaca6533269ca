"""What the machine does to processes: no more open files, signals in calls, clocks that jump, full pipes."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
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
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.safety.plugin import Figure, Scale
from tests.support.deployment import children, deployed, plan_named
from tests.support.serving import Service, service
from tests.support.yardstick import patience
from tests.unit.service.conftest import Running
from walkgraph.settings import Settings

FILES = 64
HARMLESS = (signal.SIGCONT, signal.SIGWINCH, signal.SIGCHLD, signal.SIGURG)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("machine") / "home") as found:
        found.up("--no-deploy")
        yield found


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
async def test_signals_in_the_middle_of_calls_change_nothing(scale: Scale, figure: Figure) -> None:
    chance, signals, answers = random.Random(19), scale(300, 5000), set[str]()
    async with deployed(*plan_named("synthetic_streams")) as deployment:
        pids = [deployment.process.pid, *children(deployment.process.pid)]
        runs = [deployment.submit("all", {"items": 20, "seed": 1}) for _ in range(8)]
        for number in range(signals):
            os.kill(
                chance.choice(pids), chance.choice((signal.SIGCONT, signal.SIGWINCH, signal.SIGCHLD, signal.SIGURG))
            )
            if number % 10 == 0:
                await asyncio.sleep(0.001)
        for run in runs:
            assert (await deployment.end(run)).error is None
            answers.add(repr(sorted(deployment.outputs[run].items())))
        assert [rank.restarts for rank in deployment.status.ranks] == [0, 0]
    assert len(answers) == 1
    figure("signals that interrupted calls", signals)


@pytest.mark.safety("R19")
async def test_processes_that_were_stopped_go_on(scale: Scale) -> None:
    """To them the clock has jumped: nobody is taken for dead, and no run is lost."""
    async with deployed(*plan_named("synthetic_loops")) as deployment:
        pids = [deployment.process.pid, *children(deployment.process.pid)]
        run = deployment.submit("spin", {"times": 2000})
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(scale(1.5, 30.0))
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)
        assert (await deployment.end(run)).error is None
        assert [rank.restarts for rank in deployment.status.ranks] == [0, 0]


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
def test_a_log_that_nobody_reads_holds_nothing_up(tmp_path: Path) -> None:
    """Standard error is a pipe whose reader has stopped."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 16)
    command = [sys.executable, "-m", "walkgraph.cli.main", "up", "--port", "0", "--json", "--no-deploy"]
    environment = {**os.environ, "WALKGRAPH_HOME": str(tmp_path / "home"), "WALKGRAPH_LOG_LEVEL": "debug"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer, text=True, env=environment)
    try:
        found = Service(tmp_path / "home", process=process)
        found.told = told(process)
        fill(writer)
        url = found.told["url"]
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {found.token}"}, trust_env=False) as http:
            for number in range(50):
                assert http.get(f"/nothing/{number}", timeout=patience(10)).status_code == 404
                assert http.get("/health/live", timeout=patience(10)).status_code == 200
    finally:
        process.kill()
        process.communicate()
        os.close(reader)
        os.close(writer)


def fill(pipe: int) -> None:
    """As one whose reader has stopped."""
    while select.select([], [pipe], [], 0)[1]:
        os.write(pipe, b"x")


def told(process: subprocess.Popen[str]) -> dict[str, str]:
    assert process.stdout is not None
    text = ""
    while not text.endswith("}\n"):
        line = process.stdout.readline()
        assert line
        text += line
    return json.loads(text)
