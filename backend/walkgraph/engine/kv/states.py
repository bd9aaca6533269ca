"""Owns what runs keep on one rank: paged sequences and tensors, by `StateKey`.

A `StateTable` is changed between forwards (fork, import, drop) and inside one through a `Transaction`, which either
settles or leaves no trace. Content is copied on write only: a fork shares pages, and tensors are replaced, never
written into.
"""

import logging
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import count

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, StateKey
from walkgraph.abi.states import Attention, Segment
from walkgraph.engine.kv.allocator import PAGE, PageFault, pages_for
from walkgraph.engine.kv.flashinfer_attention import FlashInferAttention, Workspace, unfit
from walkgraph.engine.kv.paged_attention import PaddedContexts, PagedAttention, PlacedSegment
from walkgraph.engine.kv.paged_state import (
    EMPTY,
    NOTHING,
    AppendedTokens,
    CacheSummary,
    PagedSequence,
    PagedState,
    TokensRead,
    trim,
)
from walkgraph.engine.kv.pool import Pool, slots_of
from walkgraph.engine.kv.prefix import PrefixCache, PrefixKey, PrefixStats
from walkgraph.layers.attention.flashinfer import installed

_LIMITED = 8192
"""Runs and sessions whose bounds are remembered: sessions end without a word, so the oldest are forgotten."""
_contents = count(1)
_log = logging.getLogger(__name__)

Attends = PagedAttention | FlashInferAttention


