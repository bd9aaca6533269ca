"""Finds idle moments of a rank, in which no run waits for it."""

IDLE_AFTER_SECONDS = 1.0
"""Seconds without a run until a moment counts as idle."""


class IdleMoments:
    """Reports one idle moment after each period of work."""

    def __init__(self) -> None:
        self._worked: float | None = None
        """When a run was last seen; None after the idle moment was reported."""

    def now(self, runs: int, at: float) -> bool:
        """True once the rank has become idle. Called every turn, with the number of runs and the time."""
        if runs:
            self._worked = at
            return False
        if self._worked is None or at - self._worked < IDLE_AFTER_SECONDS:
            return False
        self._worked = None
        return True
