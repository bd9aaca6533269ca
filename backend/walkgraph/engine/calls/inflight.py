"""A batch under way, and what came of each of its calls."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from walkgraph.abi.calls import Outputs
from walkgraph.engine.device.marks import Mark
from walkgraph.engine.kv.paged_state import NOTHING, Read
from walkgraph.errors import ErrorInfo


class Result(NamedTuple):
    """Of one call."""

    outputs: Outputs | None
    error: ErrorInfo | None
    """Exactly one of the two is None."""
    busy: float
    """Seconds from the launch of the forward that served or failed it, shared with the other calls of its batch."""
    batch: int
    """Calls in that forward."""
    read: Read = NOTHING


class UnderWay(NamedTuple):
    """One call of a batch."""

    outputs: Outputs | None
    """Those on the device may be read there, behind the batch; None where the call has failed already."""
    result: Callable[[], Result]
    """Once the batch is over."""


class Launched:
    """A batch under way. `wait` before `results`."""

    def __init__(
        self,
        mark: Mark | None,
        results: Callable[[], list[Result]],
        given: Sequence[Outputs | None],
        stamp: Mark | None = None,
    ) -> None:
        """`given`: of each call, as `UnderWay` has it. `stamp`: when its forward was over, where `mark` is of more
        than that."""
        self._mark, self.results, self.given, self.stamp = mark, results, given, stamp or mark
        self.asynchronous = mark is not None
        """Whether it goes on by itself."""

    @property
    def ready(self) -> bool:
        return self._mark is None or self._mark.query()

    def wait(self) -> None:
        if self._mark is not None:
            self._mark.synchronize()

    def lead(self) -> None:
        """What is launched from now on comes behind it."""
        if self._mark is not None:
            self._mark.wait()
