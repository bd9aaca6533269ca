"""Shares pages between sequences that begin alike: what was computed for one is read by the others.

    origin ─┬─ 16 tokens, page 4 ─┬─ 16 tokens, page 9
            │                     └─ 5 tokens, page 2
            └─ 16 tokens, page 7

A tree of pages. A page is reached through all tokens of its sequence up to its end, compared one by one, so a page
found is never that of another text. A row of a picture or a sound has a number in place of a token, which is made of a
digest of what it shows and of the row's place in it. The origin is what computes keys and values from tokens: an
operator with its weights, for those that may share. Tokens have positions 0, 1, 2, ...; those of media follow from what
is digested.

The last page of a sequence that has ended may be partly full. Who begins like it copies the page before appending. A
page that no sequence holds is evicted when free pages run out, along with all pages behind it, which can't be reached
without it.

Like all results, keys and values of a prefix depend on the batch that computed them, to the noise of their dtype.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from walkgraph.engine.kv.allocator import PAGE, PageAllocator, PageFault

Tokens = tuple[int, ...]
_COMPARED: Final = 64
"""The most pages behind one page that are compared token by token; the newest first."""


class PrefixKey(NamedTuple):
    """Identifies what the keys and values of a sequence were computed from, first token to last."""

    origin: Hashable
    tokens: Tokens = ()
    sure: int = 0
    """Leading tokens whose forwards are known to have succeeded: only these are shared."""


class Found(NamedTuple):
    """Pages that hold what a sequence begins with."""

    pages: list[int]
    tokens: int
    """Tokens that they hold of it; the last page may have room behind them, or hold other tokens there."""


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
    origin: Hashable = None
    """Set for the origin's own node, which has no page."""
    children: "dict[Tokens, _Node]" = field(default_factory=dict["Tokens", "_Node"])
    begin: "dict[int, dict[_Node, None]]" = field(default_factory=dict["int", "dict[_Node, None]"])
    """The children by their first token, the oldest first."""

    def alike(self, tokens: Tokens) -> "Iterator[tuple[int, _Node]]":
        """Children that begin like these tokens, with the number of tokens that agree."""
        for child in islice(reversed(self.begin.get(tokens[0], {})), _COMPARED) if tokens else ():
            yield _agreeing(child.tokens, tokens), child

    def add(self, child: "_Node") -> None:
        self.children[child.tokens] = child
        self.begin.setdefault(child.tokens[0], {})[child] = None

    def remove(self, child: "_Node") -> None:
        del self.children[child.tokens]
        beside = self.begin[child.tokens[0]]
        del beside[child]
        if not beside:
            del self.begin[child.tokens[0]]


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

    def find(self, origin: Hashable, tokens: Tokens) -> Found:
        """Find the pages that hold the first of these tokens, as many as are known."""
        found, at, node = list[int](), 0, self._roots.get(origin)
        for part in _parts(tokens):
            child = node.children.get(part) if node is not None else None
            if child is None:
                break
            found.append(child.page)
            node, at = child, at + PAGE
        rest = tokens[at : at + PAGE]
        agreeing, last = max(node.alike(rest), key=lambda one: one[0], default=(0, None)) if node else (0, None)
        if last is not None:
            found.append(last.page)
        return Found(found, at + agreeing)

    def count(self, tokens: int, saved: int) -> None:
        """Count a lookup whose result was used."""
        c = self._counts
        self._counts = c._replace(
            lookups=c.lookups + 1, hits=c.hits + (saved > 0), tokens=c.tokens + tokens, saved=c.saved + saved
        )

    def add(self, origin: Hashable, tokens: Tokens, pages: Sequence[int], *, ended: bool = False) -> None:
        """Keep the full pages of a sequence, except those for whose tokens another page is kept. `ended`: it appends
        no more, so keep its last page too if that is partly full."""
        node = self._roots.get(origin) or _Node(0, (), None, origin)
        for part, page in zip(_parts(tokens), pages, strict=False):
            child = node.children.get(part)
            node = self._kept(node, part, page) if child is None else child
        rest = tokens[len(tokens) // PAGE * PAGE :]
        if not ended or not rest or any(count == len(rest) for count, _ in node.alike(rest)):
            return
        if pages[len(tokens) // PAGE] not in self._nodes:
            self._kept(node, rest, pages[len(tokens) // PAGE])

    def _kept(self, parent: _Node, tokens: Tokens, page: int) -> _Node:
        """Keep a page, in place of those that hold only a part of its tokens."""
        covered = [one for count, one in parent.alike(tokens) if count == len(one.tokens)]
        self._pages.keep(page)
        node = self._nodes[page] = _Node(page, tokens, parent)
        parent.add(node)
        if parent.parent is None:
            self._roots[parent.origin] = parent
        for one in covered:
            self._forget(one)
        return node

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
        self._counts = self._counts._replace(evicted=self._counts.evicted + self._forget(self._nodes[page]))

    def _forget(self, node: _Node) -> int:
        """Keep a page and those behind it no more; returns how many they were."""
        if node.parent is not None:
            node.parent.remove(node)
            if node.parent.parent is None and not node.parent.children:
                del self._roots[node.parent.origin]
        left, count = [node], 0
        while left:
            one = left.pop()
            left += one.children.values()
            del self._nodes[one.page]
            self._pages.unkeep(one.page)
            count += 1
        return count


def _parts(tokens: Tokens) -> Iterator[Tokens]:
    """The tokens in full pages."""
    return (tokens[at : at + PAGE] for at in range(0, len(tokens) - PAGE + 1, PAGE))


def _agreeing(one: Tokens, other: Tokens) -> int:
    """The number of first tokens that are equal."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
