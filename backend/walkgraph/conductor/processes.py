"""Starts, kills and reaps the worker processes of a deployment."""

import contextlib
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from walkgraph.ids import Rank
from walkgraph.settings import worker_environment


@dataclass(slots=True)
class WorkerProcess:
    process: "subprocess.Popen[bytes]"
    pidfd: int
    start: int
    """Number of this start of its rank."""
    waiting: deque[bytes] = field(default_factory=deque[bytes])
    """Encoded messages that wait to be sent to it."""

    def identity(self, rank: Rank) -> bytes:
        return f"{rank}.{self.start}".encode()


class Processes:
    """Use it on the main thread only: workers die with the thread that starts them."""

    def __init__(self, directory: Path) -> None:
        """`directory`: the folder of the deployment's sockets."""
        self._directory = directory
        self.alive: dict[Rank, WorkerProcess] = {}
        """Workers that were not reaped yet."""

    def spawn(self, rank: Rank, start: int) -> int:
        """Starts a worker; returns its process id."""
        process = subprocess.Popen(
            [
                sys.executable,
                *("-m", "walkgraph.worker.process", "--dir", str(self._directory)),
                *("--rank", str(rank), "--start", str(start), "--parent", str(os.getpid())),
            ],
            stdin=subprocess.DEVNULL,
            env=worker_environment(),
        )
        self.alive[rank] = WorkerProcess(process, os.pidfd_open(process.pid), start)
        return process.pid

    def buried(self) -> Iterator[tuple[Rank, int, int]]:
        """Reaps workers that have died: rank, start and exit code of each."""
        for rank, worker in list(self.alive.items()):
            code = worker.process.poll()
            if code is not None:
                del self.alive[rank]
                os.close(worker.pidfd)
                (self._directory / f"rank{rank}.{worker.start}").unlink(missing_ok=True)
                yield rank, worker.start, code

    def kill(self, rank: Rank) -> None:
        """Kills a worker; does nothing if it is dead."""
        worker = self.alive.get(rank)
        if worker is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(worker.pidfd, signal.SIGKILL)

    def end(self) -> None:
        """Kills all workers and waits for their exit."""
        for rank, worker in self.alive.items():
            self.kill(rank)
            worker.process.wait()
