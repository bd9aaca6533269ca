"""The loop of a deployment process: it passes messages and exits of workers to the core, and performs its commands.

It waits in one place for messages of the service, the workers and the fork server, for a worker's exit (by its pidfd),
for a signal, and for the time at which the core is due.
"""

import contextlib
import errno
import logging
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq

from walkgraph.conductor import events as e
from walkgraph.conductor.core import Conductor
from walkgraph.conductor.passed_files import PassedFiles
from walkgraph.conductor.processes import Forking, Processes
from walkgraph.conductor.telemetry_relay import TelemetryRelay
from walkgraph.ids import Rank
from walkgraph.telemetry.emit import INTERVAL, Emitter
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.fault_points import FaultPoints

_log = logging.getLogger(__name__)

MOST_WAITING = 1024
"""Messages that wait for the service to read; beyond it, the workers' messages are not read either."""
LONGEST_WAIT = 60.0
LATE_SECONDS = 1.0
"""If the loop wakes so much too late, the process itself was stopped: workers' messages are read before any timeout is
checked."""


@dataclass(frozen=True)
class Connections:
    """The sockets of a conductor."""

    service: sockets.Socket
    workers: sockets.Socket
    relay: TelemetryRelay | None = None
    """For ranks on other hosts; None: there are none, or nobody reads it."""
    far: Collection[Rank] = ()
    """Ranks on other hosts."""


