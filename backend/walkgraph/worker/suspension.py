"""Keeps the events of suspended runs, in order, until the runs are back.

Their walkers stand still: no call is made, no value sent and no state moved between `Suspend` and the engine's report
that the run is back.
"""

from walkgraph.worker.events import (
    Arrived,
    CallBegun,
    CallDone,
    Cancelled,
    Event,
    Extended,
    Gated,
    PartLeaves,
    PartStored,
    PieceCame,
    Started,
    Watched,
)


class Suspension:
    def __init__(self) -> None:
        self._kept: dict[str, list[Event]] = {}

    def begin(self, run: str) -> None:
        self._kept.setdefault(run, [])

    def keeps(self, event: Event) -> bool:
        """True if the event was kept for later. `Cancelled` is not kept, and drops the events kept for its run."""
        if not self._kept:
            return False
        run = _run(event)
        if isinstance(event, Cancelled):
            self._kept.pop(event.run, None)
        elif run in self._kept:
            self._kept[run].append(event)
            return True
        return False

    def away(self, run: str) -> bool:
        return run in self._kept

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(self._kept)

    def end(self, run: str) -> list[Event]:
        """End the suspension of a run and return the events kept for it."""
        return self._kept.pop(run, [])


def _run(event: Event) -> str:
    match event:
        case Arrived(message=message):
            return getattr(message, "run", "")
        case CallBegun(ref=ref) | CallDone(ref=ref) | PartLeaves(ref=ref) | PieceCame(ref=ref):
            return ref.run
        case Gated(gate=gate):
            return gate.run
        case Watched():
            return ""
        case Started() | Extended() | PartStored() | Cancelled():
            return event.run
        case _:
            return event.call.run
