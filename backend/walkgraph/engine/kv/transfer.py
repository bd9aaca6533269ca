"""Copies states within a rank, to other ranks and from them: whole, or in parts while they grow.

A paged state only grows, so that its tokens can leave as soon as they are computed; any other leaves whole. What
arrives is a state by itself until the last part is there, and then takes the place of the state that it is to be.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from walkgraph.abi.calls import StateKey
from walkgraph.engine.kv.allocator import PAGE, PageFault
from walkgraph.engine.kv.departure import Departure, LeavingPart
from walkgraph.engine.kv.paged_state import CONTENTS, PagedSequence, PagedState
from walkgraph.engine.kv.pool import Pool, page_bytes, slots_of
from walkgraph.engine.kv.prefix import PrefixKey
from walkgraph.engine.kv.states import Reservation, StateTable

PART_BYTES = 64 << 20
"""The most bytes of a part, so that copies of several are never much, and each is soon over."""
ARRIVING = (-1,)
"""Scope of a state that arrives whole."""


class NodeLike(Protocol):
    """A node of the rank, as far as the names of tokens need it."""

    @property
    def operator(self) -> object: ...


class StateTransfer:
    def __init__(
        self,
        states: StateTable,
        copied: Callable[[], object] = lambda: None,
        nodes: Mapping[str, NodeLike] | None = None,
        part_bytes: int = PART_BYTES,
    ) -> None:
        """`copied`: called after copies are launched. It marks their end, so that no compute is charged for their
        time. `nodes`: those of the rank; tokens are named by the node that reads them."""
        self._states, self._copied, self._most = states, copied, part_bytes
        self._names = _TokenNames(states, {} if nodes is None else nodes)

    def fork(self, source: StateKey, target: StateKey, width: int | None = None) -> None:
        """Replace `target` by a copy-on-write copy. `width`: sequences of the target, if it is wider than the
        source."""
        self._states.fork(source, target, width)
        self._copied()

    # ── to another rank ──

    def export(self, key: StateKey) -> Mapping[str, Any]:
        """Copy a state for another rank's `import_state`; empty if the state holds nothing yet.

        A paged state gives `counters`, float64 `[width, 2]` (length, position), and per sequence `kv.<i>`
        `[2, N, length, G, D]` and, for each output that its cache shape names, `<output>.<i>` `[length, W]`; any other
        gives `tensor`. Of a state that leaves in parts, `since`, int64 `[width]`, says behind how many tokens of each
        sequence those of a part come, and `names` and `node` what the tokens are, if that is known.
        """
        self._states.before_use((key,))
        return self._last(Departure(key))

    def departure(self, key: StateKey) -> Departure:
        """Begin to let a state leave in parts."""
        state = self._states.paged.get(key)
        return Departure(key, max((one.length for one in state.sequences), default=0) if state is not None else 0)

    def part(self, departure: Departure, *, last: bool) -> LeavingPart | None:
        """Copy the next part of a state: full pages, as long as it grows; None if there are none. `last`: it grows no
        more, so that the rest leaves too."""
        key = departure.key
        if last:
            self._states.before_use((key,))
        state = self._states.paged.get(key)
        if state is not None:
            departure.follow(state, len(state.sequences))
            asked = self._asked(departure, state.sequences[0], last=last) if departure.begins else 0
            if asked is None:
                return None
            if asked and (names := self._names.of(state.sequences[0], asked)) is not None:
                departure.offered = True
                return LeavingPart(names, offers=True)
            most = max(1, self._most // (page_bytes(state.pool.shape) * max(1, len(state.sequences)))) * PAGE
            left = [one.length - gone for one, gone in zip(state.sequences, departure.tokens, strict=True)]
            if not last or max(left, default=0) > most:
                return self._next(departure, state, most)
        return LeavingPart(self._last(departure), last=True) if last else None

    def _asked(self, departure: Departure, row: PagedSequence, *, last: bool) -> int | None:
        """The number of tokens to offer: those that were not computed here since the state began to leave, as the
        receiver may have them too, from where they came. None while there may be more of them."""
        count = min(row.length, max(departure.before, row.found))
        if count < PAGE or row.prefix is None:
            return 0
        return count if last or count < row.length else None

    def _next(self, departure: Departure, state: PagedState, most: int) -> LeavingPart | None:
        whole = [one.length // PAGE * PAGE for one in state.sequences]
        ends = [min(end, gone + most) for end, gone in zip(whole, departure.tokens, strict=True)]
        ends = [max(end, gone) for end, gone in zip(ends, departure.tokens, strict=True)]
        return LeavingPart(self._rows(departure, state, ends)) if ends != departure.tokens else None

    def _last(self, departure: Departure) -> Mapping[str, Any]:
        state = self._states.paged.get(departure.key)
        if state is None:
            tensor = self._states.tensors.get(departure.key)
            return {} if tensor is None else {"tensor": tensor}
        departure.follow(state, len(state.sequences))
        counters = torch.tensor([[one.length, one.place] for one in state.sequences], dtype=torch.float64)
        names = self._names.of(state.sequences[0]) if len(state.sequences) == 1 else None
        rows = self._rows(departure, state, [one.length for one in state.sequences])
        return {"counters": counters, **rows, **(names or {})}

    def _rows(self, departure: Departure, state: PagedState, ends: Sequence[int]) -> dict[str, Tensor]:
        """Copy the tokens of each sequence up to `ends` that haven't left yet. Sequences without any have no entry."""
        pool = state.pool
        found = {"since": torch.tensor(departure.tokens)}
        with torch.inference_mode():
            for i, (row, start, end) in enumerate(zip(state.sequences, departure.tokens, ends, strict=True)):
                if end > start:
                    found[f"kv.{i}"] = pool.read(row.pages, end, start)
                    slots = slots_of(row.pages, start, end, pool.device) if pool.outputs else None
                    found |= {f"{name}.{i}": rows[slots] for name, rows in pool.outputs.items()}
        departure.tokens = list(ends)
        self._copied()
        return found

    # ── from another rank ──

    def take_part(self, arriving: StateKey, target: StateKey, value: Mapping[str, Any]) -> int:
        """Store a part that is not the last one, behind those before it in `arriving`. Returns how many tokens the
        longest of its sequences has now. What `target` holds is out of date, so the first part replaces it. Raises
        `OutOfPages`."""
        with torch.inference_mode():
            if "since" not in value:
                self._states.drop((arriving, target))
                self._names.find(arriving, value)
            else:
                if not _begins_behind(value):
                    self._states.drop((arriving, target))
                self._append(arriving, value)
        self._copied()
        state = self._states.paged.get(arriving)
        return max((one.length for one in state.sequences), default=0) if state is not None else 0

    def import_state(self, key: StateKey, value: Mapping[str, Any], arriving: StateKey | None = None) -> None:
        """Replace `key` by what `export` gave, or by what has arrived with the last part. Raises `OutOfPages`
        (`out_of_memory`). If it raises, `key` is unchanged."""
        arriving = key._replace(scope=ARRIVING) if arriving is None else arriving
        with torch.inference_mode():
            if "counters" in value:
                self._arrived(key, arriving, value)
            else:
                self._states.drop((key, arriving))
                if value:
                    self._states.set(key, value["tensor"])
        self._copied()

    def _arrived(self, key: StateKey, arriving: StateKey, value: Mapping[str, Any]) -> None:
        if not _begins_behind(value):
            self._states.drop((arriving,))
        try:
            self._append(arriving, value)
            for row, (length, place) in zip(self._sequences(arriving), value["counters"].tolist(), strict=True):
                if row.length != length:
                    raise PageFault(f"`{key.state}` arrived with {row.length} of {length:g} tokens")
                row.position, row.fraction = 0, 0.0
                row.move(place)
        except Exception:
            self._states.drop((arriving,))
            raise
        self._states.fork(arriving, key)
        self._states.drop((arriving,))
        self._names.note(key, value)

    def _append(self, key: StateKey, value: Mapping[str, Any]) -> None:
        pool = self._states.pools.of(key)
        count = len(value["since" if "since" in value else "counters"])
        rows: list[Tensor | None] = [value.get(f"kv.{i}") for i in range(count)]
        starts = value["since"].tolist() if "since" in value else [0] * count
        reservation = Reservation(self._states, limited=False)
        try:
            for i, (start, new) in enumerate(zip(starts, rows, strict=True)):
                row = reservation.take(key, i, 0 if new is None else new.shape[2], pool)
                if row.length != start:
                    raise PageFault(f"a part of `{key.state}` begins at token {start}, behind {row.length}")
            reservation.copy()
        except Exception:
            reservation.undo()
            raise
        reservation.settle()
        for i, (row, new) in enumerate(zip(self._sequences(key), rows, strict=True)):
            if new is not None:
                self._write(pool, row, i, new, value)

    def _sequences(self, key: StateKey) -> Sequence[PagedSequence]:
        return self._states.open(key).sequences

    def _write(self, pool: Pool, row: PagedSequence, i: int, new: Tensor, value: Mapping[str, Any]) -> None:
        start, end = row.length, row.length + new.shape[2]
        pool.write(row.pages, new, start)
        slots = slots_of(row.pages, start, end, pool.device) if pool.outputs else None
        for name, rows in pool.outputs.items():
            rows[slots] = value[f"{name}.{i}"].to(rows)
        row.length, row.content, row.prefix = end, next(CONTENTS), None


