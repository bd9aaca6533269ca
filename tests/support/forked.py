"""Deployments whose processes are forked from one that has imported all they need: each starts in half a second.

`python -m tests.support.forked 200` starts as many, each on three ranks. The conductor is stopped while its workers
come up, so that it hears of all of them at once; then tasks that send along every edge between ranks must end well. So
they must once all workers were killed and are started again. `python -m tests.support.forked stalled` starts one whose
workers lose a message.
"""

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import msgspec
import zmq

from tests.support.deployment import KV_BYTES, Still, children, graph_named
from walkgraph.components import catalogue
from walkgraph.conductor.core import Conductor
from walkgraph.conductor.itinerary_cache import ItineraryCache
from walkgraph.conductor.loop import ConductorLoop, Connections
from walkgraph.conductor.runs import stalls
from walkgraph.errors import ErrorInfo
from walkgraph.graph import codec as graphs
from walkgraph.graph.document import Graph
from walkgraph.ids import Rank, RunId
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan
from walkgraph.telemetry.emit import Off
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.processes import forks
from walkgraph.wire.processes.common import die_with
from walkgraph.wire.spec import SERVICE_SOCKET, WORKERS_SOCKET, DeploymentSpec, read_spec, write_spec
from walkgraph.worker import serve
from walkgraph.worker.events import Arrived
from walkgraph.worker.io.links import Links
from walkgraph.worker.shards import membership

LONGEST = 60.0
"""Seconds for what takes one or two on an idle machine."""
RANKS = 3
TASKS = ("all", "chain")
"""Between them, they send along every edge between two ranks."""


def plan_on_three() -> tuple[Graph, Plan]:
    """Every rank sends to every other: items from 0 to 1 and 2, sums from 1 to 2, credit the other way."""
    graph = graph_named("synthetic_streams")
    groups = (
        Group(nodes=("*",), ranks=(0,)),
        Group(nodes=("window_sum",), ranks=(1,)),
        Group(nodes=("batch_sum", "context_sum", "whole_sum", "chain_sum"), ranks=(2,)),
    )
    ranks = tuple(RankDevice(rank=rank, device="cpu") for rank in range(RANKS))
    made = assemble(Assignment(graph, Placement(name="three", groups=groups, ranks=ranks)), catalogue())
    kept = tuple(msgspec.structs.replace(rank, kv_bytes=KV_BYTES) for rank in made.ranks)
    return graph, msgspec.structs.replace(made, ranks=kept)


def fork(work: Callable[[], None], *, keep: int = 2) -> int:
    """Return the process's id. It ends with its parent, runs nothing of it at its end, and has none of its files but
    the standard ones and `keep`, like a program that is started."""
    parent, pid = os.getpid(), os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with(parent)
        signal.set_wakeup_fd(-1)
        os.closerange(3, keep)
        os.closerange(max(keep, 2) + 1, os.sysconf("SC_OPEN_MAX"))
        work()
        code = 0
    except SystemExit:
        code = 0
    finally:
        os._exit(code)


class Child:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self, options: int = os.WNOHANG) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, options)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


class Losing(Links):
    """The last rank loses the end of a stream, of the first run that has one."""

    lost = ""

    def arrivals(self) -> "Iterator[Arrived | tuple[str, ErrorInfo]]":
        for one in super().arrivals():
            message = one.message if isinstance(one, Arrived) else None
            last = self._rank == RANKS - 1
            if last and isinstance(message, m.StreamDone) and self.lost in ("", message.run):
                self.lost = message.run
            else:
                yield one


