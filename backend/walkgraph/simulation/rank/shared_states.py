"""States that share pages: the real table of states with its prefix cache, over pages of plain numbers.

What a sequence holds is written into its pages, and must be read from them as a `StateStore` keeps it. A token is
written as several rows, so that a page of the product holds as many tokens as a page of a simulated rank.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from walkgraph.abi.calls import StateKey
from walkgraph.engine.kv.allocator import PAGE, OutOfPages, PageAllocator, PageFault
from walkgraph.engine.kv.paged_state import NamedTokens
from walkgraph.engine.kv.pool import KVPools
from walkgraph.engine.kv.states import StateTable
from walkgraph.simulation.rank.states import PAGE_TOKENS, Contents, StateStore
from walkgraph.simulation.simulator import Simulator

ROWS = PAGE // PAGE_TOKENS
"""Rows of a token."""
ORIGIN = "tokens"
"""The origin of all pages: nothing but tokens decides what they hold."""


class ListedPool:
    """Pages whose rows are numbers. Stands for `engine.kv.pool.Pool`."""

    def __init__(self, pages: int) -> None:
        self.pages = PageAllocator(pages)
        self.rows = [[0] * PAGE for _ in range(pages + 1)]
        self.owners = [""] * (pages + 1)
        """Page -> whose run has written it."""

    def copy_pages(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        for source, target in zip(sources, targets, strict=True):
            self.rows[target], self.owners[target] = [*self.rows[source]], self.owners[source]

    def write(self, pages: Sequence[int], start: int, rows: Sequence[int], owner: str) -> None:
        for number, row in enumerate(rows, start):
            page = pages[number // PAGE]
            self.rows[page][number % PAGE], self.owners[page] = row, owner

    def read(self, pages: Sequence[int], length: int) -> list[int]:
        return [row for page in pages for row in self.rows[page]][:length]


class _NoAttention:
    """The states are read by no attention."""

    def __init__(self) -> None:
        self.contexts = dict[str, Any]()


class SharedStates(StateStore):
    """Checks every sequence against its twin when it is read and when it ends, and all pages when a run ends."""

    def __init__(self, simulator: Simulator, paged: tuple[str, ...], pages: int) -> None:
        super().__init__(simulator, paged, pages)
        self._pool = ListedPool(pages)
        pools = KVPools(cast("Any", dict.fromkeys(paged, self._pool)), prefix_cache=True)
        self._table = StateTable(pools, cast("Any", _NoAttention()), self.limits)

    def read(self, key: StateKey) -> Contents | None:
        self._check(key)
        return super().read(key)

    def write(self, key: StateKey, contents: Contents) -> None:
        if key.state in self.paged:
            self._write_pages(key, contents.get("tokens", ()))
        super().write(key, contents)

    def drop(self, keys: Iterable[StateKey]) -> None:
        ended = [*keys]
        self.before_use(ended)
        for key in ended:
            self._check(key)
        self._table.drop(key for key in ended if key.state in self.paged)
        super().drop(ended)

    def drop_run(self, run: str) -> None:
        super().drop_run(run)
        self.audit()

    def renew(self, key: StateKey, source: StateKey | None) -> None:
        self.before_use((key,) if source is None else (source, key))
        found = self.read(source) if source is not None else None
        if source is None or found is None or not {key.state, source.state} <= {*self.paged}:
            super().renew(key, source)
        elif source != key:
            self._check(key)
            self._table.fork(source, key)
            super().drop(())
            super().write(key, found)

    def pages(self) -> tuple[int, int]:
        return self._table.pools.pages()

    def audit(self) -> None:
        super().audit()
        try:
            self._table.audit()
        except PageFault as error:
            raise self._simulator.fail(str(error)) from error

    # ── pages ──

    def _write_pages(self, key: StateKey, tokens: Sequence[int]) -> None:
        before = self._tokens(key)
        if [*tokens[: len(before)]] != before:
            self._table.drop((key,))
            before = []
        rows = _rows(tokens[len(before) :])
        found = self._found(key, rows) if rows and not before else 0
        if found == len(rows):
            return
        counts, cache = self._simulator.counts, self._table.pools.prefixes[cast("Any", self._pool)]
        evicted = cache.stats.evicted
        try:
            (sequence,) = self._table.hold(key, len(rows) - found)
        except OutOfPages as error:
            raise self._simulator.fail(f"`{key.state}` gets no page, though its run was admitted", key.run) from error
        counts["kept pages evicted"] += cache.stats.evicted - evicted
        self._pool.write(sequence.pages, sequence.length, rows[found:], self.limits.owner(key.run))
        self._table.appended(key, len(rows) - found, len(rows) - found, NamedTokens(ORIGIN, rows[found:]))

    def _found(self, key: StateKey, rows: Sequence[int]) -> int:
        """Lets a state begin with pages of others; returns how many of these rows they hold."""
        forward = self._table.transaction(ORIGIN)
        found = forward.reuse(key, rows, answered=False)
        self._table.confirm(forward.settle())
        if not found:
            return 0
        self._simulator.counts["prefixes found"] += 1
        owner = self.limits.owner(key.run)
        of = {self._pool.owners[page] for page in self._table.paged[key].sequences[0].pages}
        if of != {owner}:
            raise self._simulator.fail(f"`{key.state}` of `{owner}` begins with pages of {sorted(of)}", key.run)
        return found

    def _check(self, key: StateKey) -> None:
        tokens = self._tokens(key) if key.state in self.paged else []
        if not tokens:
            return
        (sequence,) = self._table.paged[key].sequences
        held = self._pool.read(sequence.pages, sequence.length)
        if held != _rows(tokens):
            raise self._simulator.fail(f"the pages of `{key.state}` hold {held}, by the book {_rows(tokens)}", key.run)

    def _tokens(self, key: StateKey) -> list[int]:
        return [*(super().read(key) or {}).get("tokens", ())]


def _rows(tokens: Sequence[int]) -> list[int]:
    return [ROWS * token + row for token in tokens for row in range(ROWS)]
