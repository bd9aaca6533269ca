"""Hosts on this machine: network namespaces of one name each, joined by a cable that can be cut."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Host:
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
def two_hosts() -> Iterator[Sequence[Host]]:
    hosts = [Host(f"walkgraph{os.getpid()}.{i}", "cable", f"10.77.0.{i + 1}") for i in range(2)]
    here, there = hosts
    try:
        for host in hosts:
            _ip("netns", "add", host.namespace)
        _ip("link", "add", here.device, "netns", here.namespace, "type", "veth",
            "peer", "name", there.device, "netns", there.namespace)  # fmt: skip
        for host in hosts:
            _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", host.device)
            _ip("-n", host.namespace, "link", "set", "lo", "up")
            host.plug(into=True)
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host.namespace], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
