"""One new token of every row through a stack of decoder layers, and the sampling of the next one: the part that
language models of all families share.

Shape letters: B rows of a step, W width, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from walkgraph.abi.calls import Call
from walkgraph.abi.step import PagedSlot, StepBatch
from walkgraph.layers.decoder import DecoderLayer, StepSlot
from walkgraph.layers.linear.step_linear import linear
from walkgraph.layers.norm.rms_norm import RMSNorm
from walkgraph.layers.rope import NeoxRope
from walkgraph.layers.sampling_params import SamplingParams

Sampling = Mapping[str, tuple[str, torch.dtype]]
"""Parameter of a node -> its name in `SamplingParams`, and its type."""


class Stack(Protocol):
    """A language model without its head. Its layers' weights for text have no suffix and are packed."""

    @property
    def embed_tokens(self) -> nn.Embedding: ...

    layers: nn.ModuleList
    norm: RMSNorm
    rope: NeoxRope


def step_logits(stack: Stack, head: Tensor, token: Tensor, slot: StepSlot) -> Tensor:
    """token int64 `[B]`, head `[V, W]` -> logits `[B, V]`; keys and values are appended to the slot."""
    x, frequencies = stack.embed_tokens(token), stack.rope.frequencies(token.device)
    for index, layer in enumerate(stack.layers):
        x = cast(DecoderLayer, layer).step(index, x, slot, frequencies)
    return linear(x, head, norm=stack.norm.weight, eps=stack.norm.eps)


def step_sampling(batch: StepBatch, slot: PagedSlot, names: Sampling) -> SamplingParams:
    """Sampling parameters for the next token: its noise depends on the call's seed and the number of tokens before it,
    as in a forward."""
    position = slot.rows.lengths.index_select(0, slot.rows.rows).long() + 1
    return SamplingParams(batch.seed, position, **{name: batch.params[param] for param, (name, _) in names.items()})


def sampling_of(
    calls: Sequence[Call], positions: Sequence[int], names: Sampling, device: torch.device
) -> SamplingParams:
    """Sampling parameters of calls in a forward. `positions`: of their next tokens, one for each call."""
    whole = [[call.seed, position] for call, position in zip(calls, positions, strict=True)]
    seed, position = torch.tensor(whole).to(device, non_blocking=True).unbind(1)
    # float64 represents the integers among them exactly.
    given = torch.tensor([[float(call.params[name]) for name in names] for call in calls], dtype=torch.float64)
    values = zip(names.values(), given.to(device, non_blocking=True).unbind(1), strict=True)
    return SamplingParams(seed, position, **{name: value.to(dtype) for (name, dtype), value in values})
