"""When a rank has a moment that no run waits for."""

IDLE_AFTER_SECONDS = 1.0
"""Without a run for so long."""


class IdleMoments:
    """Once after every spell of work."""

    def __init__(self) -> None:
        self._worked: float | None = None
        """When there was a run last; None once the moment has been told since."""

    def now(self, runs: int, at: float) -> bool:
        """Asked in every turn, with the runs that there are."""
        if runs:
            self._worked = at
            return False
        if self._worked is None or at - self._worked < IDLE_AFTER_SECONDS:
            return False
        self._worked = None
        return True
