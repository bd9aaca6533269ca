"""What states hold on one rank: sequences of pages, and what is told of them."""

from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

from walkgraph.abi.calls import StateKey
from walkgraph.engine.kv.allocator import pages_for
from walkgraph.engine.kv.pool import Pool
from walkgraph.engine.kv.prefix import PrefixKey

EMPTY = 0
"""The content of a sequence without tokens."""
CONTENTS: Final = count(1)
"""Numbers for contents that were not there before."""


@dataclass(slots=True)
class PagedSequence:
    """One sequence: the tokens 0 <= i < length lie in its pages' slots, in order."""

    pages: list[int] = field(default_factory=list[int])
    length: int = 0
    position: int = 0
    content: int = EMPTY
    """Identifies the kept tokens: equal numbers mean equal keys and values. Every append makes a new one."""
    prefix: PrefixKey | None = None
    """What the kept tokens were made of, where that is known of all of them."""

    def alike(self, other: "PagedSequence") -> bool:
        """Whether both certainly keep the same tokens, in the same places."""
        if (self.length, self.position) != (other.length, other.position):
            return False
        if self.content == other.content:
            return True
        return self.prefix is not None and other.prefix is not None and self.prefix[:2] == other.prefix[:2]

    def copy(self) -> "PagedSequence":
        return PagedSequence(list(self.pages), self.length, self.position, self.content, self.prefix)


@dataclass(slots=True)
class PagedState:
    """`width` sequences that are forked, moved and dropped together."""

    pool: Pool
    sequences: list[PagedSequence]


class CacheSummary(NamedTuple):
    """Of a paged state."""

    sequences: int
    tokens: int
    """Of its longest sequence."""
    pages: int
    """Held by its sequences, shared ones once for each."""


class AppendedTokens(NamedTuple):
    """Tokens with a prefix key that a forward has appended to a sequence; whether it went well is known later."""

    key: StateKey
    sequence: PagedSequence
    start: int
    stop: int


class TokensRead(NamedTuple):
    """Tokens that a call added to what its run keeps."""

    tokens: int = 0
    found: int = 0
    """Of these, what pages of earlier runs held already."""

    def plus(self, more: "TokensRead") -> "TokensRead":
        return TokensRead(self.tokens + more.tokens, self.found + more.found)


NOTHING: Final = TokensRead()


def trim(state: PagedState) -> None:
    """Give back what was reserved and never counted."""
    for sequence in state.sequences:
        kept = pages_for(sequence.length)
        state.pool.pages.release(sequence.pages[kept:])
        del sequence.pages[kept:]
