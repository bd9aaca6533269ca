"""A step: an operator's work on tensors of fixed shapes alone, which the engine can capture and iterate by itself."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from walkgraph.abi.states import Placed


class Row(NamedTuple):
    """What one run has of a tensor that a batch holds as `[B, *shape]`."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class StepSpec:
    """The fixed shapes of an operator's `step`; calls of equal specs may share a batch."""

    inputs: Mapping[str, Row] = field(default_factory=dict[str, Row])
    outputs: Mapping[str, Row] = field(default_factory=dict[str, Row])
    params: Mapping[str, torch.dtype] = field(default_factory=dict[str, torch.dtype])
    """Those that a step reads: float32 or int64."""
    tensors: Mapping[str, Row] = field(default_factory=dict[str, Row])
    """Slots of `tensor` states that are kept as rows of a table; zeros where a run has none yet."""
    appends: Mapping[str, int] = field(default_factory=dict[str, int])
    """Paged slot -> tokens that a step appends; 0 for one that is only read."""
    advances: Mapping[str, int] = field(default_factory=dict[str, int])
    """Paged slot -> what the position counter grows by in a step."""
    scratch: Mapping[str, int] = field(default_factory=dict[str, int])
    """Paged slot -> tokens of a block which a step attends with the whole context, and which is not kept. Such a slot
    appends nothing."""
    contexts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Slot of `scratch` -> tokens that its state likeliest has: steps over so many are made ready."""
    variant: Hashable = None
    """What else decides the work and is the same for a whole batch; the step finds it in its batch."""
    sizes: tuple[int, ...] | None = None
    """Batches that are captured; a larger one is served in parts. None: those of the engine."""
    pure: bool = False
    """Its outputs follow from inputs, parameters and states alone, not from the seed or the iteration: of two calls
    where these are equal, one is made."""
    together: bool = False
    """Uses of one iteration that don't wait for each other are one batch: they share its reads of the weights."""
    invariant: bool = False
    """Under `layers.invariance` a row's numbers are equal to the last bit whatever rows are beside it. Loops with any
    other step have one row a launch there."""

    @cached_property
    def key(self) -> Hashable:
        parts = (self.inputs, self.outputs, self.params, self.tensors, self.appends, self.advances, self.scratch)
        return (self.variant, *(tuple(sorted(part.items(), key=itemgetter(0))) for part in parts))


class PagedRows(NamedTuple):
    """Where the sequences of a batch stand, on the device. T rows of the table, B of the batch, P pages of a row."""

    rows: Tensor
    """int32 `[B]`: the batch's rows of the tables; a padded batch repeats rows that nobody reads. Of a state of w
    sequences `[B * w]`: those of a run follow each other."""
    pages: Tensor
    """int32 `[T, P]`"""
    lengths: Tensor
    """int32 `[T]`: tokens kept before this step."""
    positions: Tensor
    """int32 `[T]`: rope position of the step's first token."""


class Block(Placed, Protocol):
    """The blocks of a batch that are attended and not kept: n tokens for each of B rows, row by row: R = B * n. Each
    sees its row's context, which lies in `k` and `v` already, and its whole block."""

    positions: Tensor
    """int64 `[B]`: rope position of the row's next token."""


class PagedSlot(NamedTuple):
    """A paged state of a batch: the pool's layers, each `[S, G, D]` with S = pages * PAGE slots, and its rows."""

    k: Sequence[Tensor]
    v: Sequence[Tensor]
    rows: PagedRows
    block: Block | None = None
    """Where the spec names the slot in `scratch`."""


@dataclass(frozen=True, kw_only=True)
class StepBatch:
    """What a `step` sees; all on the operator's device."""

    rows: Tensor
    """int32 `[B]`, into `tensors`."""
    inputs: Mapping[str, Tensor]
    """Port -> `[B, *shape]`."""
    params: Mapping[str, Tensor]
    """Parameter of the spec -> `[B]`."""
    seed: Tensor
    """int64 `[B]`, of each row's call."""
    iteration: Tensor
    """int64 `[B]`: index in the innermost loop."""
    paged: Mapping[str, PagedSlot] = field(default_factory=dict[str, PagedSlot])
    tensors: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Slot -> the whole table `[T, *shape]`; a step reads and writes its `rows` in place."""
    variant: Hashable = None
    """The spec's."""


class StepOutputs(NamedTuple):
    ports: Mapping[str, Tensor]
    """Port -> `[B, *shape]`, as the spec says."""
    finite: Tensor | None = None
    """bool `[B]`: false for a row whose numbers are NaN or infinite; None where the float outputs tell."""
