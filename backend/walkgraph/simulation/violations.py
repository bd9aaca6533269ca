"""What a simulated world must never come to."""

from walkgraph.simulation.timeline import Timeline


class Violation(AssertionError):
    """Something that may not happen; the message says what, where and when, and how to see it again."""


class Watchman:
    """Makes violations that name the scenario, the seed, the simulated time and the run."""

    def __init__(self, place: str, timeline: Timeline) -> None:
        self._place, self._timeline = place, timeline

    def fail(self, what: str, run: str = "") -> Violation:
        of = f"run {run}: " if run else ""
        return Violation(f"{self._place}, {self._timeline.now:.4f} s: {of}{what}")
