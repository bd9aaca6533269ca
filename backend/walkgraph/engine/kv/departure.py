"""The progress of a state that leaves for another rank in parts, while it grows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from walkgraph.abi.calls import StateKey


class LeavingPart(NamedTuple):
    """The next part of a state."""

    value: Mapping[str, Any]
    last: bool = False
    """Nothing follows."""
    offers: bool = False
    """It brings only the names of tokens. Nothing follows before the receiver has said which of these it has."""


@dataclass(slots=True)
class Departure:
    """Progress of a state that leaves in parts."""

    key: StateKey
    before: int = 0
    """Tokens that were there when it began. The receiver may have them from an earlier time."""
    of: object = None
    """The state that is leaving. If the state holds something else by now, it was replaced, and leaves anew."""
    tokens: list[int] = field(default_factory=list[int])
    """Tokens of each sequence that have left, or that the receiver has."""
    offered: bool = False
    """The receiver was asked which tokens it has."""

    def follow(self, state: object, sequences: int) -> None:
        """Go on with what the state holds now."""
        if self.of is not state:
            self.of, self.tokens, self.offered = state, [], False
        self.tokens += [0] * (sequences - len(self.tokens))

    @property
    def begins(self) -> bool:
        """True if nothing of its only sequence has left, and nothing was offered."""
        return self.tokens == [0] and not self.offered

    def answer(self, held: int) -> None:
        """Note how many of the offered tokens the receiver has."""
        if self.tokens:
            self.tokens[0] = held
