"""Shares pages between sequences that begin alike: what was computed for one is read by the others.

    origin ─┬─ 16 tokens, page 4 ─┬─ 16 tokens, page 9
            │                     └─ 16 tokens, page 2
            └─ 16 tokens, page 7

A tree of full pages. A page is reached through all tokens of its sequence up to its end, compared one by one, so a page
found is never that of another text. The origin is what computes keys and values from tokens: an operator with its
weights. Tokens have positions 0, 1, 2, ... A page that no sequence holds is evicted when free pages run out, along with
all pages behind it, which can't be reached without it.

Like all results, keys and values of a prefix depend on the batch that computed them, to the noise of their dtype.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from walkgraph.engine.kv.allocator import PAGE, PageAllocator, PageFault

Tokens = tuple[int, ...]


class PrefixKey(NamedTuple):
    """Identifies what the keys and values of a sequence were computed from, first token to last."""

    origin: Hashable
    tokens: Tokens = ()
    sure: int = 0
    """Leading tokens whose forwards are known to have succeeded: only these are shared."""


class PrefixStats(NamedTuple):
    """Counts since the start, except `pages`."""

    lookups: int = 0
    hits: int = 0
    """Lookups that found at least one page."""
    tokens: int = 0
    """Tokens looked up."""
    saved: int = 0
    """Tokens found, and not computed again."""
    pages: int = 0
    """Pages kept now, including those of running sequences."""
    evicted: int = 0
    """Kept pages that were evicted because others needed them."""


@dataclass(slots=True, eq=False)
class _Node:
    page: int
    tokens: Tokens
    parent: "_Node | None"
    children: "dict[Tokens, _Node]" = field(default_factory=dict["Tokens", "_Node"])


class PrefixCache:
    """The prefix cache of one pool. It knows pages and tokens, not states."""

    def __init__(self, pages: PageAllocator) -> None:
        self._pages = pages
        self._roots: dict[Hashable, _Node] = {}
        self._nodes: dict[int, _Node] = {}
        self._counts = PrefixStats()
        pages.evict_by(self._evict)

    @property
    def stats(self) -> PrefixStats:
        return self._counts._replace(pages=len(self._nodes))

    def find(self, origin: Hashable, tokens: Tokens) -> list[int]:
        """The known pages of the full pages that `tokens` begin with. The page of the last token is left out: that
        token must be computed, because its output is wanted."""
        found: list[int] = []
        node = self._roots.get(origin)
        for part in _parts(tokens[:-1]):
            node = node.children.get(part) if node is not None else None
            if node is None:
                break
            found.append(node.page)
        return found

    def count(self, tokens: int, saved: int) -> None:
        """Count a lookup whose result was used."""
        c = self._counts
        self._counts = c._replace(
            lookups=c.lookups + 1, hits=c.hits + (saved > 0), tokens=c.tokens + tokens, saved=c.saved + saved
        )

    def add(self, origin: Hashable, tokens: Tokens, pages: Sequence[int]) -> None:
        """Keep the full pages of a sequence, except those for whose tokens another page is kept."""
        node = self._roots.setdefault(origin, _Node(0, (), None))
        for part, page in zip(_parts(tokens), pages, strict=False):
            child = node.children.get(part)
            if child is None:
                self._pages.keep(page)
                child = self._nodes[page] = node.children[part] = _Node(page, part, node)
            node = child

    def audit(self) -> None:
        """Raise `PageFault` unless the tree has exactly the pages that are kept, each once."""
        reached: list[int] = []
        left = list(self._roots.values())
        while left:
            node = left.pop()
            left += node.children.values()
            if node.parent is not None:
                reached.append(node.page)
        if len(set(reached)) != len(reached) or not set(reached) == self._nodes.keys() == self._pages.kept:
            raise PageFault(f"{len(reached)} pages can be found by their tokens, and {len(self._pages.kept)} are kept")

    def _evict(self, page: int) -> None:
        node = self._nodes[page]
        if node.parent is not None:
            del node.parent.children[node.tokens]
        left = [node]
        while left:
            one = left.pop()
            left += one.children.values()
            del self._nodes[one.page]
            self._pages.unkeep(one.page)
            self._counts = self._counts._replace(evicted=self._counts.evicted + 1)


def _parts(tokens: Tokens) -> Iterator[Tokens]:
    """The tokens in full pages."""
    return (tokens[at : at + PAGE] for at in range(0, len(tokens) - PAGE + 1, PAGE))
