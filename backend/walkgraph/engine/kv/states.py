"""Owns the states of runs on one rank: paged sequences and tensors, by `StateKey`.

A `StateTable` is changed between forwards (fork, import, drop), by device loops (hold, appended, renew), and inside a
forward through a `Transaction`, which either settles or leaves no trace. Content is copied on write only: a fork shares
pages, and tensors are replaced, never written into.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, StateKey
from walkgraph.abi.states import Attention, Segment
from walkgraph.engine.kv.allocator import PAGE, PageFault, pages_for
from walkgraph.engine.kv.attention_backends import AttentionBackend, AttentionBackends
from walkgraph.engine.kv.limits import StateLimits
from walkgraph.engine.kv.paged_attention import PlacedSegment, with_slots
from walkgraph.engine.kv.paged_state import (
    CONTENTS,
    NOTHING,
    AppendedTokens,
    CacheSummary,
    NamedTokens,
    PagedSequence,
    PagedState,
    TokensRead,
    trim,
)
from walkgraph.engine.kv.pool import KVPools, Pool, slots_of
from walkgraph.engine.kv.prefix import PrefixCache, PrefixKey


class StateTable:
    """All states of one rank."""

    def __init__(self, pools: KVPools, attention: AttentionBackends, limits: StateLimits | None = None) -> None:
        """`limits`: the most tokens of each run's states; None if only the pools limit them."""
        self.pools, self.attention = pools, attention
        self.limits = StateLimits() if limits is None else limits
        self.paged: dict[StateKey, PagedState] = {}
        self.tensors: dict[StateKey, Tensor] = {}
        self._runs: dict[str, set[StateKey]] = {}
        self.before_use: Callable[[Iterable[StateKey]], None] = lambda keys: None
        """Called before states are read or changed outside forwards: makes the calls that are deferred on them."""

    # ── queries ──

    def keys_of(self, run: str) -> Iterable[StateKey]:
        """The states that a run holds."""
        return self._runs.get(run, ())

    def glance(self, key: StateKey) -> CacheSummary | Tensor | None:
        """Describe what a state holds now; None if nothing yet."""
        state = self.paged.get(key)
        if state is None:
            return self.tensors.get(key)
        lengths = [one.length for one in state.sequences]
        pages = sum(len(one.pages) for one in state.sequences)
        return CacheSummary(len(lengths), max(lengths, default=0), pages)

    def width(self, key: StateKey) -> int:
        """The number of sequences in a state; 1 if it holds nothing yet."""
        state = self.paged.get(key)
        return len(state.sequences) if state else 1

    def holds(self, key: StateKey) -> bool:
        """True if a paged state has sequences."""
        state = self.paged.get(key)
        return state is not None and bool(state.sequences)

    def alike(self, one: StateKey, other: StateKey) -> bool:
        """True only if two states are sure to hold the same."""
        if one == other:
            return True
        first, second = self.paged.get(one), self.paged.get(other)
        if first is None or second is None or first.pool is not second.pool:
            return False
        if len(first.sequences) != len(second.sequences):
            return False
        return all(a.alike(b) for a, b in zip(first.sequences, second.sequences, strict=True))

    def audit(self) -> None:
        """Raise `PageFault` unless every page is free or held by exactly the sequences that list it."""
        for pool in self.pools.each:
            states = [state for state in self.paged.values() if state.pool is pool]
            pool.pages.audit(one.pages for state in states for one in state.sequences)
        self.pools.audit_prefixes()

    # ── changes between forwards ──

    def set(self, key: StateKey, value: Tensor) -> None:
        self._own(key)
        self.tensors[key] = value

    def adopt(self, key: StateKey, state: PagedState) -> None:
        """Add a state whose pages are already held for it."""
        self._own(key)
        self.paged[key] = state

    def fork(self, source: StateKey, target: StateKey, width: int | None = None) -> None:
        """Replace `target` by a copy of `source`, with its counters. With `width`, the sequences of `source` are
        repeated in turn."""
        if source == target:
            return
        self.before_use((source, target))
        state, tensor = self.paged.get(source), self.tensors.get(source)
        forked = None
        if state is not None:
            if self.pools.by_state.get(target.state, state.pool) is not state.pool:
                raise PageFault(f"`{source.state}` and `{target.state}` have caches of different shapes")
            count = len(state.sequences)
            wanted = count if width is None else width
            forked = PagedState(state.pool, [state.sequences[i % count].copy() for i in range(wanted)])
            for sequence in forked.sequences:
                state.pool.pages.share(sequence.pages)
        self.drop((target,))
        if forked is not None:
            self.adopt(target, forked)
        if tensor is not None:
            self.set(target, tensor)

    def drop(self, keys: Iterable[StateKey], *, undone: bool = False) -> None:
        """`undone`: a forward that opened these states is undone; the calls that are deferred on them stay deferred."""
        keys = tuple(keys)
        if not undone:
            self.before_use(keys)
        for key in keys:
            self.tensors.pop(key, None)
            state = self.paged.pop(key, None)
            if state is not None:
                for sequence in state.sequences:
                    self.pools.keep_ended(state.pool, sequence.prefix, sequence.length, sequence.pages)
                    state.pool.pages.release(sequence.pages)
            owned = self._runs.get(key.run)
            if owned is not None:
                owned.discard(key)
                if not owned:
                    del self._runs[key.run]
        if not self.paged:
            self.attention.contexts.clear()

    def drop_run(self, run: str) -> None:
        self.drop(tuple(self.keys_of(run)))
        self.limits.forget(run)

    # ── forwards ──

    def transaction(self, origin: Hashable = None) -> "Transaction":
        """`origin`: what computes the forward, for the prefix keys of its tokens; None for a forward without prefix
        keys."""
        return Transaction(self, origin)

    def open(self, key: StateKey) -> PagedState:
        """The paged state; an empty one is made if there is none."""
        state = self.paged.get(key)
        if state is None:
            state = PagedState(self.pools.of(key), [])
            self.adopt(key, state)
        return state

    def confirm(self, appended: Iterable[AppendedTokens]) -> None:
        """Confirm that the forward which appended these tokens succeeded, so that their full pages can be shared.
        Tokens that are gone by now, or that follow unconfirmed tokens, are not shared."""
        for key, sequence, start, stop in appended:
            state, prefix = self.paged.get(key), sequence.prefix
            if state is None or prefix is None or prefix.sure != start:
                continue
            if all(one is not sequence for one in state.sequences):
                continue
            sequence.prefix = prefix._replace(sure=stop)
            self.pools.prefixes[state.pool].add(prefix.origin, prefix.tokens[:stop], sequence.pages)

    # ── loops on the device ──

    def hold(self, key: StateKey, tokens: int) -> list[PagedSequence]:
        """Reserve pages for `tokens` more in every sequence of a state (in one sequence if it holds none), until
        `appended`. Raises `OutOfPages`, or `CallFailed` if they are more than the run may hold; then nothing has
        changed."""
        self.before_use((key,))
        reservation = Reservation(self)
        try:
            pool = self.pools.of(key)
            held = [reservation.take(key, sequence, tokens, pool) for sequence in range(max(1, self.width(key)))]
            reservation.copy()
        except Exception:
            reservation.undo()
            raise
        reservation.settle()
        return held

    def appended(self, key: StateKey, tokens: int, advance: int, named: NamedTokens | None = None) -> None:
        """Count tokens that were written into the pages held for them, and release the other pages. `named`: what they
        are, if that is known of all of them; their numbers were finite."""
        state = self.paged[key]
        for sequence in state.sequences if tokens else ():
            prefix = self.extendable(key, sequence, named.origin) if named and len(state.sequences) == 1 else None
            sure = prefix is not None and prefix.sure == sequence.length
            sequence.length += tokens
            sequence.position += advance
            sequence.content = next(CONTENTS)
            sequence.prefix = None
            if prefix is not None and named is not None and len(named.tokens) == tokens == advance:
                whole = (*prefix.tokens, *named.tokens)
                sequence.prefix = PrefixKey(prefix.origin, whole, sequence.length if sure else prefix.sure)
                if sure:
                    self.pools.prefixes[state.pool].add(prefix.origin, whole, sequence.pages)
        trim(state)

    def extendable(self, key: StateKey, row: PagedSequence, origin: Hashable) -> PrefixKey | None:
        """The prefix key of a sequence that more tokens of this origin can extend, or None."""
        if origin is None or not self.pools.prefix_cache:
            return None
        own = origin, self.limits.salt(key.run)
        prefix = PrefixKey(own) if not row.length and not row.place else row.prefix
        return prefix if prefix is not None and prefix.origin == own else None

    def renew(self, key: StateKey, source: StateKey | None, width: int) -> None:
        """Replace a state by a copy of `source`, or empty it if that is None. A paged state then has `width`
        sequences."""
        if source is None:
            self.drop((key,))
        else:
            self.fork(source, key, width)
        if key not in self.paged and key.state in self.pools.by_state:
            self.open(key).sequences.extend(PagedSequence() for _ in range(width))

    def _own(self, key: StateKey) -> None:
        self._runs.setdefault(key.run, set()).add(key)


