"""Stop sequences: cuts a text, which comes in pieces, before the first of them."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from walkgraph.wire import messages as m

MAX_STOPS = 4
MAX_CHARACTERS = 256
"""The limit of one stop sequence."""


def stops_of(given: Any) -> tuple[str, ...] | None:
    """The stop sequences in a request: one, a list of some, or none. None for anything else."""
    found = [given] if isinstance(given, str) else given or []
    if not isinstance(found, list) or len(cast(list[Any], found)) > MAX_STOPS:
        return None
    listed = cast(list[Any], found)
    if not all(isinstance(one, str) and 0 < len(one) <= MAX_CHARACTERS for one in listed):
        return None
    return tuple(listed)


class Cutter:
    """Returns the pieces of a text as soon as no stop sequence can begin in them.

    The first stop is the one that is complete first; of two that end together, the one that began earlier.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def feed(self, piece: str) -> str:
        """Adds a piece; returns the text that can be sent by now. Empty after a stop."""
        if self.stopped:
            return ""
        if not self._stops:
            return piece
        text = self._held + piece
        ends = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            self.stopped, self._held = True, ""
            return text[: min(ends)[1]]
        kept = self._beginning(text)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def finish(self) -> str:
        """The text that was held back and turned out not to be a stop."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        """Number of characters at the end of a text with which a stop may begin."""
        longest = min(max(len(stop) for stop in self._stops) - 1, len(text))
        return next(
            (n for n in range(longest, 0, -1) if any(stop.startswith(text[len(text) - n :]) for stop in self._stops)), 0
        )


class Cut:
    """Cuts the text of one output of a run."""

    def __init__(self, output: str, stops: Sequence[str]) -> None:
        self._output, self._cutter = output, Cutter(stops)
        self._last: m.Output | None = None
        self.pieces = 0
        """Texts of the output up to the stop, the one that completes it included."""

    @property
    def stopped(self) -> bool:
        return self._cutter.stopped

    def output(self, event: m.Output) -> m.Output | None:
        """An output of the run, as clients get it; None if it comes after the stop."""
        if self.stopped and self._last is not None:
            # What belongs to the last text, such as its log-probabilities, may come behind it.
            late = event.name == self._output or event.iteration > self._last.iteration
            return None if late else event
        if event.name != self._output or not (isinstance(event.value, m.Small) and isinstance(event.value.value, str)):
            return event
        self.pieces += 1
        self._last = event
        return msgspec.structs.replace(event, value=m.Small(value=self._cutter.feed(event.value.value)))

    def rest(self) -> m.Output | None:
        """The text that was held back, once the run has ended; None if there is none."""
        held = self._cutter.finish()
        if not held or self._last is None:
            return None
        return msgspec.structs.replace(self._last, index=self._last.index + 1, value=m.Small(value=held))

    def end(self, event: m.Finished) -> m.Finished:
        """The run's end: that a stop has ended it is no error."""
        return msgspec.structs.replace(event, error=None) if self.stopped else event
