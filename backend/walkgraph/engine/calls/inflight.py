"""Batches in flight, and the results of their calls."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from walkgraph.abi.calls import Call, Outputs
from walkgraph.engine.device.marks import Mark
from walkgraph.engine.kv.paged_state import NOTHING, TokensRead
from walkgraph.engine.pacing.backlog import Backlog, Queued
from walkgraph.errors import ErrorInfo


class Result(NamedTuple):
    """The result of one call."""

    outputs: Outputs | None
    error: ErrorInfo | None
    """Exactly one of the two is None."""
    busy: float
    """Seconds from the launch of the forward that served or failed it, shared with the other calls of its batch."""
    batch: int
    """Calls in that forward."""
    read: TokensRead = NOTHING
    links: tuple[float, ...] = ()
    """Seconds of each forward of a chain."""


class InFlightCall(NamedTuple):
    """One call of a batch."""

    outputs: Outputs | None
    """Tensors on the device may be read there by work behind the batch. None if the call has already failed."""
    result: Callable[[], Result]
    """Called once the batch is over."""


class Launched:
    """The forward of a batch. `wait` before `results`."""

    def __init__(
        self,
        mark: Mark | None,
        results: Callable[[], list[Result]],
        outputs: Sequence[Outputs | None],
        stamp: Mark | None = None,
        times: Callable[[], tuple[float, float]] | None = None,
    ) -> None:
        """`outputs`: those of each call, as in `InFlightCall`. `stamp`: marks the end of the forward, if `mark` comes
        later. `times`: gives when a forward that was no launch began and ended."""
        self._mark, self.results, self.outputs, self.stamp = mark, results, outputs, stamp or mark
        self.times = times
        self.asynchronous = mark is not None
        """True if the device works on it while the host goes on."""

    @property
    def ready(self) -> bool:
        return self._mark is None or self._mark.query()

    def wait(self) -> None:
        """Block the host until the batch is over."""
        if self._mark is not None:
            self._mark.synchronize()

    @property
    def mark(self) -> Mark | None:
        """Its end; None if it is done already."""
        return self._mark

    def fence(self) -> None:
        """Make later work on the current stream wait for the batch."""
        if self._mark is not None:
            self._mark.wait()


class InFlightBatch(NamedTuple):
    calls: Sequence[Call]
    runs: frozenset[str]
    """The runs of these calls."""
    launched: Launched
    began: float
    handed: float
    """When the host had launched all of it; measured while the stopwatch is on."""
    due: float
    """When it is probably over; `began` if such batches were never measured."""
    device: torch.device
    rows: int = 1
    queued: Queued | None = None
    """Its place in the device's backlog, if it is launched in turn with the steps of loops."""


class InFlightBatches:
    """Batches in turn with the steps of loops, and batches beside them, each in the order of their launches."""

    def __init__(self, backlog: Backlog | None = None) -> None:
        self.backlog = backlog or Backlog()
        """What the device still has to do of the batches in turn, and of loops."""
        self.turns: deque[InFlightBatch] = deque()
        self.beside: deque[InFlightBatch] = deque()
        self.threaded: deque[InFlightBatch] = deque()
        """Calls that threads make, one a batch."""
        self.over: list[InFlightBatch] = []
        """Batches that were done when their launch returned."""

    @property
    def any(self) -> bool:
        """True if the device works on a batch."""
        return bool(self.turns or self.beside)

    @property
    def since(self) -> float | None:
        """When the oldest batch in flight was taken."""
        return min((batch.began for batch in (*self.turns, *self.beside)), default=None)

    def has(self, run: str) -> bool:
        """True if a call of the run is in flight."""
        return any(run in batch.runs for batches in (self.turns, self.beside, self.threaded) for batch in batches)

    def fence(self, run: str) -> None:
        """Make later work wait for the run's batches beside the loops, so that it may read their outputs."""
        for batch in self.beside:
            if run in batch.runs:
                batch.launched.fence()

    def wait(self, *, turns: bool) -> None:
        """Wait for the oldest batch, if there is one: in turn with loops (`turns`), or beside them."""
        for batch in self._oldest(turns=turns):
            batch.launched.wait()

    def oldest(self, *, turns: bool) -> tuple[float, Mark | None]:
        """Seconds that the oldest batch probably takes, 0 if such batches were never measured; and its end, None if
        there is none."""
        found = [(batch.due - batch.began, batch.launched.mark) for batch in self._oldest(turns=turns)]
        return found[0] if found else (0.0, None)

    def left(self, now: float, *, turns: bool) -> float:
        """Seconds that the device probably still takes for this batch; not positive if it is over, or such batches were
        never measured."""
        for batch in self._oldest(turns=turns):
            if not batch.launched.ready:
                return batch.due - now if batch.queued is None else self.backlog.left(now, batch.queued)
        return 0.0

    def soon(self, seconds: float) -> frozenset[str]:
        """Runs for which threads make calls that usually take less than so long."""
        return frozenset(batch.calls[0].run for batch in self.threaded if 0 < batch.due - batch.began < seconds)

    def _oldest(self, *, turns: bool) -> list[InFlightBatch]:
        batches = self.turns if turns else self.beside
        return [batches[0]] if batches else []

    def pop_finished(self) -> list[InFlightBatch]:
        """Remove and return the batches that are over, without waiting."""
        over, self.over = self.over, []
        for batches in self.turns, self.beside:
            while batches and batches[0].launched.ready:
                over.append(batches.popleft())
        if self.threaded:
            over += self._ended()
        return over

    def _ended(self) -> list[InFlightBatch]:
        """Remove and return what threads have done: calls of a run in their order."""
        over, waiting, runs = list[InFlightBatch](), deque[InFlightBatch](), set[str]()
        for batch in self.threaded:
            run = batch.calls[0].run
            if run not in runs and batch.launched.ready:
                over.append(batch)
            else:
                waiting.append(batch)
                runs.add(run)
        self.threaded = waiting
        return over
