"""What runs keep, as an operator sees it: paged caches that a forward attends, and tensors."""

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
    """`causal`: each row sees the past and the rows up to itself; `block`: each sees the past and the whole block."""
    keep: bool = True
    """False: attended, never stored (noised latents)."""
    advance: int = 1
    """What the position counter grows by when the segment is kept."""
    sequence: int = 0
    """Which of the state's sequences, where it has a width."""
    tokens: Sequence[int] | None = None
    """Of a causal segment that is kept and advances by a position for each row: numbers `[n]` which, with those before
    them and the operator, decide its keys and values. Other sequences that begin alike may then `reuse` its pages."""


def reused(call: Call, port: str, slot: str, states: "States") -> tuple[int, Sequence[int] | None]:
    """How many of the token ids `[n]` at a port are appended to a state already, as others have computed them, and the
    `tokens` of the segment of the rest. For token ids that alone decide what the operator keeps of them."""
    tokens = call.numbers(port)
    if tokens is None:
        return 0, None
    there = states.reuse(call.states[slot], tokens)
    return there, tokens[there:]


class CausalRows(NamedTuple):
    """Where the rows of a forward go, and what they see: their sequence up to themselves, or their whole block."""

    k: Sequence[Tensor]
    """The pool's layers, each `[S, G, D]`; `v` likewise."""
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
    """Of each sequence, those of its rows among them."""


class Placed(Protocol):
    """Rows whose keys and values a network writes itself: those of a layer to `k[layer][slots]` and `v[layer][slots]`,
    before it attends them."""

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
        """For causal segments that are kept, in the order of the rows; otherwise None."""
        ...

    def begun(self) -> CausalRows | None:
        """For blocks that are kept and begin their sequences, in the order of the rows; otherwise None."""
        ...

    def placed(self) -> Placed:
        """In place of a call for every layer, for segments that are kept, in the order of the rows, and of one mode
        where they are of several rows."""
        ...


class States(Protocol):
    """The engine's states as an operator sees them. Keys come from `Call.states`."""

    def position(self, key: StateKey, sequence: int = 0) -> int:
        """The rope position of the next token."""
        ...

    def length(self, key: StateKey, sequence: int = 0) -> int:
        """Tokens kept."""
        ...

    def reuse(self, key: StateKey, tokens: Sequence[int]) -> int:
        """How many of the `tokens` that are to be appended, as a segment of this operator's would name them, are there
        already: others have computed them. They are appended by this; the last token never is. To be asked before
        `attend`; 0 for a state whose tokens so far have no names."""
        ...

    def attend(self, segments: Sequence[Segment]) -> Attention:
        """Reserve slots for the kept rows. They count only after `commit`, so a forward that raises leaves no trace.

        Segments share one cache shape, and no two are of one sequence. `rows` are never written into afterwards.
        """
        ...

    def commit(self, attention: Attention) -> None: ...

    def tensor(self, key: StateKey) -> Tensor | None: ...

    def put(self, key: StateKey, value: Tensor) -> None:
        """Replace the tensor. It is never written into: forks share it."""
        ...


@dataclass(frozen=True, kw_only=True)
class CacheShape:
    """What one token of a paged state takes: `2 * layers * kv_heads * head_dim * itemsize` bytes."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
