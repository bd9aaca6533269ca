"""A Ray cluster on hosts of this machine: `python -m tests.support.ray_hosts N` runs one until it is interrupted."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.namespaces import Host, allowed, hosts

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
def ray_cluster(*members: Host) -> Iterator[RayCluster]:
    """Its head is on the first host. Nodes have the names of their hosts; the others have folders of their own."""
    ray, head = str(Path(sys.executable).parent / "ray"), members[0]
    cluster = RayCluster(f"{head.address}:{PORT}", secrets.token_hex(32))
    processes: list[subprocess.Popen[str]] = []
    readers: list[threading.Thread] = []
    try:
        for host in members:
            words = ray, "start", f"--node-ip-address={host.address}", f"--node-name={host.name}", *OPTIONS
            if host is head:
                command = host.command(*words, "--head", f"--port={PORT}", "--include-dashboard=false")
            else:
                # A home of its own, in the folder for temporary files that is its own too.
                command = host.alone("env", "WALKGRAPH_HOME=/tmp/home", *words, f"--address={cluster.address}")
            processes.append(
                # An interrupt of this process is none of its nodes, which end in their order.
                subprocess.Popen(
                    command, stdout=subprocess.PIPE, text=True, env=cluster.environment, start_new_session=True
                )
            )
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


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    if not allowed():
        raise SystemExit("network namespaces need root and `ip` (Debian: iproute2)")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with hosts(count) as made, ray_cluster(*made) as cluster:
        for host in made:
            print(f"{host.name}  {host.address}  ip netns exec {host.namespace} ...")
        print("a service on the first host, where each of these stands before `walkgraph up`:")
        print(f"  RAY_AUTH_MODE=token RAY_AUTH_TOKEN={cluster.token}")
        print(f"  WALKGRAPH_BACKEND=ray WALKGRAPH_RAY_ADDRESS={cluster.address}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
