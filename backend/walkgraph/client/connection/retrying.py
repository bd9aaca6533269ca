"""Whether to try again, and after how long. Nothing here waits."""

from __future__ import annotations

import random

from walkgraph.client.errors import ClientError, Lost, ProblemError, RunError

TRIES = 2
MOST_SECONDS = 60.0
"""A service that wants more patience than this is not waited for."""
_FIRST_SECONDS = 0.25
_AGAIN = frozenset({429, 503})


class Attempts:
    """Of one call; `repeatable`: a second try changes nothing that the first has not."""

    def __init__(self, tries: int, *, repeatable: bool) -> None:
        self._left = max(tries, 1)
        self._repeatable = repeatable
        self._made = 0

    def pause(self, error: ClientError) -> float:
        """Seconds until the next try. Raises what went wrong where there is none.

        Tried again is what was refused before anything ran, and what can be repeated where its answer got lost; a run
        that failed has had its answer.
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
