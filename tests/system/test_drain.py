"""SIGTERM under load: runs that can finish do, the others get the reason, and the service ends in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.safety.plugin import Figure
from tests.support.serving import Service, children, service, wait_gone
from tests.support.yardstick import patience
from walkgraph.client import ClientError, Event

STREAMS = 32
DRAIN = 3.0
SHORT, FOREVER = 20, 1_000_000
"""Steps of a run: taken in turn with those of all others, and longer than any drain."""


@contextmanager
def under_load(found: Service, times: list[int]) -> Iterator[list[list[Event]]]:
    """So many streams, all accepted; the events of each as they come. All are over at the end."""
    told: list[list[Event]] = [[] for _ in times]
    begun = threading.Barrier(len(times) + 1)

    def follow(number: int) -> None:
        with found.client() as client:
            try:
                for event in client.stream("loops", "spin", {"params": {"times": times[number]}}):
                    told[number].append(event)
                    if event.name == "accepted":
                        begun.wait(300)
            except ClientError as error:
                told[number].append(Event("broken", {"reason": str(error)}))
                begun.abort()

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(len(times))]
    for thread in threads:
        thread.start()
    begun.wait(300)
    yield told
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[Service]:
    with service(tmp_path / "home", studio="false", drain_timeout=str(DRAIN)) as found:
        found.up("--no-deploy")
        with found.client() as client:
            client.deploy("synthetic_loops", name="loops")
        found.wait_ready("loops")
        yield found


@pytest.mark.safety("R16")
def test_a_drain_under_load_keeps_its_time(loops: Service, figure: Figure) -> None:
    assert loops.process is not None
    family = children(loops.process.pid)
    token = {"Authorization": f"Bearer {loops.token}"}
    short = STREAMS // 2
    with (
        under_load(loops, [SHORT] * short + [FOREVER] * (STREAMS - short)) as told,
        httpx.Client(base_url=loops.told["url"], headers=token, trust_env=False) as http,
    ):
        began = time.monotonic()
        loops.signal(signal.SIGTERM)
        while http.get("/health/ready").status_code == 200:
            assert time.monotonic() - began < patience(0.5)
        figure("not ready", time.monotonic() - began, "s")
        for path, body in (
            ("/v1/tasks/loops/spin", {}),
            ("/v1/chat/completions", {"model": "loops", "messages": []}),
        ):
            refused = http.post(path, json=body)
            assert refused.status_code == 503
            assert 1 <= int(refused.headers["retry-after"]) <= 30
            assert '"shutting_down"' in refused.text
        assert http.get("/health/live").status_code == 200
        assert loops.ended(60) == 0
        took = time.monotonic() - began
        assert took <= patience(DRAIN + 2.0)
        figure("gone, beyond the time to drain", took - DRAIN, "s", at_most=2.0)
    ends = [events[-1] for events in told]
    assert [end.name for end in ends] == ["done"] * short + ["error"] * (STREAMS - short)
    for end in ends[short:]:
        assert (end.data["error"]["code"], end.data["error"]["retryable"]) == ("shutting_down", True)
    wait_gone(family, patience(1.0))


@pytest.mark.safety("R16")
def test_a_second_signal_ends_it_at_once(loops: Service) -> None:
    assert loops.process is not None
    family = children(loops.process.pid)
    with under_load(loops, [FOREVER] * STREAMS) as told, loops.client() as client:
        loops.signal(signal.SIGTERM)
        while client.ready():
            pass
        began = time.monotonic()
        loops.signal(signal.SIGTERM)
        assert loops.ended(60) == 0
        assert time.monotonic() - began < patience(1.5)
    assert all(events[-1].name in ("error", "broken") for events in told)
    wait_gone(family, patience(1.0))


@pytest.mark.safety("S15")
def test_keys_are_nowhere_but_where_they_are_shown(tmp_path: Path) -> None:
    """Nor the token: not in logs, process arguments, environments of workers, or files of the home."""
    with service(tmp_path / "home", studio="false", log_level="debug") as found:
        found.up("--no-deploy")
        assert found.process is not None
        environment = {**os.environ, "WALKGRAPH_HOME": str(found.home)}
        command = [sys.executable, "-m", "walkgraph.cli.main", "keys", "add", "robot", "--scope", "infer"]
        made = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        key = next(word for word in made.stdout.split() if word.startswith("wg_"))
        secret = key.split("_", 2)[2]
        with httpx.Client(base_url=found.told["url"], trust_env=False) as http:
            headers = {"Authorization": f"Bearer {key}"}
            assert http.get("/v1/limits", headers=headers).status_code == 200
            assert http.get(f"/v1/limits?key={key}").status_code == 401
            assert http.get(f"/{key}", headers=headers).status_code == 403
            assert http.put(f"/{key}", headers=headers, json={}).status_code == 403
            assert http.put("/api/v1/graphs/x", headers=headers, json={"a": key}).status_code == 403
        for hidden in (secret, found.token):
            for pid in {found.process.pid} | children(found.process.pid):
                for name in ("cmdline", "environ"):
                    assert hidden.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
            assert hidden not in found.log
            for path in found.home.rglob("*"):
                if path.is_file() and path.name != "token":
                    assert hidden.encode() not in path.read_bytes(), path
        assert found.down() == 0