class Reservation:
    """Pages taken for new tokens of sequences. `settle` makes it final; `undo` gives everything back."""

    def __init__(self, table: StateTable, *, limited: bool = True) -> None:
        """`limited`: within the limits of runs. What arrives from another rank was within them there."""
        self._table, self._limited = table, limited
        self.before: dict[StateKey, list[PagedSequence] | None] = {}
        """The sequences of each opened state as they were; None for a state that was empty."""
        self._taken: list[tuple[Pool, list[int]]] = []
        self._replaced: list[tuple[Pool, int]] = []
        """Shared pages that were replaced by copies."""
        self._copies: dict[Pool, list[tuple[int, int]]] = {}
        """(source, target) pages to be copied before anything is written into the targets."""

    def open(self, key: StateKey, sequence: int) -> PagedSequence:
        """Return a sequence to append to, and note what its state was before."""
        if key not in self.before:
            known = self._table.paged.get(key)
            self.before[key] = [one.copy() for one in known.sequences] if known else None
        sequences = self._table.open(key).sequences
        if sequence > len(sequences):
            raise PageFault(f"sequence {sequence} of `{key.state}` can't be opened before sequence {len(sequences)}")
        if sequence == len(sequences):
            sequences.append(PagedSequence())
        return sequences[sequence]

    def take(self, key: StateKey, sequence: int, new: int, pool: Pool) -> PagedSequence:
        """Take pages for `new` more tokens of a sequence. Raises `OutOfPages`, or `CallFailed` past the run's limit."""
        row = self.open(key, sequence)
        self._check(key, new)
        copies = bool(new and row.length % PAGE) and pool.pages.shared(row.pages[row.length // PAGE])
        taken = pool.pages.take(copies + max(0, pages_for(row.length + new) - len(row.pages)))
        self._taken.append((pool, taken))
        if copies:
            last = row.length // PAGE
            self._copies.setdefault(pool, []).append((row.pages[last], taken[0]))
            self._replaced.append((pool, row.pages[last]))
            row.pages[last] = taken[0]
        row.pages.extend(taken[copies:])
        return row

    def share(self, key: StateKey, sequence: int, pool: Pool, new: int, pages: Sequence[int]) -> PagedSequence:
        """Let a sequence hold pages that hold `new` more tokens, and those before them. Pages with all of what a page
        of its own holds take the place of that page."""
        row = self.open(key, sequence)
        self._check(key, new)
        whole = row.length // PAGE
        taken = list(pages[whole : pages_for(row.length + new)])
        pool.pages.share(taken)
        self._taken.append((pool, taken))
        self._replaced += [(pool, page) for page in row.pages[whole:]]
        row.pages[whole:] = taken
        return row

    def copy(self) -> None:
        """Copy shared pages to the pages that replace them."""
        for pool, pages in self._copies.items():
            pool.copy_pages(*zip(*pages, strict=True))
        self._copies.clear()

    def settle(self) -> None:
        """Release the pages that were replaced."""
        for pool, page in self._replaced:
            pool.pages.release((page,))
        self._replaced.clear()

    def undo(self) -> None:
        """Restore the states."""
        for key, sequences in self.before.items():
            if sequences is None:
                # Its pages are all in `_taken`.
                self._table.paged[key].sequences.clear()
                self._table.drop((key,), undone=True)
            else:
                self._table.paged[key].sequences[:] = sequences
        for pool, pages in self._taken:
            pool.pages.release(pages)

    def _check(self, key: StateKey, new: int) -> None:
        most = self._table.limits.most(key) if self._limited else None
        if most is not None and sum(one.length for one in self._table.paged[key].sequences) + new > most:
            raise CallFailed(
                f"`{key.state}` holds at most {most} tokens in this run, and {new} more don't fit; send less, "
                f"{self._table.limits.advice(key)}",
                code="invalid_input",
            )


class Transaction:
    """The `States` of one forward. What it reserved, appended and put becomes final with `settle`, and is undone by
    `rollback`."""

    def __init__(self, table: StateTable, origin: Hashable = None) -> None:
        self._table, self._origin = table, origin
        self._reservation = Reservation(table)
        self._puts: dict[StateKey, Tensor] = {}
        self._lookups: list[tuple[PrefixCache, int, int]] = []
        """Lookups: prefix cache, tokens looked up, tokens found."""
        self._found: dict[StateKey, int] = {}
        """Tokens found in the pages of others."""

    def position(self, key: StateKey, sequence: int = 0) -> int:
        row = self._row(key, sequence)
        return row.position if row else 0

    def place(self, key: StateKey, sequence: int = 0) -> float:
        row = self._row(key, sequence)
        return row.place if row else 0.0

    def length(self, key: StateKey, sequence: int = 0) -> int:
        row = self._row(key, sequence)
        return row.length if row else 0

    def reuse(
        self,
        key: StateKey,
        tokens: Sequence[int],
        *,
        block: bool = False,
        answered: bool = True,
        span: float | None = None,
    ) -> int:
        pool, row = self._table.pools.of(key), self._row(key, 0) or PagedSequence()
        prefix = self._table.extendable(key, row, self._origin)
        if prefix is None or self._table.width(key) > 1:
            return 0
        cache, whole = self._table.pools.prefixes[pool], (*prefix.tokens, *tokens)
        found = cache.find(prefix.origin, whole)
        more = found.tokens - row.length
        if answered or more < len(tokens):
            # What follows is computed anyway, so that a page that is only partly found isn't worth its copy.
            more = 0 if block else min(found.tokens, len(whole) - 1) // PAGE * PAGE - row.length
        more = max(more, 0)
        self._lookups.append((cache, len(tokens), more))
        if more:
            row = self._reservation.share(key, 0, pool, more, found.pages)
            self._found[key] = self._found.get(key, 0) + more
            row.found = row.length + more if row.found == row.length else row.found
            row.length += more
            row.move(_moved(more, len(tokens), block=block, span=span))
            row.content = next(CONTENTS)
            row.prefix = prefix._replace(tokens=whole[: row.length])
        return more

    def attend(self, segments: Sequence[Segment]) -> AttentionBackend:
        """Reserve pages for segments of one pool, at most one per sequence, and return their attention. Raises
        `OutOfPages`."""
        pools = self._table.pools
        pool = pools.of(segments[0].state)
        seen: set[tuple[StateKey, int]] = set()
        placed: list[PlacedSegment] = []
        for segment in segments:
            if pools.of(segment.state) is not pool or (segment.state, segment.sequence) in seen:
                raise PageFault("a forward may append to a sequence once, and to sequences of one cache shape")
            seen.add((segment.state, segment.sequence))
            placed.append(self._placed(segment, pool))
        self._reservation.copy()
        return self._table.attention.over(pool, with_slots(placed, pool))

    def commit(self, attention: Attention) -> None:
        if not isinstance(attention, AttentionBackend):
            raise PageFault("`commit` takes the result of `attend`")
        for placed in attention.segments:
            segment = placed.segment
            if segment.keep:
                row = self._table.paged[segment.state].sequences[segment.sequence]
                row.prefix = self._extended(row, placed)
                row.length += placed.new
                row.move(segment.advance if segment.span is None else segment.span)
                row.content = next(CONTENTS)

    def keep(self, attention: Attention, outputs: Mapping[str, Tensor], rows: Tensor) -> None:
        if not isinstance(attention, AttentionBackend):
            raise PageFault("`keep` takes the result of `attend`")
        pool = self._table.pools.of(attention.segments[0].segment.state)
        at = torch.zeros(sum(one.new for one in attention.segments), dtype=torch.int64, device=pool.device)
        for one in attention.segments:
            if one.slots is not None:
                at[one.segment.rows] = one.slots
        for name, value in outputs.items():
            pool.outputs[name].index_copy_(0, at[rows], value.to(pool.shape.dtype))

    def kept(self, key: StateKey, output: str, start: int, stop: int) -> Tensor:
        pool, row = self._table.pools.of(key), self._row(key, 0) or PagedSequence()
        return pool.outputs[output][slots_of(row.pages, start, stop, pool.device)]

    def digest(self, key: StateKey, end: int) -> bytes | None:
        row = self._row(key, 0)
        return None if row is None else row.digest(end)

    def tensor(self, key: StateKey) -> Tensor | None:
        return self._puts.get(key, self._table.tensors.get(key))

    def put(self, key: StateKey, value: Tensor) -> None:
        self._puts[key] = value

    def read(self, call: Call) -> TokensRead:
        """Tokens that a call has added to its sequences so far; the most that any one of them got."""
        if not call.states:
            return NOTHING
        return max((self._added(key) for key in call.states.values()), default=NOTHING)

    def settle(self) -> list[AppendedTokens]:
        """Make the changes final. Returns the tokens to pass to `StateTable.confirm` once the forward is known to have
        succeeded."""
        self._reservation.settle()
        for key in self._reservation.before:
            trim(self._table.paged[key])
        for key, value in self._puts.items():
            self._table.set(key, value)
        for cache, tokens, saved in self._lookups:
            cache.count(tokens, saved)
        return self._appended()

    def rollback(self) -> None:
        self._reservation.undo()

    def _added(self, key: StateKey) -> TokensRead:
        if key not in self._reservation.before:
            return NOTHING
        before = self._reservation.before[key] or []
        lengths = [one.length for one in self._table.paged[key].sequences]
        known = [one.length for one in before] + [0] * (len(lengths) - len(before))
        most = max((now - then for now, then in zip(lengths, known, strict=True)), default=0)
        return TokensRead(most, self._found.get(key, 0))

    def _row(self, key: StateKey, sequence: int) -> PagedSequence | None:
        state = self._table.paged.get(key)
        return state.sequences[sequence] if state and sequence < len(state.sequences) else None

    def _appended(self) -> list[AppendedTokens]:
        """Appended tokens that have prefix keys."""
        found: list[AppendedTokens] = []
        for key, before in self._reservation.before.items():
            for index, row in enumerate(self._table.paged[key].sequences):
                if row.prefix is not None:
                    known = before[index].length if before and index < len(before) else 0
                    found += [AppendedTokens(key, row, known, row.length)] if row.length > known else []
        return found

    def _extended(self, row: PagedSequence, placed: PlacedSegment) -> PrefixKey | None:
        segment, prefix = placed.segment, self._table.extendable(placed.segment.state, row, self._origin)
        if segment.tokens is None or prefix is None:
            return None
        advance = placed.new if segment.mode == "causal" else 1
        if (segment.span is None and segment.advance != advance) or placed.new != len(segment.tokens):
            raise PageFault(
                "rows with tokens have one each; causal ones advance one position each, a block advances one"
            )
        return prefix._replace(tokens=(*prefix.tokens, *segment.tokens))

    def _placed(self, segment: Segment, pool: Pool) -> PlacedSegment:
        new = segment.rows.shape[0]
        if not segment.keep:
            row = self._row(segment.state, segment.sequence) or PagedSequence()
            return PlacedSegment(segment, new, row.pages, row.length, row.content, None)
        row = self._reservation.take(segment.state, segment.sequence, new, pool)
        return PlacedSegment(segment, new, row.pages, row.length, row.content, None)


def _moved(found: int, tokens: int, *, block: bool, span: float | None) -> float:
    """The positions that a counter moves by where so many of the tokens were found."""
    if span is not None:
        return span if found == tokens else 0.0
    return 1 if block else found
