"""Cutting a stream into chunks: arithmetic on counts of items, independent of values and time.

A chunk is delivered as soon as it is full; nothing is held back to learn whether it is the last, so a full chunk never
has `last`. The end of the stream gives exactly one chunk with `last`: the remaining items or, if there are none, a
*closing* chunk without new items (only the policy's context, if any). The chunks of a stream thus depend only on its
items, not on the speed of either side. A stream without items has one chunk, the closing one.

With `continue_after_done`, *absent* chunks follow for as long as they are asked for: no items, neither `first` nor
`last`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from msgspec import Struct

from walkgraph.errors import InvalidInput


class ChunkSpec(Struct, frozen=True, kw_only=True):
    """Items `[start, stop)` of the stream, of which the first `context` were delivered before."""

    index: int
    start: int
    stop: int
    context: int = 0
    first: bool = False
    last: bool = False
    absent: bool = False

    @property
    def valid(self) -> int:
        """Number of items in it, context included."""
        return self.stop - self.start

    @property
    def new(self) -> int:
        return self.valid - self.context

    @property
    def closing(self) -> bool:
        return self.last and self.new == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(ABC):
    """A position in the stream is the previous chunk (None at the start); the policy itself keeps no state."""

    first: int | None = None
    """Items of a smaller first chunk."""
    continue_after_done: bool = False

    def __post_init__(self) -> None:
        if self.first is not None and not 1 <= self.first <= self._opening:
            raise InvalidInput(f"`first` is {self.first}; it must be 1 to {self._opening}")

    def next(self, previous: ChunkSpec | None, available: int, done: bool) -> ChunkSpec | None:
        """The chunk after `previous`, given the total number of items so far; None: not yet, or (see `ended`) never."""
        if previous is not None and _over(previous):
            return _absent(previous) if self.continue_after_done else None
        stop = self._full(previous)
        last = stop is None or stop > available
        if last and not done:
            return None
        stop = available if stop is None else min(stop, available)
        taken = previous.stop if previous else 0
        start = self._start(taken, stop)
        return ChunkSpec(
            index=previous.index + 1 if previous else 0,
            start=start,
            stop=stop,
            context=taken - start,
            first=previous is None,
            last=last,
        )

    def needs(self, previous: ChunkSpec | None) -> int | None:
        """The number of items so far that the chunk after `previous` needs; None: the stream must have ended."""
        return None if previous is not None and _over(previous) else self._full(previous)

    def ended(self, previous: ChunkSpec | None) -> bool:
        """True if no chunk will follow, whatever comes."""
        return not self.continue_after_done and previous is not None and previous.last

    def consumed(self, previous: ChunkSpec | None) -> int:
        """The lowest item that a later chunk may still hold; those below it may be dropped, and their credit
        returned."""
        if previous is None:
            return 0
        return previous.stop if _over(previous) else self._start(previous.stop, previous.stop)

    def items(self, chunks: int) -> int | None:
        """The most items in flight (sent, not yet consumed) for `chunks` of credit, including those that the consumer
        keeps for overlap; never less than one chunk needs. None: any bound would deadlock."""
        return max(self._opening, self.kept + max(chunks, 1) * self.step)

    @property
    @abstractmethod
    def kept(self) -> int:
        """The most delivered items that the consumer keeps for a later chunk's context."""

    @property
    @abstractmethod
    def step(self) -> int:
        """New items of a chunk that is neither first nor last."""

    def _full(self, previous: ChunkSpec | None) -> int | None:
        """The end of the next chunk if it is full; None: the end of the stream."""
        if previous is None:
            return self.first or self._opening
        return previous.stop + self.step

    @property
    def _opening(self) -> int:
        return self.step

    @abstractmethod
    def _start(self, taken: int, stop: int) -> int:
        """The start of a chunk that ends at `stop`, after `taken` items were delivered."""


def _over(previous: ChunkSpec) -> bool:
    """True if all items were taken."""
    return previous.last or previous.absent


def _absent(previous: ChunkSpec) -> ChunkSpec:
    return ChunkSpec(index=previous.index + 1, start=previous.stop, stop=previous.stop, absent=True)