class ConductorLoop:
    def __init__(
        self,
        directory: Path,
        core: Conductor,
        connections: Connections,
        emitter: Emitter,
        forking: Forking,
        clock: Callable[[], float] = time.monotonic,
        faults: FaultPoints | None = None,
    ) -> None:
        self._core, self._emitter, self._clock, self._relay = core, emitter, clock, connections.relay
        self._far = connections.far
        self._from_service = sockets.Reader(connections.service, codec.to_conductor)
        self._from_workers = sockets.Reader(connections.workers, codec.from_worker, frames=2)
        refusals = self._from_workers.refusals
        self._workers_told = (connections.workers, *(() if refusals is None else (refusals,)))
        self._faults, self._processes = faults, Processes(directory, forking)
        self._workers = self._processes.alive
        self._owed: dict[Rank, None] = {}
        """Ranks with messages that wait to be sent."""
        self._process_files: tuple[int, ...] = ()
        self._files = PassedFiles(directory, lambda: core.ranks.orders.replicated)
        self._to_service: deque[bytes] = deque()
        self._over = False
        self._poller, self._polled = zmq.Poller(), ()
        """The poll set, and what it was made of."""
        self._signals, self._wakeup = socket.socketpair()
        self._signals.setblocking(False)
        self._wakeup.setblocking(False)

    def run(self) -> None:
        """Runs until the core's `Exit`. Call it on the main thread, which gets signals."""
        signal.set_wakeup_fd(self._wakeup.fileno())
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        self._perform(self._core.begin(self._clock()))
        while not self._over:
            self.turn()
        self._processes.end()
        self._flush()
        self._files.close()

    def turn(self) -> None:
        due = self._core.due()
        punctual, ready = self._wait(due)
        heard = list(self._heard(ready))
        # Only now: no message has come later than the time at which it is handled.
        self._perform(self._core.handle_all(heard, self._clock()))
        if punctual and self._clock() >= due:
            self._handle(e.Tick())
        self._flush()
        if self._relay is not None:
            self._relay.pass_on()
        self._emitter.flush(self._clock())

    # ── in ──

    def _wait(self, due: float) -> tuple[bool, frozenset[Any]]:
        """Waits for the next event. Returns (whether that took no longer than it should, the sockets and files that can
        be read)."""
        before = self._clock()
        seconds = min(max(0.0, due - before), LONGEST_WAIT)
        if self._owed:
            seconds = min(seconds, INTERVAL)  # a ROUTER socket doesn't signal when a peer can take more
        if self._processes.has_events:
            seconds = 0.0
        told = self._emitter.wait(before)
        found = self._polling().poll(round(1000 * (seconds if told is None else min(seconds, told))) + 1)
        ready = frozenset(one for one, what in found if what & ~zmq.POLLOUT)
        return self._clock() - before < seconds + LATE_SECONDS, ready

    def _polling(self) -> zmq.Poller:
        """A poller of all that can tell of an event, made anew when that changes."""
        sends, takes = bool(self._to_service), len(self._to_service) < MOST_WAITING
        relayed = () if self._relay is None else self._relay.files
        self._process_files = tuple(self._processes.files())
        polled = (sends, takes, self._signals.fileno(), *relayed, *self._process_files)
        if polled != self._polled:
            self._poller, self._polled = zmq.Poller(), polled
            self._poller.register(self._from_service.socket, zmq.POLLIN | (zmq.POLLOUT if sends else 0))
            for one in (*(self._workers_told if takes else ()), *polled[2:]):
                self._poller.register(one, zmq.POLLIN)
        return self._poller

    def _heard(self, ready: Collection[Any]) -> Iterator[e.Event]:
        """The events since the last call. Workers' messages come before their exits, since they were sent before."""
        if self._signals.fileno() in ready and self._signals.recv(64):
            yield e.FromService(m.Stop())
        processes = self._processes.has_events or any(file in ready for file in self._process_files)
        told = processes or any(one in ready for one in self._workers_told)
        if told and len(self._to_service) < MOST_WAITING:
            for identity, message in self._from_workers.drain():
                rank, _, start = identity.decode(errors="replace").partition(".")
                if rank.isdecimal() and start.isdecimal():
                    yield e.FromRank(Rank(int(rank)), int(start), message)
                else:
                    self._from_workers.rejected += 1
        if processes:
            yield from self._processes.events()
        if self._from_service.socket in ready:
            for _, message in self._from_service.drain():
                if isinstance(message, m.Watch):
                    self._emitter.set_level(message.level)
                yield e.FromService(self._files.heard(message))

    def _handle(self, event: e.Event) -> None:
        self._perform(self._core.handle(event, self._clock()))

    # ── out ──

    def _perform(self, commands: list[e.Command]) -> None:
        for command in commands:
            match command:
                case e.ToService(message=message):
                    self._to_service.append(codec.encode(self._files.to_service(message)))
                case e.ToRank(rank=rank, message=message):
                    if rank in self._workers:
                        self._workers[rank].waiting.append(codec.encode(self._files.to_rank(rank, message)))
                        self._owed[rank] = None
                case e.Spawn(rank=rank, start=start):
                    self._spawn(rank, start)
                case e.Kill(rank=rank):
                    self._processes.kill(rank)
                case e.Tell(event=event):
                    self._emitter.emit(event)
                case e.Rename(name=name):
                    self._emitter.rename(name, self._clock())
                case e.Exit():
                    self._over = True

    def _spawn(self, rank: Rank, start: int) -> None:
        """Has a worker started. One that can't be started counts as one that has died, and is tried again after a
        pause."""
        try:
            if self._faults is not None and self._faults.due("open.process"):
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            self._processes.spawn(rank, start)
        except OSError as error:
            _log.exception("the worker of rank %d could not be started", rank)
            self._handle(e.Died(rank, start, error.errno or 1))

    def _flush(self) -> None:
        parted: list[e.Parted] = []
        for rank in list(self._owed):
            worker = self._workers.get(rank)
            identity = b"" if worker is None else worker.identity(rank)
            while worker is not None and worker.waiting:
                count, frame = codec.together(worker.waiting)
                try:
                    self._from_workers.socket.send_multipart([identity, frame], zmq.NOBLOCK)
                except zmq.Again:
                    break
                except zmq.ZMQError as error:
                    if error.errno != zmq.EHOSTUNREACH:
                        raise
                    # It has not said hello yet, or has just exited, which comes as its own event.
                    if rank in self._far:
                        parted.append(e.Parted(rank, worker.start))
                    break
                _drop(worker.waiting, count)
            if worker is None or not worker.waiting:
                del self._owed[rank]
        for event in parted:
            self._handle(event)
        # The service comes last, so that work has begun when it hears of it.
        with contextlib.suppress(zmq.Again):
            while self._to_service:
                count, frame = codec.together(self._to_service)
                self._from_service.socket.send(frame, zmq.NOBLOCK)
                _drop(self._to_service, count)


def _drop(waiting: deque[bytes], count: int) -> None:
    for _ in range(count):
        waiting.popleft()
