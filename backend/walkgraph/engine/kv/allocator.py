"""Owns the pages of one paged pool: who holds which page, and how many hold it.

A page is `PAGE` consecutive slots, one token each:

    page:   0            1             2      ...
    slot:   0 ... 15 |   16 ... 31 |   32 ... 47

Page 0 is never handed out. It holds zeros, so that padded reads are finite whatever failed calls wrote elsewhere. All
holders of a shared page may read it and none may write it: a writer copies it first.

A full page may be kept after its last sequence is gone, for others that begin alike (`walkgraph.engine.kv.prefix`). A
kept page that no sequence holds counts as free. Such pages are evicted when free pages run out, the one released first
before others.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence

from walkgraph.errors import WalkgraphError
from walkgraph.wire.fault_points import FaultPoints

PAGE = 16
"""Tokens in a page."""


class OutOfPages(WalkgraphError):
    code = "out_of_memory"
    retryable = True

    def __init__(self, wanted: int, free: int) -> None:
        super().__init__(
            f"the key-value cache has {free} free pages and {wanted} are needed; "
            "try again when other runs have ended, or give the node's group more `memory`"
        )


class PageFault(WalkgraphError):
    """An invariant of the page table is broken. This is always a bug in Walkgraph, never the fault of a request."""


class PageAllocator:
    """Reference counts and the free list. Knows nothing of tokens, sequences or tensors."""

    def __init__(self, total: int, faults: FaultPoints | None = None) -> None:
        """`total`: pages that can be handed out."""
        if total < 1:
            raise PageFault(f"a pool of {total} pages can't hold anything; give the rank more cache memory")
        self.total, self._faults = total, faults
        self._free = list(range(total, 0, -1))
        self._holders = [0] * (total + 1)
        self._kept: set[int] = set()
        self._idle: OrderedDict[int, None] = OrderedDict()
        """Kept pages that no sequence holds, the one released first in front."""
        self._evict: Callable[[int], None] = self.unkeep

    def evict_by(self, evict: Callable[[int], None]) -> None:
        """Set the function that is called for a kept page that is needed. It must `unkeep` the page, and may `unkeep`
        others."""
        self._evict = evict

    @property
    def free(self) -> int:
        """Pages that can be taken, including pages that are only kept."""
        return len(self._free) + len(self._idle)

    @property
    def kept(self) -> frozenset[int]:
        return frozenset(self._kept)

    def take(self, count: int) -> list[int]:
        """Take `count` free pages with one holder each. Raises `OutOfPages` and takes none if there are fewer."""
        if count > self.free or (self._faults is not None and self._faults.due("allocate.pages")):
            raise OutOfPages(count, self.free)
        while count > len(self._free):
            self._evict(next(iter(self._idle)))
        taken = [self._free.pop() for _ in range(count)]
        for page in taken:
            if self._holders[page]:
                raise PageFault(f"page {page} was in the free list with {self._holders[page]} holders")
            self._holders[page] = 1
        return taken

    def share(self, pages: Iterable[int]) -> None:
        """Add a holder to each page."""
        for page in pages:
            self._held(page)
            self._holders[page] += 1
            self._idle.pop(page, None)

    def release(self, pages: Sequence[int]) -> None:
        """Remove a holder from each page; the last one frees the page. The pages of a sequence are given in its
        order."""
        # A page is found through the pages before it, so it must be evicted before them.
        for page in reversed(pages):
            self._held(page)
            self._holders[page] -= 1
            if not self._holders[page]:
                self._free.append(page)
            elif self._holders[page] == 1 and page in self._kept:
                self._idle[page] = None

    def keep(self, page: int) -> None:
        """Keep a page that somebody holds: it gets one more holder, which lets it go when free pages run out."""
        self._held(page)
        if page in self._kept:
            raise PageFault(f"page {page} is kept already")
        self._kept.add(page)
        self._holders[page] += 1

    def unkeep(self, page: int) -> None:
        """End `keep`."""
        if page not in self._kept:
            raise PageFault(f"page {page} is not kept")
        self._kept.remove(page)
        self._idle.pop(page, None)
        self.release((page,))

    def shared(self, page: int) -> bool:
        """True if a writer must copy the page first."""
        self._held(page)
        return self._holders[page] > 1

    def audit(self, lists: Iterable[Sequence[int]]) -> None:
        """Raise `PageFault` unless the holders of every page are exactly these page lists and the prefix cache, and
        all other pages are free."""
        wanted = Counter(page for pages in lists for page in pages)
        idle = {page for page in self._kept if not wanted[page]}
        wanted.update(self._kept)
        for page in range(1, self.total + 1):
            if wanted[page] != self._holders[page]:
                raise PageFault(f"page {page} has {self._holders[page]} holders and is in {wanted[page]} sequences")
        if len(set(self._free)) != len(self._free) or any(self._holders[page] for page in self._free):
            raise PageFault("a page is in the free list twice or while it is held")
        if idle != self._idle.keys():
            raise PageFault(f"pages {sorted(idle ^ self._idle.keys())} are wrongly counted as free, or as held")
        if len(self._free) + sum(1 for count in self._holders if count) != self.total:
            raise PageFault(f"{self.total} pages are not all either free or held")

    def _held(self, page: int) -> None:
        if not 0 < page <= self.total or not self._holders[page]:
            raise PageFault(f"page {page} is not held by anyone")


def pages_for(tokens: int) -> int:
    return -(-tokens // PAGE)
