"""The product as it is started: `walkgraph up`, a run, a crash, a restart, an end."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from PIL import Image

from tests.support.serving import Service, children, service, wait_gone
from tests.support.yardstick import patience
from walkgraph.client import Event, ProblemError, Unreachable

PROMPT = {"inputs": {"prompt": "a red circle on white"}, "params": {"steps": 6, "seed": 7}}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A first start, with its starter graph ready."""
    with service(tmp_path_factory.mktemp("up") / "home") as found:
        found.up()
        found.wait_ready("shapes")
        yield found


def test_the_first_start_deploys_the_starter_and_draws(running: Service) -> None:
    assert running.told["starter"] == "shapes"
    assert running.told["starter_problem"] is None
    with running.client() as client:
        result = client.run("shapes", "text_to_image", PROMPT)
        picture = Image.open(io.BytesIO(base64.b64decode(result["outputs"]["image"][0]["data"])))
        assert picture.size == (64, 64)
        assert result["seed"] == 7
        assert {"llm", "vae_decoder"} <= {row["node"] for row in result["times"]}
        again = client.run("shapes", "text_to_image", PROMPT)
        assert again["outputs"] == result["outputs"]
        assert {row["id"] for row in client.runs("shapes")} >= {result["run"], again["run"]}


def test_events_come_while_it_runs(running: Service) -> None:
    with running.client() as client:
        request = {**PROMPT, "params": {"steps": 12, "preview_every": 3, "seed": 7}}
        events = list(client.stream("shapes", "text_to_image", request))
    names = [event.data.get("name", event.name) for event in events]
    assert names[0] == "accepted"
    assert names[-1] == "done"
    assert names.count("preview") == 3
    assert names.index("preview") < names.index("image")


def test_a_picture_is_described_through_the_command_line(running: Service, tmp_path: Path) -> None:
    environment = {**os.environ, "WALKGRAPH_HOME": str(running.home)}

    def walkgraph(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "walkgraph.cli.main", *words]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    drawn = walkgraph("run", "shapes", "text_to_image", "--prompt", "a blue square", "--steps", "20", "-o", "s.png")
    assert drawn.returncode == 0, drawn.stderr
    said = walkgraph("run", "shapes", "image_to_text", "--image", "s.png", "--json")
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)["outputs"]["text"][0]["text"].strip()
    status = walkgraph("status", "--json")
    assert json.loads(status.stdout)["deployments"][0]["state"] == "ready"
    assert walkgraph("up").returncode == 1


@pytest.mark.safety("R5")
def test_a_client_that_leaves_ends_its_run(running: Service) -> None:
    with running.client() as client:
        request = {**PROMPT, "params": {"steps": 200, "seed": 99}}
        events = client.stream("shapes", "text_to_image", request)
        run = next(iter(events)).data["run"]
        events.close()  # type: ignore[attr-defined]
        deadline = time.monotonic() + patience(5)
        found = {"state": "running"}
        while found["state"] == "running" and time.monotonic() < deadline:
            found = next(row for row in client.runs("shapes") if row["id"] == run)
        assert found["state"] in ("cancelled", "failed")
        assert found["error"]["code"] == "cancelled"


@pytest.mark.safety("S16", "S15")
def test_files_are_private_and_the_token_is_nowhere_else(running: Service) -> None:
    assert stat.S_IMODE(running.home.stat().st_mode) == 0o700
    for entry in running.home.rglob("*"):
        if not entry.is_socket():
            assert stat.S_IMODE(entry.stat().st_mode) & 0o077 == 0, entry
    assert running.process is not None
    for pid in {running.process.pid} | children(running.process.pid):
        for name in ("cmdline", "environ"):
            assert running.token.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
    code = running.told["studio"].partition("code=")[2]
    assert running.token not in running.log
    assert code not in running.log


@pytest.mark.safety("S11")
def test_it_listens_on_loopback_alone(running: Service) -> None:
    assert running.process is not None
    pids = {running.process.pid} | children(running.process.pid)
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(link.readlink())
            except FileNotFoundError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    listening = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                listening.append(fields[1])
    assert len(listening) == 1
    assert listening[0].startswith("0100007F:")


def test_the_studio_lets_in_one_browser(running: Service) -> None:
    with httpx.Client(trust_env=False) as browser:
        assert browser.get(f"{running.told['url']}/studio/").status_code == 401
        first = browser.get(running.told["studio"])
        assert first.status_code == 303
        page = browser.get(f"{running.told['url']}/studio/")
        assert page.status_code == 200
        assert "<title>" in page.text
        assert browser.get(f"{running.told['url']}/studio/_stcore/health").status_code == 200
        assert httpx.get(f"{running.told['url']}/studio/_stcore/health", trust_env=False).status_code == 401


