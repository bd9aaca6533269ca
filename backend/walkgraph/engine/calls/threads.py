"""Calls that other threads of the process make, such as decoding a picture, while the engine's own goes on.

    start ──> forward in a thread ──> mark reached, `wakes` readable ──> collected like any batch in flight

An operator's `threaded` says which calls these are.
"""

import os
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import torch

from walkgraph.engine.device.marks import Mark
from walkgraph.engine.device.outside import Outside

T = TypeVar("T")

THREADS = 4
"""A robot has three cameras. Further calls wait in the order of their priorities."""
_THREADS = ThreadPoolExecutor(THREADS, "calls", torch.set_num_threads, (1,))
"""Started at the first call. Each would otherwise use as many torch threads as there are cores, which take longer to
wake than to do the work."""


class ThreadedWork(Generic[T]):
    """Work that a thread does, or has done."""

    def __init__(self, future: "Future[_Timed[T]]", outside: Outside) -> None:
        self._future, self._outside = future, outside
        self._span: tuple[float, float] | None = None
        self.mark: Mark = outside.mark(_Ended(future))

    def result(self) -> T:
        """Return the work's result, or raise its exception. Waits for its end, as `span` does."""
        return self._future.result().outcome.result()

    def span(self) -> tuple[float, float]:
        """Return the times at which the work began and ended."""
        if self._span is None:
            done = self._future.result()
            self._span = self._outside.span(done.began, done.ended)
        return self._span


class Threads:
    """The threaded calls of one engine."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._watched: Mark | None = None

    @cached_property
    def wakes(self) -> int:
        """The descriptor of a file that is readable from the end of a thread's work until `heard`; also from the time
        that a mark is reached which is watched."""
        found = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, found)
        return found

    def start(self, work: Callable[[], T]) -> ThreadedWork[T]:
        future = _THREADS.submit(_timed, work)
        future.add_done_callback(self._wake)
        return ThreadedWork(future, self._outside)

    def watch(self, mark: Mark) -> None:
        """Let a thread wait for a mark, and for all that were watched before."""
        if mark is self._watched:
            return
        self._watched = mark
        self._watching.submit(mark.synchronize).add_done_callback(self._wake)

    def _wake(self, _: "Future[Any]") -> None:
        # Futures hold this object until then, so the descriptor isn't closed, and another file's, when they end.
        os.eventfd_write(self.wakes, 1)

    @cached_property
    def _watching(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "marks")

    def heard(self) -> None:
        """Look for what has ended after this, not before."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.wakes)


class _Ended:
    """The end of a thread's work, as a mark."""

    def __init__(self, future: "Future[Any]") -> None:
        self._future = future

    def query(self) -> bool:
        return self._future.done()

    def synchronize(self) -> None:
        self._future.result()

    def wait(self) -> None:
        self.synchronize()


@dataclass(frozen=True)
class _Timed(Generic[T]):
    outcome: "Future[T]"
    began: float
    ended: float


def _timed(work: Callable[[], T]) -> _Timed[T]:
    began, outcome = time.monotonic(), Future[T]()
    try:
        outcome.set_result(work())
    except Exception as raised:  # noqa: BLE001 (who collects the work raises it)
        outcome.set_exception(raised)
    return _Timed(outcome, began, time.monotonic())