class OwnForks:
    """Forks workers from the conductor, in place of a fork server."""

    def __init__(self, *, losing: bool = False) -> None:
        """`losing`: the workers lose a message."""
        self._losing = losing
        self._told: list[tuple[forks.FromForkServer, int | None]] = []
        self._alive: dict[tuple[Rank, int], Child] = {}
        self._some = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Can be read while there is something to tell."""

    def ask(self, directory: Path, rank: Rank, start: int) -> None:
        def work() -> None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if self._losing:
                membership.Links = Losing  # type: ignore[misc]  (in this process alone)
            serve.serve(directory, rank, start)

        child = self._alive[rank, start] = Child(fork(work))
        self._told.append((forks.Forked(rank, start, child.pid), os.pidfd_open(child.pid)))
        os.eventfd_write(self._some, 1)

    def kill(self, rank: Rank, start: int) -> None:
        raise AssertionError("all of them are processes of this host")

    def told(self) -> Iterator[tuple[forks.FromForkServer, int | None]]:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._some)
        for (rank, start), child in list(self._alive.items()):
            code = child.poll()
            if code is not None:
                del self._alive[rank, start]
                self._told.append((forks.Exited(rank, start, code), None))
        while self._told:
            yield self._told.pop(0)

    def files(self) -> tuple[int, ...]:
        return (self._some,)


def conduct(directory: Path, losing: bool) -> None:
    if losing:  # and nobody waits for long
        stalls.QUIET_SECONDS, stalls.AGAIN_SECONDS = 0.3, 0.1
    spec = read_spec(directory)
    core = Conductor(ItineraryCache(graphs.load(spec.graph), spec.plan), spec.limits, lambda: 7)
    context: sockets.Context = zmq.Context()
    service = sockets.pair(context, sockets.address(directory, SERVICE_SOCKET))
    workers = sockets.router(context, sockets.address(directory, WORKERS_SOCKET))
    ConductorLoop(directory, core, Connections(service, workers), Off(), OwnForks(losing=losing)).run()
    context.destroy(linger=1000)


class Service:
    """Whoever starts it, and asks it."""

    def __init__(self, directory: Path, losing: bool = False) -> None:
        graph, plan = plan_on_three()
        write_spec(directory, DeploymentSpec(name="three", graph=graphs.dump(graph), plan=plan))
        self.directory = directory
        self.conductor = Child(fork(lambda: conduct(directory, losing)))
        self.status: m.Status | None = None
        self.finished: dict[str, m.Finished] = {}
        self._context: sockets.Context = zmq.Context()
        self._socket = sockets.pair_for(self._context, sockets.address(directory, SERVICE_SOCKET))
        self._reader = sockets.Reader(self._socket, codec.from_conductor)
        self._numbers = count()

    @property
    def ready(self) -> bool:
        return self.status is not None and self.status.state == "ready"

    def send(self, message: m.ToConductor) -> None:
        self._socket.send(codec.encode(message))

    def submit(self, task: str, **params: int) -> str:
        run = RunId(f"{task}{next(self._numbers)}")
        self.send(m.Submit(run=run, task=task, params={"items": 7, **params}, inputs={}))
        return run

    def end(self, run: str) -> ErrorInfo | None:
        self.until(lambda: run in self.finished, f"{run} ends")
        return self.finished[run].error

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits until `holds` is true of its messages or its processes."""
        end = time.monotonic() + LONGEST
        while not holds():
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: {self.status}")
            self._socket.poll(5)
            for _, message in self._reader.drain():
                if isinstance(message, m.Status):
                    self.status = message
                elif isinstance(message, m.Finished):
                    self.finished[message.run] = message

    def hold(self, before: Sequence[int] = ()) -> None:
        """Stop the conductor once it has started workers in place of those `before`, until all of them wait for what it
        says."""
        pid = self.conductor.pid
        self.until(lambda: len(set(children(pid)).difference(before)) == RANKS, "workers are started")
        os.kill(pid, signal.SIGSTOP)
        try:
            workers = children(pid)
            self.until(lambda: len(list(self.directory.glob("rank*"))) == RANKS, "sockets are made")
            self.until(Still(workers), "workers wait")
        finally:
            os.kill(pid, signal.SIGCONT)

    def ask(self) -> None:
        """Each task, to its end."""
        for run in [self.submit(task) for task in TASKS]:
            error = self.end(run)
            if error is not None:
                raise RuntimeError(str(error))

    def close(self) -> None:
        with contextlib.suppress(zmq.Again, ProcessLookupError):
            self.send(m.Stop())
            self.until(lambda: self.conductor.poll() is not None, "the end")
        self._context.destroy(linger=0)

    def lose(self) -> list[int]:
        """Kill all its workers."""
        workers = children(self.conductor.pid)
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        self.until(lambda: not self.ready, "it knows")
        return workers


def held() -> None:
    with tempfile.TemporaryDirectory(prefix="wg") as folder:
        service = Service(Path(folder) / "d")
        try:
            service.hold()
            service.until(lambda: service.ready, "it is ready")
            service.ask()
            service.hold(service.lose())
            service.until(lambda: service.ready, "it is ready again")
            service.ask()
        finally:
            service.close()


def stalled() -> None:
    """A message that a worker loses ends only its run: not one that computes for long, nor later ones."""
    with tempfile.TemporaryDirectory(prefix="wg") as folder:
        service = Service(Path(folder) / "d", losing=True)
        try:
            service.until(lambda: service.ready, "it is ready")
            error = service.end(service.submit("batches"))
            if error is None or error.code != "stalled" or "batch_sum.items" not in error.message:
                raise RuntimeError(f"not stalled: {error}")
            slow = service.submit("batches", items=4, work=20, side=1024)
            service.ask()
            if (error := service.end(slow)) is not None:
                raise RuntimeError(str(error))
        finally:
            service.close()


def main(rounds: int) -> int:
    """How many of them failed."""
    failed, began = 0, time.monotonic()
    for number in range(rounds):
        try:
            held()
        except (TimeoutError, RuntimeError) as error:
            failed += 1
            print(f"round {number}: {error}", flush=True)
    print(f"{failed} of {rounds} failed, in {time.monotonic() - began:.0f} s", flush=True)
    return failed


if __name__ == "__main__":
    if sys.argv[1] == "stalled":
        stalled()
    else:
        sys.exit(min(1, main(int(sys.argv[1]))))
