"""The states of runs as an operator sees them: paged caches that a forward attends to, and tensors."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, StateKey

_MOST_ROWS = 1 << 32
"""Rows that a block may have, for the numbers of its rows."""


@dataclass(frozen=True, slots=True)
class Segment:
    """New rows of one sequence in a batch.

    `rows[i]` is the batch row of the segment's i-th token; rows of several segments may interleave.
    """

    state: StateKey
    rows: Tensor
    """int64 [n]"""
    mode: Literal["causal", "block"]
    """`causal`: each row attends the past and the rows up to itself; `block`: each attends the past and the whole
    block."""
    keep: bool = True
    """False: attended but never stored (noised latents)."""
    advance: int = 1
    """Increment of the position counter when the segment is kept."""
    span: float | None = None
    """The increment in place of `advance`, where it may be a fraction, or isn't one a row."""
    sequence: int = 0
    """Index of the sequence, in a state with a width."""
    tokens: Sequence[int] | None = None
    """For a kept segment whose positions they determine too (causal ones without `span` advance one per row, blocks
    advance one): numbers `[n]` that, with those before them and the operator, determine its keys and values. Sequences
    that begin alike may then `reuse` its pages."""


class Reused(NamedTuple):
    """The rows that a call need not append, because others have computed them."""

    found: int
    """Rows that are in the state already."""
    tokens: Sequence[int] | None
    """The `tokens` for the segment with the other rows."""


class Reuses(Protocol):
    """The part of `States` that finds rows."""

    def reuse(
        self,
        key: StateKey,
        tokens: Sequence[int],
        *,
        block: bool = False,
        answered: bool = True,
        span: float | None = None,
    ) -> int:
        """The number of the `tokens` to append (as a segment of this operator would name them) that others have
        computed already. This call appends them. Must precede `attend`; 0 for a state whose tokens so far are unnamed.
        `block`: they are one block, found whole or not at all. `span`: the positions that all of them take, if not one
        each, or one for a block; the counter then moves with the last of them alone.
        `answered`: the output of the last one is needed, so it is never found."""
        ...


class NothingFound(Reuses):
    """Finds no rows: for those behind rows that are computed in the same forward."""

    def reuse(self, key: StateKey, tokens: Sequence[int], **how: Any) -> int:
        return 0


def reused(call: Call, port: str, slot: str, states: Reuses, beside: Collection[str] = ()) -> Reused:
    """Find the token ids `[n]` at a port. Only for token ids that alone determine the operator's keys and values. All
    of them may be found if nothing reads the call's outputs; `beside`: outputs that need no forward."""
    tokens = call.numbers(port)
    if tokens is None:
        return Reused(0, None)
    there = states.reuse(call.states[slot], tokens, answered=call.gives(beside))
    return Reused(there, tokens[there:])


def reused_block(call: Call, port: str, slot: str, rows: int, states: Reuses) -> Reused:
    """Find the rows of a block that a port's value alone determines: all of them if nothing reads the call's outputs,
    or none."""
    digest = call.digest(port)
    if digest is None:
        return Reused(0, None)
    # A port decides how its values are read.
    block = int.from_bytes(blake2b(digest + port.encode(), digest_size=16).digest(), "big")
    tokens = _named(block, rows)
    return Reused(states.reuse(call.states[slot], tokens, block=True, answered=call.answered), tokens)


def reused_piece(
    call: Call, ports: Sequence[str], slot: str, rows: int, span: float, states: Reuses, beside: Collection[str] = ()
) -> Reused:
    """Find causal rows that the values at these ports determine together, and the positions that they span. All are
    found, or none; `beside`: outputs that need no forward."""
    made = blake2b(digest_size=16)
    for port in ports:
        digest = call.digest(port)
        if digest is None:
            return Reused(0, None)
        made.update(repr(port).encode() + digest)
    tokens = _named(int.from_bytes(made.digest(), "big"), rows)
    there = states.reuse(call.states[slot], tokens, block=True, answered=call.gives(beside), span=span)
    return Reused(there, tokens)