class _TokenNames:
    """The names by which ranks tell each other what the tokens of sequences are."""

    def __init__(self, states: StateTable, nodes: Mapping[str, NodeLike]) -> None:
        self._states, self._nodes = states, nodes

    def of(self, row: PagedSequence, count: int | None = None) -> dict[str, str] | None:
        """The names of a sequence's tokens, of all or the first ones, and a node that reads them; None if they aren't
        known."""
        prefix = row.prefix
        if prefix is None or len(prefix.tokens) != row.length or not isinstance(prefix.origin, tuple):
            return None
        node = next((name for name, one in self._nodes.items() if one.operator is prefix.origin[0]), None)
        return None if node is None else {"node": node, "names": json.dumps(prefix.tokens[:count])}

    def find(self, key: StateKey, value: Mapping[str, Any]) -> None:
        """Let an empty state begin with pages that hold these tokens, if there are any."""
        operator, tokens = self._known(value)
        if operator is not None:
            forward = self._states.transaction(operator)
            forward.reuse(key, tokens, answered=False)
            self._states.confirm(forward.settle())

    def note(self, key: StateKey, value: Mapping[str, Any]) -> None:
        """Share the pages of a state that has arrived with others that begin like it."""
        operator, tokens = self._known(value)
        state = self._states.paged[key]
        for row in state.sequences if operator is not None else ():
            row.prefix = self._states.extendable(key, PagedSequence(), operator)
            if row.prefix is not None:
                row.prefix, row.found = PrefixKey(row.prefix.origin, tokens, len(tokens)), row.length
                self._states.pools.prefixes[state.pool].add(row.prefix.origin, tokens, row.pages)

    def _known(self, value: Mapping[str, Any]) -> tuple[object, tuple[int, ...]]:
        node, names = value.get("node"), value.get("names")
        loaded = self._nodes.get(node) if isinstance(node, str) else None
        if loaded is None or not isinstance(names, str):
            return None, ()
        return loaded.operator, tuple(json.loads(names))


def _begins_behind(value: Mapping[str, Any]) -> bool:
    """True if a part comes behind others."""
    return "since" in value and bool(value["since"].any())
