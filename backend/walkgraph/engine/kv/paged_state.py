"""Sequences of pages, the paged states made of them, and their summaries."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import count
from typing import Final, NamedTuple

from walkgraph.abi.calls import StateKey
from walkgraph.engine.kv.allocator import pages_for
from walkgraph.engine.kv.pool import Pool
from walkgraph.engine.kv.prefix import PrefixKey

EMPTY = 0
"""Content number of a sequence without tokens."""
CONTENTS: Final = count(1)
"""Gives a number to each new content."""


class TokensDigest(NamedTuple):
    """A digest of a sequence's first tokens, which goes on with the next ones: each is read once, however many digests
    are taken."""

    made: blake2b = blake2b(digest_size=16)
    """Never updated itself, as copies of sequences share it."""
    tokens: int = 0

    def over(self, tokens: Sequence[int]) -> "TokensDigest":
        """The digest of these tokens, which begin with those of this one."""
        if len(tokens) == self.tokens:
            return self
        further = self.made.copy()
        # A comma before each token: the same however they are cut into pieces, and of no others.
        further.update(f", {repr(list(tokens[self.tokens :]))[1:-1]}".encode())
        return TokensDigest(further, len(tokens))


@dataclass(slots=True)
class PagedSequence:
    """One sequence: tokens 0 <= i < length are in the slots of its pages, in order."""

    pages: list[int] = field(default_factory=list[int])
    length: int = 0
    position: int = 0
    """The whole part of the rope position of the next token."""
    fraction: float = 0.0
    """Its fraction; 0 unless segments had a `span`."""
    content: int = EMPTY
    """Identifies the kept tokens: equal numbers mean equal keys and values. Every append makes a new one."""
    found: int = 0
    """The number of its first tokens that were found in pages of others, or came from another rank."""
    prefix: PrefixKey | None = None
    """Key of what the kept tokens were computed from, if that is known of all of them."""
    digested: TokensDigest = field(default=TokensDigest(), compare=False)
    """The digest of the first tokens of `prefix`."""

    def digest(self, end: int) -> bytes | None:
        """A digest of what the first tokens were computed from, up to `end`; None if it isn't known of all that are
        kept."""
        if self.prefix is None:
            return None
        before = self.digested if self.digested.tokens <= end else TokensDigest()
        self.digested = before.over(self.prefix.tokens[:end])
        return self.digested.made.digest()

    def alike(self, other: "PagedSequence") -> bool:
        """True only if both are sure to hold the same tokens at the same positions."""
        if (self.length, self.place) != (other.length, other.place):
            return False
        if self.content == other.content:
            return True
        return self.prefix is not None and other.prefix is not None and self.prefix[:2] == other.prefix[:2]

    @property
    def place(self) -> float:
        return self.position + self.fraction

    def move(self, span: float) -> None:
        there = self.place + span
        self.position = math.floor(there)
        self.fraction = there - self.position

    def copy(self) -> "PagedSequence":
        return replace(self, pages=list(self.pages))


@dataclass(slots=True)
class PagedState:
    """`width` sequences that are forked, moved and dropped together."""

    pool: Pool
    sequences: list[PagedSequence]


class CacheSummary(NamedTuple):
    """The size of a paged state."""

    sequences: int
    tokens: int
    """Tokens of its longest sequence."""
    pages: int
    """Pages of its sequences; a shared page counts once for each."""


class AppendedTokens(NamedTuple):
    """Tokens with a prefix key that a forward appended to a sequence. They are shared only once the forward is known
    to have succeeded."""

    key: StateKey
    sequence: PagedSequence
    start: int
    stop: int


class NamedTokens(NamedTuple):
    """Tokens that a device loop appended to a sequence, and what computed them."""

    origin: Hashable
    tokens: Sequence[int]


class TokensRead(NamedTuple):
    """Tokens that a call added to the states of its run."""

    tokens: int = 0
    found: int = 0
    """How many of these tokens were found in pages of earlier runs."""

    def plus(self, more: "TokensRead") -> "TokensRead":
        return TokensRead(self.tokens + more.tokens, self.found + more.found)


NOTHING: Final = TokensRead()


def trim(state: PagedState) -> None:
    """Release pages that were reserved and not used."""
    for sequence in state.sequences:
        kept = pages_for(sequence.length)
        state.pool.pages.release(sequence.pages[kept:])
        del sequence.pages[kept:]