def _named(block: int, rows: int) -> Sequence[int]:
    """Numbers for the rows of a block. Negative, so that no row is a token."""
    first = -(block * _MOST_ROWS) - 1
    return range(first, first - rows, -1)


class CausalRows(NamedTuple):
    """The slots of a forward's rows, and what they attend: their sequence up to themselves, or their whole block."""

    k: Sequence[Tensor]
    """Per layer of the pool `[S, G, D]`; `v` likewise."""
    v: Sequence[Tensor]
    slots: Tensor
    """int64 `[R]`, in the order of the batch's rows."""
    spare: int
    """A slot that nobody reads."""
    counts: Sequence[int]
    """Rows of each sequence."""
    before: Sequence[int]
    """Tokens of each sequence before them."""
    pages: Sequence[Sequence[int]]
    """Pages of each sequence, including those of its new rows."""


class Placed(Protocol):
    """Rows whose keys and values a network writes itself, to `k[layer][slots]` and `v[layer][slots]`, before it attends
    in that layer."""

    k: Sequence[Tensor]
    """Per layer `[S, G, D]`."""
    v: Sequence[Tensor]
    slots: Tensor
    """int64 `[R]`"""

    def __call__(self, layer: int, q: Tensor) -> Tensor:
        """q `[R, H, D]` -> `[R, H, D]`; scaled by D^-0.5."""
        ...


class Attention(Protocol):
    """One forward's view of the caches, made by `States.attend`: `Attend` of
    `walkgraph.layers.attention.dense_attention`."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...

    def causal(self) -> CausalRows | None:
        """The rows of kept causal segments, in order; None for others."""
        ...

    def begun(self) -> CausalRows | None:
        """The rows of kept blocks that begin their sequences, in order; None for others."""
        ...

    def placed(self) -> Placed:
        """An alternative to calling this for every layer, for kept segments in the order of the rows; segments of
        several rows must share one mode."""
        ...


class States(Reuses, Protocol):
    """The engine's states as an operator sees them. Keys come from `Call.states`."""

    def position(self, key: StateKey, sequence: int = 0) -> int:
        """The rope position of the next token."""
        ...

    def place(self, key: StateKey, sequence: int = 0) -> float:
        """The same, with its fraction if segments had a `span`."""
        ...

    def length(self, key: StateKey, sequence: int = 0) -> int:
        """Number of tokens kept."""
        ...

    def attend(self, segments: Sequence[Segment]) -> Attention:
        """Reserve slots for the kept rows. They count only after `commit`, so a forward that raises leaves no trace.

        Segments share one cache shape, and no two belong to one sequence. `rows` must not be written to afterwards.
        """
        ...

    def commit(self, attention: Attention) -> None: ...

    def keep(self, attention: Attention, outputs: Mapping[str, Tensor], rows: Tensor) -> None:
        """Keep outputs that the cache shape names, each `[n, W]`, with kept `rows` of the batch, int64 `[n]` on its
        device. Whoever reuses such a row finds them."""
        ...

    def kept(self, key: StateKey, output: str, start: int, stop: int) -> Tensor:
        """`[n, W]`: an output as it was kept with the rows `start <= i < stop` of a sequence, whoever computed them. A
        row with which it wasn't kept has any numbers."""
        ...

    def digest(self, key: StateKey, end: int) -> bytes | None:
        """A digest of the `Segment.tokens` of the first rows of a sequence, up to `end`; None if one of its rows has
        none."""
        ...

    def tensor(self, key: StateKey) -> Tensor | None: ...

    def put(self, key: StateKey, value: Tensor) -> None:
        """Replace the tensor. It must never be written to, as forks share it."""
        ...


@dataclass(frozen=True, kw_only=True)
class CacheShape:
    """The size of one token in a paged state: a key and a value for each layer and head, and the `outputs`."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    outputs: tuple[tuple[str, int], ...] = ()
    """The kept outputs: of these outputs of the operator's calls a row of so many numbers is kept with keys and values
    (`States.keep`), so that calls whose rows are found have them too."""

    @property
    def numbers(self) -> int:
        """Numbers of a token."""
        return 2 * self.layers * self.kv_heads * self.head_dim + sum(width for _, width in self.outputs)
