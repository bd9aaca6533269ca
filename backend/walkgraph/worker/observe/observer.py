"""The observer reports the work of a worker's loop, and the values in it that somebody looks at."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from walkgraph.wire.watching import Tap
from walkgraph.worker.events import Observe
from walkgraph.worker.observe.work_telemetry import WorkTelemetry


class SamplesLike(Protocol):
    def look(self, observe: Observe) -> None: ...

    def keep(self, taps: Iterable[Tap]) -> None:
        """Set the current taps; all others are removed."""
        ...

    def wait(self, longest: float) -> float:
        """Seconds until `tell` should be called, at most `longest`."""
        ...

    def tell(self) -> None: ...


class Observer(NamedTuple):
    work: WorkTelemetry
    samples: SamplesLike
