"""A Ray cluster on hosts of this machine: `python -m tests.support.ray_hosts N` runs one until it is interrupted."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.namespaces import Host, allowed, hosts

PORT = 20_000 + os.getpid() % 10_000
"""Each process has its own: Ray takes an address that another namespace has too for that of a running cluster."""
TRIES = 4
OPTIONS = ("--block", "--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats")


class RayCluster:
    def __init__(self, head: Host, served: Host) -> None:
        """`served`: the host with the service, which has the folders of this machine."""
        self.address, self.token = f"{head.address}:{PORT}", secrets.token_hex(32)
        self._head, self._served = head, served
        self._processes: list[subprocess.Popen[str]] = []
        self._nodes: dict[str, subprocess.Popen[str]] = {}
        """The last one of each host."""
        self._readers: list[threading.Thread] = []

    @property
    def environment(self) -> dict[str, str]:
        """That of its processes, and of those that connect to it."""
        return {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}

    def start(self, host: Host) -> None:
        """Have a host join it, the head first. Its node has its name, and folders of its own but for the service's."""
        ray = str(Path(sys.executable).parent / "ray")
        words = [ray, "start", f"--node-ip-address={host.address}", f"--node-name={host.name}", *OPTIONS]
        if host is self._head:
            words += ["--head", f"--port={PORT}", "--include-dashboard=false"]
        else:
            words += [f"--address={self.address}"]
        # A home of its own, in the folder for temporary files that is its own too.
        alone = host.alone("env", "WALKGRAPH_HOME=/tmp/home", *words)
        command = host.command(*words) if host is self._served else alone
        # On a busy machine Ray may give up within its 30 s. A service manager would start it again too.
        joined = (reader for _ in range(TRIES) if (reader := self._node(host, command)) is not None)
        self._readers.append(next(joined))

    def _node(self, host: Host, command: Sequence[str]) -> threading.Thread | None:
        """Start a node. Returns what reads, and forgets, what it prints once it has joined its cluster; None if it has
        ended before."""
        # An interrupt of this process is none of its nodes, which end in their order.
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=self.environment, start_new_session=True
        )
        assert process.stdout is not None
        self._processes.append(process)
        self._nodes[host.name] = process
        if not any("Ray runtime started" in line for line in process.stdout):
            return None
        reader = threading.Thread(target=process.stdout.read, daemon=True)
        reader.start()
        return reader

    def await_end(self, *hosts: Host) -> None:
        """Wait until the nodes of these hosts have given the cluster up."""
        for host in hosts:
            self._nodes[host.name].wait()

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait()
        for reader in self._readers:
            reader.join()
        for process in self._processes:
            assert process.stdout is not None
            process.stdout.close()


@contextmanager
def ray_cluster(*members: Host, served: Host | None = None) -> Iterator[RayCluster]:
    """Its head is on the first host, and so is the service unless `served` is another."""
    cluster = RayCluster(members[0], served or members[0])
    try:
        for host in members:
            cluster.start(host)
        yield cluster
    finally:
        cluster.close()


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
