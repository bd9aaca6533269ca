"""Starts, kills and reaps the worker processes of a deployment.

Torch takes most of a worker's start to import. So a *spare worker*, which has imported all it needs and has no rank
yet, can be kept beside the deployment: the next start of a rank takes it.
"""

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

SPARE_SECONDS = 10.0
"""A spare worker is started so long after the last start or death of a worker: its imports must not slow a restart."""


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

    def __init__(self, directory: Path, *, keep_spare: bool = False) -> None:
        """`directory`: the folder of the deployment's sockets."""
        self._directory = directory
        self.alive: dict[Rank, WorkerProcess] = {}
        """Workers that were not reaped yet."""
        self._keep_spare = keep_spare
        self._spare: subprocess.Popen[bytes] | None = None
        self._changed = float("inf")
        """Time of the last start or death of a worker."""

    def spawn(self, rank: Rank, start: int) -> int:
        """Starts a worker, from the spare one if there is one; returns its process id."""
        spare, self._spare = self._spare, None
        process = spare if spare is not None and spare.poll() is None else self._start()
        _assign(process, rank, start)
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
        self._end_spare()

    # ── the spare worker ──

    def changed(self, now: float) -> None:
        """Notes that a worker has started or died."""
        self._changed = now

    def due(self) -> float:
        """Time at which `attend` must be called."""
        wanted = bool(self.alive)
        missing = wanted != (self._spare is not None)
        return self._changed + SPARE_SECONDS if self._keep_spare and missing else float("inf")

    def attend(self, now: float) -> None:
        """Starts a spare worker where one is due, or ends it where no rank is left that it could replace."""
        if now < self.due():
            return
        self._changed = now
        if not self.alive:
            self._end_spare()
            return
        # Without a spare worker a restart only takes longer.
        with contextlib.suppress(OSError):
            self._spare = self._start()

    def _end_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            with spare:
                spare.kill()

    def _start(self) -> "subprocess.Popen[bytes]":
        """Starts a worker process, which imports what it needs and then waits for its rank."""
        command = ("-m", "walkgraph.worker.process", "--dir", str(self._directory), "--parent", str(os.getpid()))
        # Unbuffered, so that nothing is left to write when the pipe of a dead process is closed.
        return subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE, bufsize=0)


def _assign(process: "subprocess.Popen[bytes]", rank: Rank, start: int) -> None:
    """Gives a waiting process its rank. One that has just died is found as any worker that dies."""
    if process.stdin is not None:
        with process.stdin as pipe, contextlib.suppress(BrokenPipeError):
            pipe.write(f"{rank} {start}\n".encode())
