"""Keeps a process running: it is restarted after 0.5 s, doubling to 8 s, at most five times a minute. Once it has run,
a machine that lacks files or disk to start it again is asked every 8 s."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, Protocol

import structlog

from walkgraph.errors import WalkgraphError
from walkgraph.wire import messages as m
from walkgraph.wire.spec import DeploymentSpec

BACKOFF_FIRST = 0.5
BACKOFF_LAST = 8.0
MAX_RESTARTS = 5
RESTART_WINDOW = 60.0
_NO_PROCESS = -1
"""Instead of an exit code: the process can't be started now."""

State = Literal["starting", "failed", "stopped"]
"""States that the supervisor sets; all others come from the conductor."""

_log = structlog.get_logger("walkgraph.deployments")


class Process(Protocol):
    """A running deployment process."""

    pid: int

    @property
    def alive(self) -> bool: ...

    def send(self, message: m.ToConductor) -> None: ...

    async def stop(self, grace: float) -> None: ...


Spawn = Callable[[Path, DeploymentSpec, Callable[[m.FromConductor], None], Callable[[int], None]], Awaitable[Process]]


class Supervised(Protocol):
    """The owner of a process: a version."""

    id: str

    @property
    def state(self) -> str: ...

    async def launch(self, exited: Callable[[int], None]) -> tuple[Process, DeploymentSpec]:
        """Starts a process; `exited` is called with its exit code. Raises WalkgraphError if that is impossible."""
        ...

    def started(self, spec: DeploymentSpec) -> None:
        """Called once the process of this spec runs."""

    def ended(self) -> None:
        """Called once the process has ended."""

    def tell(self, state: State, reason: str) -> None:
        """Called when the supervisor changes the state."""


class Supervisor:
    def __init__(self, supervised: Supervised, *, has_run: bool = False) -> None:
        """`has_run`: under an earlier service."""
        self.process: Process | None = None
        self.restarts = 0
        self._has_run = has_run
        self._supervised = supervised
        self._unwanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def wanted(self) -> bool:
        return not self._unwanted.is_set()

    def start(self, after: Awaitable[None] | None = None) -> None:
        """Starts to keep the process running; returns at once. Waits for `after` first."""
        self._task = asyncio.create_task(self._supervise(after), name=f"deployment {self._supervised.id}")
        self._task.add_done_callback(self._ended)

    async def stop(self, grace: float) -> None:
        """Lets the runs finish for up to `grace` seconds, then ends the process."""
        # The task is not cancelled: it may be starting the process, and then stops it itself.
        self._unwanted.set()
        if self.process is not None:
            await self.process.stop(grace)
        if self._task is not None:
            await asyncio.wait([self._task])

    def give_up(self) -> None:
        """Ends the restarts. The caller must stop the process."""
        self._unwanted.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Reports a failure if a bug of the service ended the task, so that nobody waits for the process."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("deployment not kept running", deployment=self._supervised.id, exc_info=error)
            self._supervised.tell("failed", "the service failed while it started this; its log says why")

    async def _supervise(self, after: Awaitable[None] | None) -> None:
        if after is not None:
            await after
        restarts: deque[float] = deque()
        backoff = BACKOFF_FIRST
        while self.wanted:
            ended = await self._serve()
            if not self.wanted or ended is None or self._supervised.state == "failed":
                return
            if ended == _NO_PROCESS:
                await self._pause(BACKOFF_LAST)
                continue
            now = time.monotonic()
            restarts.append(now)
            while restarts[0] < now - RESTART_WINDOW:
                restarts.popleft()
            if len(restarts) > MAX_RESTARTS:
                self._supervised.tell("failed", f"it ended {len(restarts)} times in a minute; see its log")
                return
            backoff = BACKOFF_FIRST if len(restarts) == 1 else min(backoff * 2, BACKOFF_LAST)
            self.restarts += 1
            self._supervised.tell("starting", f"its process ended (exit code {ended}); starting it again")
            await self._pause(backoff)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._unwanted.wait(), seconds)

    async def _serve(self) -> int | None:
        """Starts the process and waits for its end. Returns the exit code, or None if it can't be started."""
        supervised = self._supervised
        exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        try:
            self.process, spec = await supervised.launch(exited.set_result)
        except WalkgraphError as error:
            if error.retryable:
                supervised.tell("starting", f"{error}; this is tried again")
                return _NO_PROCESS
            supervised.tell("failed", str(error))
            return None
        except OSError as error:
            if self._has_run:
                _log.warning("deployment not started", deployment=supervised.id, reason=error.strerror)
                supervised.tell("starting", "its process can't be started now, and is tried again")
                return _NO_PROCESS
            _log.error("deployment not started", deployment=supervised.id, exc_info=error)
            supervised.tell("failed", "its process could not be started; the service's log says why")
            return None
        self._has_run = True
        _log.info("deployment started", deployment=supervised.id, pid=self.process.pid)
        supervised.started(spec)
        if not self.wanted:
            await self.process.stop(0)
        code = await exited
        _log.info("deployment ended", deployment=supervised.id, code=code)
        self.process = None
        supervised.ended()
        return code
