"""Stop sequences: a text that comes in pieces, cut before the first of them."""

from collections.abc import Sequence


class Cutter:
    """Gives a text's pieces back as soon as no stop sequence can begin in them.

    The first stop is the one that is complete first; of two that end together, the one that began first.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def feed(self, piece: str) -> str:
        """What may be told by now. Nothing any more once it has stopped."""
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
        """What was held, and is no stop after all."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        """Characters at the end of a text that a stop may begin with."""
        longest = min(max(len(stop) for stop in self._stops) - 1, len(text))
        return next(
            (n for n in range(longest, 0, -1) if any(stop.startswith(text[len(text) - n :]) for stop in self._stops)), 0
        )
