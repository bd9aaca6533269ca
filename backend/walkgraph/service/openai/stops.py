"""Stop sequences: cuts a text, which comes in pieces, before the first of them."""

from collections.abc import Sequence


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