@pytest.mark.safety("R3")
def test_a_killed_service_takes_its_processes_along_and_comes_back(tmp_path: Path) -> None:
    with service(tmp_path / "home", studio="false") as found:
        # As users have it; other tests' ranks compute with one thread.
        found.environment["OMP_NUM_THREADS"] = str(os.cpu_count())
        found.up()
        found.wait_ready("shapes")
        assert found.process is not None
        family = children(found.process.pid)
        assert len(family) >= 2
        found.signal(signal.SIGKILL)
        wait_gone(family, patience(1.0))
        found.ended()
        found.up()
        assert found.seconds < patience(10)
        assert found.told["starter"] is None
        found.wait_ready("shapes")
        with found.client() as client:
            assert client.run("shapes", "text_to_image", PROMPT)["outputs"]["image"]
            client.undeploy("shapes")
            assert client.deployments() == []
        assert found.down() == 0
        found.up()
        with found.client() as client:
            assert client.deployments() == []
        assert found.down() == 0
        assert not (found.home / "service.json").exists()


@pytest.mark.safety("R1")
def test_a_lost_deployment_process_fails_its_runs_alone(tmp_path: Path) -> None:
    with service(tmp_path / "home", studio="false") as found:
        found.up("--no-deploy")
        with found.client() as client:
            client.deploy("shapes", "shapes_one_cpu", "one")
            client.deploy("shapes", "shapes_one_cpu", "two")
            found.wait_ready("one")
            found.wait_ready("two")
            events = client.stream("one", "text_to_image", {**PROMPT, "params": {"steps": 200, "seed": 1}})
            next(iter(events))
            assert found.process is not None
            directory = next(
                folder.name
                for folder in (found.home / "d").iterdir()
                if folder.is_dir() and json.loads((folder / "spec.json").read_text())["name"] == "one"
            )
            conductor = next(
                pid
                for pid in children(found.process.pid)
                if "conductor" in (line := Path(f"/proc/{pid}/cmdline").read_text()) and directory in line
            )
            began = time.monotonic()
            os.kill(conductor, signal.SIGKILL)
            last = list(events)[-1]
            assert time.monotonic() - began < patience(1.0)
            assert last.name == "error"
            assert (last.data["error"]["code"], last.data["error"]["retryable"]) == ("worker_lost", True)
            assert client.run("two", "text_to_image", PROMPT)["outputs"]["image"]
            assert found.wait_ready("one")["restarts"] == 1
            assert client.run("one", "text_to_image", PROMPT)["outputs"]["image"]
        assert found.down() == 0


@contextmanager
def spinning(found: Service, times: int) -> Iterator[list[Event]]:
    """A run that was accepted, of so many steps; its events as they come. It is over at the end."""
    events: list[Event] = []
    begun = threading.Event()

    def follow() -> None:
        with found.client() as client:
            for event in client.stream("loops", "spin", {"params": {"times": times}}):
                events.append(event)
                begun.set()

    with found.client() as client:
        client.deploy("synthetic_loops", name="loops")
        found.wait_ready("loops")
    thread = threading.Thread(target=follow)
    thread.start()
    assert begun.wait(300)
    yield events
    thread.join()


@pytest.mark.safety("R16")
def test_sigterm_lets_runs_finish_and_takes_nothing_new(tmp_path: Path) -> None:
    with service(tmp_path / "home", studio="false", drain_timeout="600") as found:
        found.up("--no-deploy")
        with spinning(found, 12_000) as events, found.client() as client:
            found.signal(signal.SIGTERM)
            while client.ready():
                pass
            assert [event.name for event in events] == ["accepted"]
            with pytest.raises((ProblemError, Unreachable)) as refused:
                client.run("loops", "spin", {})
            assert isinstance(refused.value, Unreachable) or refused.value.status == 503
        assert events[-1].name == "done"
        assert found.ended() == 0


@pytest.mark.safety("R16")
def test_runs_that_outlast_the_draining_end_with_a_reason(tmp_path: Path) -> None:
    with service(tmp_path / "home", studio="false", drain_timeout="0") as found:
        found.up("--no-deploy")
        with spinning(found, 1_000_000) as events:
            found.signal(signal.SIGTERM)
        assert events[-1].name == "error"
        assert (events[-1].data["error"]["code"], events[-1].data["error"]["retryable"]) == ("shutting_down", True)
        assert found.ended() == 0
