"""Decide whether to try a call again, and after how long. Nothing here waits."""

from __future__ import annotations

import random

from walkgraph.client.errors import ClientError, Lost, ProblemError, RunError

TRIES = 2
MOST_SECONDS = 60.0
"""Seconds; if the service asks for a longer pause, there is no further try."""
_FIRST_SECONDS = 0.25
_AGAIN = frozenset({429, 503})


class Attempts:
    """The attempts at one call. `repeatable`: a second try changes nothing that the first has not changed."""

    def __init__(self, tries: int, *, repeatable: bool) -> None:
        self._left = max(tries, 1)
        self._repeatable = repeatable
        self._made = 0

    def pause(self, error: ClientError) -> float:
        """Seconds until the next try; raises `error` if there is none.

        A call is tried again if it was refused before anything ran, or if it is repeatable and its answer got lost. A
        run that failed is not tried again.
        """
        self._left -= 1
        self._made += 1
        seconds = self._seconds(error)
        if seconds is None or seconds > MOST_SECONDS or self._left <= 0:
            raise error
        return seconds

    def _seconds(self, error: ClientError) -> float | None:
        own = _FIRST_SECONDS * 2 ** (self._made - 1) * random.uniform(0.75, 1.25)  # noqa: S311 - spreads clients out
        if not self._repeatable or isinstance(error, RunError):
            return None
        if isinstance(error, Lost):
            return own
        if isinstance(error, ProblemError) and error.status in _AGAIN and not error.hopeless:
            return own if error.retry_after is None else error.retry_after
        return None
