"""A real service in a home of its own, for system tests."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from walkgraph.client import Client


@dataclass
class Service:
    """`walkgraph up` as a child process."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = (sys.executable, "-m", "walkgraph.cli.main")
    process: subprocess.Popen[str] | None = None
    told: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    """From the command to the address."""

    def up(self, *words: str) -> None:
        began = time.monotonic()
        log = (self.home.parent / f"{self.home.name}.log").open("a")
        self.process = subprocess.Popen(
            [*self.command, "up", "--port", "0", "--json", *words],
            env={**os.environ, "WALKGRAPH_HOME": str(self.home), **self.environment},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        log.close()
        assert self.process.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            line = self.process.stdout.readline()
            assert line, f"the service did not start: {self.log}"
            text += line
        self.told = json.loads(text)
        self.seconds = time.monotonic() - began

    @property
    def log(self) -> str:
        return (self.home.parent / f"{self.home.name}.log").read_text()

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def client(self) -> Client:
        return Client(self.told["url"], self.token)

    def take_back(self, *deployments: str) -> None:
        with self.client() as client:
            for name in deployments:
                client.undeploy(name)

    def wait_ready(self, deployment: str) -> dict[str, Any]:
        with self.client() as client:
            for found in client.follow_deployment(deployment):
                assert found["state"] != "failed", found
                if found["state"] == "ready":
                    return found
        raise AssertionError("the deployment is gone")

    @contextmanager
    def deployed(self, graph: dict[str, Any], name: str) -> Iterator[Client]:
        """Serves a graph of the test's own while the context lasts."""
        with self.client() as client:
            client.deploy(graph, None, name)
            self.wait_ready(name)
            yield client
        self.take_back(name)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def ended(self, seconds: float = 300) -> int:
        assert self.process is not None
        code = self.process.wait(seconds)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None
        return code

    def down(self) -> int:
        self.signal(signal.SIGTERM)
        return self.ended()


@contextmanager
def service(home: Path, **environment: str) -> Iterator[Service]:
    """`environment`: settings by name."""
    found = Service(home, {f"WALKGRAPH_{key.upper()}": value for key, value in environment.items()})
    try:
        yield found
    finally:
        if found.process is not None:
            found.process.kill()
            found.ended()


@contextmanager
def starter(folders: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of its own, whose starter is ready."""
    with service(folders.mktemp("home") / "home") as found:
        found.up()
        found.wait_ready("shapes")
        yield found


def children(pid: int) -> set[int]:
    """All living descendants."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found |= {int(entry.name)} | children(int(entry.name))
    return found


def deployed_processes(service: int) -> set[int]:
    """The processes of a service's deployments: all but the fork server, which outlives them."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in children(service)}
    return {pid for pid in commands if "fork_server" not in commands[pid] or _parent(pid) != service}


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_gone(pids: set[int], seconds: float) -> float:
    """How long it took until none of them lived; fails after `seconds`."""
    began = time.monotonic()
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            left = seconds - (time.monotonic() - began)
            ended, _, _ = select.select([handle], [], [], max(left, 0))
            assert ended, f"process {pid} is still there"
        finally:
            os.close(handle)
    return time.monotonic() - began