class StateTable:
    """All states of one rank. `pools`: name of a paged state -> the pool of its cache shape. `prefix_cache`: sequences
    share the pages of what they have in common from their beginning."""

    def __init__(self, pools: Mapping[str, Pool], contexts: PaddedContexts, *, prefix_cache: bool = False) -> None:
        self.pools = pools
        self.contexts = contexts
        self.prefixes = {pool: PrefixCache(pool.pages) for pool in set(pools.values()) if prefix_cache}
        self.paged: dict[StateKey, PagedState] = {}
        self.tensors: dict[StateKey, Tensor] = {}
        self._runs: dict[str, set[StateKey]] = {}
        self._most: OrderedDict[str, Mapping[str, int]] = OrderedDict()
        self._workspaces: dict[torch.device, Workspace] = {}
        self._told: set[str] = set()

    def limit(self, run: str, most: Mapping[str, int]) -> None:
        """Tokens that each paged state of a run may hold at most; a state that is not named has no bound."""
        self._most[run] = most
        self._most.move_to_end(run)
        if len(self._most) > _LIMITED:
            self._most.popitem(last=False)

    def most(self, key: StateKey) -> int | None:
        return self._most.get(key.run, {}).get(key.state)

    def transaction(self, origin: Hashable = None) -> "Transaction":
        """`origin`: what computes the forward, for the names of its tokens; None for one that names none."""
        return Transaction(self, origin if self.prefixes else None)

    def confirm(self, fresh: Iterable[AppendedTokens]) -> None:
        """The forward that appended these has gone well: their full pages are for all who begin alike. What is gone
        by now, or followed on what is not confirmed, is nobody's."""
        for key, row, start, stop in fresh:
            state, name = self.paged.get(key), row.name
            if state is None or name is None or name.sure != start or all(one is not row for one in state.rows):
                continue
            row.name = name._replace(sure=stop)
            self.prefixes[state.pool].add(name.origin, name.tokens[:stop], row.pages)

    @property
    def prefix_stats(self) -> PrefixStats:
        """Of all pools."""
        counts = [cache.stats for cache in self.prefixes.values()]
        return PrefixStats(*map(sum, zip(*counts, strict=True)))

    def glance(self, key: StateKey) -> CacheSummary | Tensor | None:
        """What a state holds now; None: nothing yet."""
        state = self.paged.get(key)
        if state is None:
            return self.tensors.get(key)
        lengths = [row.length for row in state.rows]
        return CacheSummary(len(lengths), max(lengths, default=0), sum(len(row.pages) for row in state.rows))

    def width(self, key: StateKey) -> int:
        state = self.paged.get(key)
        return len(state.rows) if state else 1

    def holds(self, key: StateKey) -> bool:
        """Whether a paged state has sequences."""
        state = self.paged.get(key)
        return state is not None and bool(state.rows)

    def attention(self, pool: Pool, entries: Sequence[PlacedSegment]) -> Attends:
        """By the fastest backend that can serve these entries."""
        on_gpu = pool.device.type == "cuda"
        why = unfit(pool.shape, entries, on_gpu and installed())
        if why is None:
            workspace = self._workspaces.setdefault(pool.device, Workspace(pool.device))
            return FlashInferAttention(pool, entries, workspace)
        if on_gpu and why not in self._told:
            self._told.add(why)
            _log.info("attention is PyTorch's where %s", why)
        return PagedAttention(pool, entries, self.contexts)

    def fork(self, source: StateKey, target: StateKey, width: int | None = None) -> None:
        """Replace `target` by a copy of `source`, counters included. With `width`, its sequences repeat in turn."""
        if source == target:
            return
        state, tensor = self.paged.get(source), self.tensors.get(source)
        forked = None
        if state is not None:
            if self.pools.get(target.state, state.pool) is not state.pool:
                raise PageFault(f"`{source.state}` and `{target.state}` have caches of different shapes")
            wanted = len(state.rows) if width is None else width
            forked = PagedState(state.pool, [state.rows[i % len(state.rows)].copy() for i in range(wanted)])
            for row in forked.rows:
                state.pool.pages.share(row.pages)
        self.drop((target,))
        if forked is not None:
            self._own(target)
            self.paged[target] = forked
        if tensor is not None:
            self.set(target, tensor)

    def export(self, key: StateKey) -> dict[str, Tensor]:
        """A copy for another rank; empty for a state that holds nothing yet.

        Paged: `counters` int64 `[width, 2]` (length, position) and `kv.<i>` `[2, N, length, G, D]` per sequence;
        otherwise `tensor`.
        """
        state = self.paged.get(key)
        if state is not None:
            counters = torch.tensor([[row.length, row.position] for row in state.rows])
            kept = {f"kv.{i}": state.pool.read(row.pages, row.length) for i, row in enumerate(state.rows)}
            return {"counters": counters, **kept}
        tensor = self.tensors.get(key)
        return {} if tensor is None else {"tensor": tensor}

    def import_state(self, key: StateKey, value: Mapping[str, Tensor]) -> None:
        """Replace `key` by what `export` gave. Raises `OutOfPages`; whatever it raises, `key` is as it was."""
        if "tensor" in value or not value:
            self.drop((key,))
            if value:
                self.set(key, value["tensor"])
            return
        pool = self.pool(key)
        counters: list[list[int]] = value["counters"].tolist()
        taken = pool.pages.take(sum(pages_for(length) for length, _ in counters))
        pages = iter(taken)
        rows: list[PagedSequence] = []
        try:
            for index, (length, position) in enumerate(counters):
                row = PagedSequence([next(pages) for _ in range(pages_for(length))], length, position, next(_contents))
                pool.write(row.pages, value[f"kv.{index}"])
                rows.append(row)
        except Exception:
            pool.pages.release(taken)
            raise
        self.drop((key,))
        self._own(key)
        self.paged[key] = PagedState(pool, rows)

    def paged_of(self, run: str) -> dict[StateKey, PagedState]:
        return {key: self.paged[key] for key in self._runs.get(run, ()) if key in self.paged}

    def tensors_of(self, run: str) -> list[StateKey]:
        return [key for key in self._runs.get(run, ()) if key in self.tensors]

    def put_back(
        self, paged: Mapping[StateKey, PagedState], pages: Mapping[Pool, Sequence[int]]
    ) -> dict[Pool, list[int]]:
        """Hold again what was dropped, in as many pages and shared in the same way; what is in them is the caller's to
        write. -> for each pool the pages that take the place of `pages`. Raises `OutOfPages` and holds none then."""
        taken: dict[Pool, list[int]] = {}
        try:
            for pool, old in pages.items():
                taken[pool] = pool.pages.take(len(old))
        except Exception:
            for pool, fresh in taken.items():
                pool.pages.release(fresh)
            raise
        renamed = {pool: dict(zip(pages[pool], fresh, strict=True)) for pool, fresh in taken.items()}
        contents: dict[int, int] = {EMPTY: EMPTY}
        held: set[tuple[Pool, int]] = set()
        for key, state in paged.items():
            for row in state.rows:
                row.pages = [renamed[state.pool][page] for page in row.pages]
                row.content = contents.setdefault(row.content, next(_contents))
                state.pool.pages.share(page for page in row.pages if (state.pool, page) in held)
                held.update((state.pool, page) for page in row.pages)
            self._own(key)
            self.paged[key] = state
        return taken

    def set(self, key: StateKey, value: Tensor) -> None:
        self._own(key)
        self.tensors[key] = value

    def drop(self, keys: Iterable[StateKey]) -> None:
        for key in keys:
            self.tensors.pop(key, None)
            state = self.paged.pop(key, None)
            if state is not None:
                for row in state.rows:
                    state.pool.pages.release(row.pages)
            owned = self._runs.get(key.run)
            if owned is not None:
                owned.discard(key)
                if not owned:
                    del self._runs[key.run]
        if not self.paged:
            self.contexts.clear()

    def drop_run(self, run: str) -> None:
        self.drop(tuple(self._runs.get(run, ())))
        self._most.pop(run, None)

    def pool(self, key: StateKey) -> Pool:
        pool = self.pools.get(key.state)
        if pool is None:
            raise PageFault(f"state `{key.state}` has no cache on this rank; have {sorted(self.pools)}")
        return pool

    def open(self, key: StateKey) -> PagedState:
        """The paged state, made empty where there is none yet."""
        state = self.paged.get(key)
        if state is None:
            state = self.paged[key] = PagedState(self.pool(key), [])
            self._own(key)
        return state

    def alike(self, one: StateKey, other: StateKey) -> bool:
        """Whether two states certainly hold the same."""
        if one == other:
            return True
        first, second = self.paged.get(one), self.paged.get(other)
        if first is None or second is None or len(first.rows) != len(second.rows) or first.pool is not second.pool:
            return False
        return all(a.alike(b) for a, b in zip(first.rows, second.rows, strict=True))

    def hold(self, key: StateKey, tokens: int) -> list[PagedSequence]:
        """Reserve room for `tokens` more of every sequence of a state, of one where it holds none, until `appended`.
        Raises `OutOfPages`, and `CallFailed` where they are more than the run may hold; then nothing has changed."""
        transaction = self.transaction()
        try:
            return transaction.hold(key, tokens)
        except Exception:
            transaction.rollback()
            raise

    def appended(self, key: StateKey, tokens: int, advance: int) -> None:
        """Count tokens that were written into the room held for them, and give the rest of it back."""
        for row in self.paged[key].rows if tokens else ():
            row.length += tokens
            row.position += advance
            row.content = next(_contents)
            row.name = None
        trim(self.paged[key])

    def renew(self, key: StateKey, source: StateKey | None, width: int) -> None:
        """Replace a state by a copy of another one, or by nothing; a paged one has `width` sequences."""
        if source is None:
            self.drop((key,))
        else:
            self.fork(source, key, width)
        if key not in self.paged and key.state in self.pools:
            self.open(key).rows.extend(PagedSequence() for _ in range(width))

    def audit(self) -> None:
        """Raises `PageFault` unless every page is free or held by exactly the sequences that list it."""
        for pool in set(self.pools.values()):
            pool.pages.audit(row.pages for state in self.paged.values() if state.pool is pool for row in state.rows)
        for cache in self.prefixes.values():
            cache.audit()

    def _own(self, key: StateKey) -> None:
        self._runs.setdefault(key.run, set()).add(key)


