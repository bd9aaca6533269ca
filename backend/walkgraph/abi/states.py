"""The states of runs as an operator sees them: paged caches that a forward attends to, and tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, StateKey


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
    sequence: int = 0
    """Index of the sequence, in a state with a width."""
    tokens: Sequence[int] | None = None
    """For a kept causal segment that advances one position per row: numbers `[n]` that, with those before them and the
    operator, determine its keys and values. Sequences that begin alike may then `reuse` its pages."""


def reused(call: Call, port: str, slot: str, states: "States") -> tuple[int, Sequence[int] | None]:
    """The number of token ids `[n]` at a port that are in a state already, as others have computed them, and the
    `tokens` for the segment with the rest. Only for token ids that alone determine the operator's keys and values."""
    tokens = call.numbers(port)
    if tokens is None:
        return 0, None
    there = states.reuse(call.states[slot], tokens)
    return there, tokens[there:]


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


class States(Protocol):
    """The engine's states as an operator sees them. Keys come from `Call.states`."""

    def position(self, key: StateKey, sequence: int = 0) -> int:
        """The rope position of the next token."""
        ...

    def length(self, key: StateKey, sequence: int = 0) -> int:
        """Number of tokens kept."""
        ...

    def reuse(self, key: StateKey, tokens: Sequence[int]) -> int:
        """The number of the `tokens` to append (as a segment of this operator would name them) that others have
        computed already. This call appends them; never the last token. Must precede `attend`; 0 for a state whose
        tokens so far are unnamed."""
        ...

    def attend(self, segments: Sequence[Segment]) -> Attention:
        """Reserve slots for the kept rows. They count only after `commit`, so a forward that raises leaves no trace.

        Segments share one cache shape, and no two belong to one sequence. `rows` must not be written to afterwards.
        """
        ...

    def commit(self, attention: Attention) -> None: ...

    def tensor(self, key: StateKey) -> Tensor | None: ...

    def put(self, key: StateKey, value: Tensor) -> None:
        """Replace the tensor. It must never be written to, as forks share it."""
        ...


@dataclass(frozen=True, kw_only=True)
class CacheShape:
    """The size of one token in a paged state: `2 * layers * kv_heads * head_dim * itemsize` bytes."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
