"""A step: an operator's work on tensors of fixed shapes, which the engine can capture and iterate by itself."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from walkgraph.abi.states import Placed


class Row(NamedTuple):
    """One run's part of a tensor that a batch holds as `[B, *shape]`."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class StepSpec:
    """The fixed shapes of an operator's `step`; calls of equal specs may share a batch."""

    inputs: Mapping[str, Row] = field(default_factory=dict[str, Row])
    outputs: Mapping[str, Row] = field(default_factory=dict[str, Row])
    params: Mapping[str, torch.dtype] = field(default_factory=dict[str, torch.dtype])
    """Parameters that a step reads: float32 or int64."""
    tensors: Mapping[str, Row] = field(default_factory=dict[str, Row])
    """Slots of `tensor` states that are kept as rows of a table; zeros for a run that has none yet."""
    appends: Mapping[str, int] = field(default_factory=dict[str, int])
    """Paged slot -> tokens that a step appends; 0 if it only reads."""
    advances: Mapping[str, int] = field(default_factory=dict[str, int])
    """Paged slot -> increment of the position counter per step."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Paged slot to which a step appends one token -> the port of its id. The ids of a sequence determine the keys and
    values that the operator appends, as in `Segment.tokens`."""
    scratch: Mapping[str, int] = field(default_factory=dict[str, int])
    """Paged slot -> tokens of a block that a step attends with the whole context and does not keep. Such a slot appends
    nothing."""
    queries: Mapping[str, int] = field(default_factory=dict[str, int])
    """Slot of `scratch` -> tokens of each block whose attention this process needs, as other shards of its group need
    the others'; a slot that isn't named: all of them."""
    fractions: frozenset[str] = frozenset()
    """Paged slots whose positions may be fractions: the step finds them in float32."""
    contexts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Slot of `scratch` -> the likely number of tokens in its state; steps for that size are prepared."""
    variant: Hashable = None
    """Anything else that decides the work and is equal for a whole batch; the step finds it in its batch."""
    sizes: tuple[int, ...] | None = None
    """Batch sizes that are captured; a larger batch is served in parts. None: the engine's sizes."""
    pure: bool = False
    """Its outputs depend only on inputs, parameters and states, not on the seed or the iteration; calls that agree in
    these are made once."""
    together: bool = False
    """Uses of one iteration that don't wait for each other form one batch, so they share its reads of the weights."""
    invariant: bool = False
    """Under `layers.invariance` a row's numbers are bitwise equal whatever rows are beside it. There, loops with any
    other step launch one row at a time."""

    @cached_property
    def key(self) -> Hashable:
        blocks = self.scratch, self.queries
        parts = (self.inputs, self.outputs, self.params, self.tensors, self.appends, self.advances, *blocks)
        named = [tuple(sorted(part.items(), key=itemgetter(0))) if part else () for part in parts]
        return (self.variant, self.fractions, *named)


class PagedRows(NamedTuple):
    """The places of a batch's sequences on the device. T rows of the table, B of the batch, P pages per row."""

    rows: Tensor
    """int32 `[B]`: the batch's rows of the tables; a padded batch repeats rows that nobody reads. For a state of w
    sequences `[B * w]`, with the sequences of a run next to each other."""
    pages: Tensor
    """int32 `[T, P]`"""
    lengths: Tensor
    """int32 `[T]`: tokens kept before this step."""
    positions: Tensor
    """int32 `[T]`: rope position of the step's first token; float32 where the spec names the slot in `fractions`."""


class Block(Placed, Protocol):
    """The blocks of a batch that are attended and not kept: n tokens for each of B rows, row by row, R = B * n. Each
    token attends its row's context, which is in `k` and `v` already, and its whole block. A context is in the slots
    before its block; the first row's begins at slot 0. Of a slot that the spec names in `queries`, a call takes the
    queries of so many tokens for each row."""

    positions: Tensor
    """int64 `[B]`: rope position of the row's next token."""


class PagedSlot(NamedTuple):
    """A paged state of a batch: the pool's layers, each `[S, G, D]` with S = pages * PAGE slots, and its rows."""

    k: Sequence[Tensor]
    v: Sequence[Tensor]
    rows: PagedRows
    block: Block | None = None
    """Set if the spec names the slot in `scratch`."""


@dataclass(frozen=True, kw_only=True)
class StepBatch:
    """The inputs of a `step`, all on the operator's device."""

    rows: Tensor
    """int32 `[B]`: indices into `tensors`."""
    inputs: Mapping[str, Tensor]
    """Port -> `[B, *shape]`."""
    params: Mapping[str, Tensor]
    """Parameter of the spec -> `[B]`."""
    seed: Tensor
    """int64 `[B]`: seed of each row's call."""
    iteration: Tensor
    """int64 `[B]`: index in the innermost loop."""
    paged: Mapping[str, PagedSlot] = field(default_factory=dict[str, PagedSlot])
    tensors: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Slot -> the whole table `[T, *shape]`; a step reads and writes its `rows` in place."""
    variant: Hashable = None
    """The spec's variant."""


class StepOutputs(NamedTuple):
    ports: Mapping[str, Tensor]
    """Port -> `[B, *shape]`, shaped as in the spec."""
    finite: Tensor | None = None
    """bool `[B]`: false for a row with NaN or infinite numbers; None if the float outputs show that."""
