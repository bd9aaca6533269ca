"""A Ray cluster of two hosts."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.namespaces import Host

PORT = 6390
OPTIONS = ("--block", "--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats")


@dataclass(frozen=True)
class RayCluster:
    address: str
    token: str

    @property
    def environment(self) -> dict[str, str]:
        """That of its processes, and of those that connect to it."""
        return {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}


@contextmanager
def ray_cluster(here: Host, there: Host) -> Iterator[RayCluster]:
    """Its head is on the first host. The second one is named `there`, and has folders of its own."""
    ray, address = str(Path(sys.executable).parent / "ray"), f"{here.address}:{PORT}"
    head = ("--head", f"--port={PORT}", f"--node-ip-address={here.address}", "--include-dashboard=false")
    other = (f"--address={address}", f"--node-ip-address={there.address}", "--node-name=there")
    commands = here.command(ray, "start", *head, *OPTIONS), there.alone(ray, "start", *other, *OPTIONS)
    cluster, processes = RayCluster(address, secrets.token_hex(32)), list[subprocess.Popen[str]]()
    readers: list[threading.Thread] = []
    try:
        for command in commands:
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=cluster.environment))
            readers.append(_started(processes[-1]))
        yield cluster
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()
        for reader in readers:
            reader.join()
        for process in processes:
            assert process.stdout is not None
            process.stdout.close()


def _started(process: subprocess.Popen[str]) -> threading.Thread:
    """Wait until a node has joined its cluster. Returns what reads, and forgets, what it prints from then on."""
    assert process.stdout is not None
    assert any("Ray runtime started" in line for line in process.stdout), "the node has ended"
    reader = threading.Thread(target=process.stdout.read, daemon=True)
    reader.start()
    return reader