class Transaction:
    """One forward's `States`: what it reserved, appended and put counts after `settle` and is gone after `rollback`."""

    def __init__(self, table: StateTable, origin: Hashable = None) -> None:
        self._table, self._origin = table, origin
        self._before: dict[StateKey, list[PagedSequence] | None] = {}
        self._taken: list[tuple[Pool, list[int]]] = []
        self._left: list[tuple[Pool, int]] = []
        self._copies: dict[Pool, list[tuple[int, int]]] = {}
        """Pages that are to be copied to others before something is written into these."""
        self._puts: dict[StateKey, Tensor] = {}
        self._asked: list[tuple[PrefixCache, int, int]] = []
        self._found: dict[StateKey, int] = {}
        """Tokens that were there already, in the pages of others."""

    def position(self, key: StateKey, sequence: int = 0) -> int:
        row = self._row(key, sequence)
        return row.position if row else 0

    def length(self, key: StateKey, sequence: int = 0) -> int:
        row = self._row(key, sequence)
        return row.length if row else 0

    def reuse(self, key: StateKey, tokens: Sequence[int]) -> int:
        pool = self._table.pool(key)
        row, name = self._row(key, 0) or PagedSequence(), self._named(self._row(key, 0) or PagedSequence())
        if name is None or len(row.pages) * PAGE != row.length or self._table.width(key) > 1:
            return 0
        whole = (*name.tokens, *tokens)
        cache = self._table.prefixes[pool]
        pages = cache.find(name.origin, whole)[len(row.pages) :]
        more = len(pages) * PAGE
        self._asked.append((cache, len(tokens), more))
        if pages:
            row = self._opened(key, 0)
            pool.pages.share(pages)
            self._taken.append((pool, pages))
            row.pages += pages
            self._found[key] = more
            row.length += more
            row.position += more
            row.content = next(_contents)
            row.name = name._replace(tokens=whole[: row.length])
        return more

    def attend(self, segments: Sequence[Segment]) -> Attends:
        """Segments of one pool, at most one per sequence. Raises `OutOfPages`."""
        pool = self._table.pool(segments[0].state)
        seen: set[tuple[StateKey, int]] = set()
        entries: list[PlacedSegment] = []
        for segment in segments:
            if self._table.pool(segment.state) is not pool or (segment.state, segment.sequence) in seen:
                raise PageFault("a forward may append to a sequence once, and to sequences of one cache shape")
            seen.add((segment.state, segment.sequence))
            entries.append(self._entry(segment, pool))
        self._copy()
        return self._table.attention(pool, entries)

    def hold(self, key: StateKey, tokens: int) -> list[PagedSequence]:
        pool = self._table.pool(key)
        rows = [self._reserve(key, sequence, tokens, pool) for sequence in range(max(1, self._table.width(key)))]
        self._copy()
        for pool, page in self._left:
            pool.pages.release((page,))
        self._left.clear()
        return rows

    def commit(self, attention: Attention) -> None:
        if not isinstance(attention, Attends):
            raise PageFault("`commit` takes what `attend` gave")
        for entry in attention.entries:
            if entry.segment.keep:
                row = self._table.paged[entry.segment.state].rows[entry.segment.sequence]
                row.name = self._renamed(row, entry)
                row.length += entry.new
                row.position += entry.segment.advance
                row.content = next(_contents)

    def tensor(self, key: StateKey) -> Tensor | None:
        return self._puts.get(key, self._table.tensors.get(key))

    def put(self, key: StateKey, value: Tensor) -> None:
        self._puts[key] = value

    def read(self, call: Call) -> TokensRead:
        """What a call added to its sequences so far: of several, to the one that got most."""
        return max((self._grown(key) for key in call.states.values()), default=NOTHING)

    def settle(self) -> list[AppendedTokens]:
        """-> what `StateTable.confirm` takes, once the forward is known to have gone well."""
        for pool, page in self._left:
            pool.pages.release((page,))
        for key in self._before:
            trim(self._table.paged[key])
        for key, value in self._puts.items():
            self._table.set(key, value)
        for cache, tokens, saved in self._asked:
            cache.count(tokens, saved)
        return self._fresh()

    def rollback(self) -> None:
        for key, rows in self._before.items():
            if rows is None:
                # Its pages are all in `_taken`.
                self._table.paged[key].rows.clear()
                self._table.drop((key,))
            else:
                self._table.paged[key].rows[:] = rows
        for pool, pages in self._taken:
            pool.pages.release(pages)

    def _grown(self, key: StateKey) -> TokensRead:
        if key not in self._before:
            return NOTHING
        before = self._before[key] or []
        lengths = [row.length for row in self._table.paged[key].rows]
        known = [row.length for row in before] + [0] * (len(lengths) - len(before))
        most = max((now - then for now, then in zip(lengths, known, strict=True)), default=0)
        return TokensRead(most, self._found.get(key, 0))

    def _row(self, key: StateKey, sequence: int) -> PagedSequence | None:
        state = self._table.paged.get(key)
        return state.rows[sequence] if state and sequence < len(state.rows) else None

    def _fresh(self) -> list[AppendedTokens]:
        fresh: list[AppendedTokens] = []
        for key, before in self._before.items():
            for index, row in enumerate(self._table.paged[key].rows):
                if row.name is not None:
                    known = before[index].length if before and index < len(before) else 0
                    fresh += [AppendedTokens(key, row, known, row.length)] if row.length > known else []
        return fresh

    def _named(self, row: PagedSequence) -> PrefixKey | None:
        """The name that more tokens of this forward can be added to."""
        name = PrefixKey(self._origin) if not row.length and not row.position else row.name
        return name if name is not None and name.origin is self._origin is not None else None

    def _renamed(self, row: PagedSequence, entry: PlacedSegment) -> PrefixKey | None:
        segment, name = entry.segment, self._named(row)
        if segment.tokens is None or name is None:
            return None
        if segment.mode != "causal" or not segment.advance == entry.new == len(segment.tokens):
            raise PageFault("only causal rows of a position each can have names, one for each row")
        return name._replace(tokens=(*name.tokens, *segment.tokens))

    def _entry(self, segment: Segment, pool: Pool) -> PlacedSegment:
        new = segment.rows.shape[0]
        if not segment.keep:
            row = self._row(segment.state, segment.sequence) or PagedSequence()
            return PlacedSegment(segment, new, row.pages, row.length, row.content, None)
        row = self._reserve(segment.state, segment.sequence, new, pool)
        slots = slots_of(row.pages, row.length, row.length + new, pool.device)
        return PlacedSegment(segment, new, row.pages, row.length, row.content, slots)

    def _opened(self, key: StateKey, sequence: int) -> PagedSequence:
        """A row to append to, as it was before is noted."""
        if key not in self._before:
            known = self._table.paged.get(key)
            self._before[key] = [row.copy() for row in known.rows] if known else None
        rows = self._table.open(key).rows
        if sequence > len(rows):
            raise PageFault(f"sequence {sequence} of `{key.state}` comes before sequence {len(rows)}")
        if sequence == len(rows):
            rows.append(PagedSequence())
        return rows[sequence]

    def _reserve(self, key: StateKey, sequence: int, new: int, pool: Pool) -> PagedSequence:
        row = self._opened(key, sequence)
        most = self._table.most(key)
        if most is not None and sum(each.length for each in self._table.paged[key].rows) + new > most:
            raise CallFailed(
                f"`{key.state}` holds at most {most} tokens in this run, and {new} more are too many; send less, raise "
                "what its `capacity` is made of or, in a session, begin anew",
                code="invalid_input",
            )
        copies = bool(new and row.length % PAGE) and pool.pages.shared(row.pages[row.length // PAGE])
        taken = pool.pages.take(copies + max(0, pages_for(row.length + new) - len(row.pages)))
        self._taken.append((pool, taken))
        if copies:
            last = row.length // PAGE
            self._copies.setdefault(pool, []).append((row.pages[last], taken[0]))
            self._left.append((pool, row.pages[last]))
            row.pages[last] = taken[0]
        row.pages.extend(taken[copies:])
        return row

    def _copy(self) -> None:
        for pool, pages in self._copies.items():
            pool.copy_pages(*zip(*pages, strict=True))
        self._copies.clear()
