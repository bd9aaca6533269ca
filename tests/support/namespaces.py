"""Hosts on this machine: network namespaces of one name each, on a switch, with cables that can be pulled."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Host:
    name: str
    namespace: str
    device: str
    address: str

    def command(self, *words: str) -> list[str]:
        """A command as it runs on this host."""
        return ["ip", "netns", "exec", self.namespace, *words]

    def alone(self, *words: str) -> list[str]:
        """The same, with folders of its own for temporary files and shared memory."""
        mounts = " && ".join(f"mount -t tmpfs tmpfs {folder}" for folder in ("/tmp", "/dev/shm"))
        return self.command("sh", "-c", f'{mounts} && exec "$@"', "sh", *words)

    def kill(self) -> None:
        """Kill all its processes."""
        while pids := subprocess.run(
            ["ip", "netns", "pids", self.namespace], check=True, capture_output=True, text=True
        ).stdout.split():
            for pid in map(int, pids):
                with contextlib.suppress(ProcessLookupError):
                    file = os.pidfd_open(pid)
                    signal.pidfd_send_signal(file, signal.SIGKILL)
                    select.select([file], [], [])
                    os.close(file)

    def plug(self, *, into: bool) -> None:
        """Plug the cable in, or out."""
        _ip("-n", self.namespace, "link", "set", self.device, "up" if into else "down")


def allowed() -> bool:
    """True if this process may make namespaces."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return False
    probe = f"walkgraph{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode == 0
    if made:
        _ip("netns", "del", probe)
    return made


@contextmanager
def hosts(count: int) -> Iterator[Sequence[Host]]:
    switch = f"walkgraph{os.getpid()}.switch"
    made = [Host(f"host{i}", f"walkgraph{os.getpid()}.{i}", "cable", f"10.77.0.{i + 1}") for i in range(count)]
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "name", "switch", "type", "bridge")
        _ip("-n", switch, "link", "set", "switch", "up")
        for number, host in enumerate(made):
            port = f"port{number}"
            _ip("netns", "add", host.namespace)
            _ip(
                "link",
                "add",
                host.device,
                "netns",
                host.namespace,
                "type",
                "veth",
                "peer",
                "name",
                port,
                "netns",
                switch,
            )
            _ip("-n", switch, "link", "set", port, "master", "switch", "up")
            _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", host.device)
            _ip("-n", host.namespace, "link", "set", "lo", "up")
            host.plug(into=True)
        yield made
    finally:
        for namespace in (*(host.namespace for host in made), switch):
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


@contextmanager
def two_hosts() -> Iterator[Sequence[Host]]:
    with hosts(2) as made:
        yield made


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
