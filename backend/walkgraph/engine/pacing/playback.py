"""Playback of a rank's runs, and how far they are ahead of it.

Playback of a run begins when its first *timed* values leave the last timed stage on this rank, and goes on at their
pace. Until it reaches the end of what has left, more must leave: that time is the run's deadline.

    began                    now          due = began + position
      |-------- played -------|--- ahead ---|                      the client's sound
      |-- handed on by the last stage ------|--- next chunk --|    what the stages before it must make until then
"""

from collections.abc import Callable


class Playback:
    """The playback of one run."""

    __slots__ = ("began", "chunk", "late", "position", "underruns")

    def __init__(self) -> None:
        self.began: float | None = None
        """The time at which its first values left; None before."""
        self.position = 0.0
        """Seconds of playback that have left."""
        self.chunk = 0.0
        """The most seconds that a stage hands on together: the next values leave only when so much more is made."""
        self.underruns = 0
        """Times that values left after playback had reached the end of those before."""
        self.late = 0.0
        """Seconds by which they were late, in all."""

    @property
    def due(self) -> float:
        """The time at which playback reaches the end of what has left. Only once it has begun."""
        return (self.began or 0.0) + self.position

    def lacks(self, made: float) -> float:
        """Seconds of playback that a stage which has made so many must add before more can leave; 0 if none."""
        lacking = self.position + self.chunk - made
        return lacking if lacking > 0.0 else 0.0


class Playbacks:
    """The playbacks of a rank's runs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._runs: dict[str, Playback] = {}

    def __bool__(self) -> bool:
        return bool(self._runs)

    def of(self, run: str, chunk: float = 0.0) -> Playback:
        """The playback of a run, one of whose stages hands on `chunk` seconds together."""
        found = self._runs.get(run)
        if found is None:
            found = self._runs[run] = Playback()
        found.chunk = max(found.chunk, chunk)
        return found

    def left(self, run: str, seconds: float) -> None:
        """Note that so many seconds of playback leave now."""
        if seconds <= 0:
            return
        one, now = self.of(run), self._clock()
        if one.began is None:
            one.began = now
        elif now > one.due:
            # Playback stopped, and goes on now.
            one.underruns += 1
            one.late += now - one.due
            one.began += now - one.due
        one.position += seconds

    def played(self, run: str) -> Playback | None:
        """The playback of a run from which something has left."""
        found = self._runs.get(run)
        return found if found is not None and found.began is not None else None

    def forget(self, run: str) -> None:
        self._runs.pop(run, None)
