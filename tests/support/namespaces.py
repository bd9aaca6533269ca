"""Hosts on this machine: network namespaces of one name each, on a switch, with cables that can be pulled. Their clocks
may differ, by time namespaces."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

_numbers = itertools.count()
"""Of the networks that this process makes: several may be there at once."""


@dataclass(frozen=True)
class Host:
    name: str
    namespace: str
    device: str
    address: str
    clock: str = ""
    """The file of its time namespace; empty: it has this machine's clock."""

    def command(self, *words: str) -> list[str]:
        """A command as it runs on this host."""
        entered = ["nsenter", f"--time={self.clock}"] if self.clock else []
        return ["ip", "netns", "exec", self.namespace, *entered, *words]

    def alone(self, *words: str) -> list[str]:
        """The same, with folders of its own for temporary files and shared memory."""
        mounts = " && ".join(f"mount -t tmpfs tmpfs {folder}" for folder in ("/tmp", "/dev/shm"))
        return self.command("sh", "-c", f'{mounts} && exec "$@"', "sh", *words)

    def pids(self) -> list[int]:
        """Its processes."""
        command = ["ip", "netns", "pids", self.namespace]
        return list(map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()))

    def kill(self) -> None:
        """Kill all its processes."""
        while pids := self.pids():
            for pid in pids:
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


@dataclass(frozen=True)
class Faults:
    """A cable's, in each direction."""

    loss: float
    """Share of the frames."""
    delay: float
    """Seconds."""


def clocks_allowed() -> bool:
    """True if this process, which may make namespaces, may also make some of time."""
    return Path("/proc/self/ns/time").exists() and shutil.which("nsenter") is not None


@contextmanager
def hosts(count: int, ahead: int = 0, faults: Faults | None = None) -> Iterator[Sequence[Host]]:
    """`ahead`: seconds that the monotonic clocks of all but the first are ahead of this machine's. `faults`: those of
    the last one's cable."""
    network = f"walkgraph{os.getpid()}.{next(_numbers)}"
    switch = f"{network}.switch"
    made = [Host(f"host{i}", f"{network}.{i}", "cable", f"10.77.0.{i + 1}") for i in range(count)]
    with _clock(ahead) as clock:
        made[1:] = [replace(host, clock=clock) for host in made[1:]]
        with _joined(switch, made, faults):
            yield made


@contextmanager
def _clock(ahead: int) -> Iterator[str]:
    """The file of a time namespace; empty for the present one."""
    if not ahead:
        yield ""
        return
    with tempfile.NamedTemporaryFile(prefix="walkgraph.clock") as file:
        subprocess.run(["unshare", f"--time={file.name}", "--monotonic", str(ahead), "true"], check=True)
        try:
            yield file.name
        finally:
            subprocess.run(["umount", file.name], check=True)


@contextmanager
def _joined(switch: str, made: Sequence[Host], faults: Faults | None) -> Iterator[None]:
    with contextlib.ExitStack() as cables:
        try:
            _ip("netns", "add", switch)
            _ip("-n", switch, "link", "add", "name", "switch", "type", "bridge")
            _ip("-n", switch, "link", "set", "switch", "up")
            for number, host in enumerate(made):
                _ip("netns", "add", host.namespace)
                port = f"port{number}"
                ends = (host.device, host.namespace), (port, switch)
                if faults is None or host is not made[-1]:
                    _good_cable(*ends)
                else:
                    cables.enter_context(_bad_cable(*ends, faults))
                _ip("-n", switch, "link", "set", port, "master", "switch", "up")
                _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", host.device)
                _ip("-n", host.namespace, "link", "set", "lo", "up")
                host.plug(into=True)
            yield
        finally:
            for namespace in (*(host.namespace for host in made), switch):
                subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


def _good_cable(one: tuple[str, str], other: tuple[str, str]) -> None:
    """`one`, `other`: a device's name and its namespace."""
    (device, namespace), (port, switch) = one, other
    _ip("link", "add", device, "netns", namespace, "type", "veth", "peer", "name", port, "netns", switch)


@contextmanager
def _bad_cable(one: tuple[str, str], other: tuple[str, str], faults: Faults) -> Iterator[None]:
    names = [f"wg{os.getpid()}.{end}" for end in range(2)]
    command = sys.executable, "-m", "tests.support.bad_cable", *names, str(faults.loss), str(faults.delay)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "the cable has ended"
        for name, (device, namespace) in zip(names, (one, other), strict=True):
            _ip("link", "set", name, "netns", namespace, "name", device)
        yield
        process.communicate()


@contextmanager
def two_hosts(ahead: int = 0) -> Iterator[Sequence[Host]]:
    """`ahead`: seconds that the second one's clock is ahead."""
    with hosts(2, ahead) as made:
        yield made


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
