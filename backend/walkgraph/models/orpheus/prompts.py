"""Prompts that begin their sequences, read by a captured forward: hundreds of small launches become one.

Several prompts are packed into one row of tokens; each token sees those of its own prompt up to itself, and nothing of
any cache, so that no table of pages is read. What is longer, or goes on from a context, is read by a plain forward.

Shape letters: R tokens of a graph, H query heads, G key/value heads, D head dim, V vocabulary.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.abi.operator import Capture
from walkgraph.abi.states import CausalRows
from walkgraph.layers.attention import Attend

SIZES = (32, 64, 128, 256, 512)
"""Tokens of a graph, all prompts together."""
MOST = 16
"""Prompts of a graph."""


class Model(Protocol):
    def __call__(self, ids: Tensor, positions: Tensor, attend: Attend, asked: Tensor) -> Tensor:
        """ids and positions int64 `[R]` -> logits `[asked, V]`."""
        ...


class _Graph(NamedTuple):
    ids: Tensor
    positions: Tensor
    slots: Tensor
    sequence: Tensor
    """int64 `[R]`: which prompt a token is of; padding has one of its own."""
    ends: Tensor
    logits: list[Tensor]
    replay: Callable[[], None]


class Prompts:
    """The captured forwards of one model over the caches of one pool."""

    def __init__(self, model: Model, capture: Capture | None) -> None:
        self._model, self._capture = model, capture
        self._graphs: dict[int, _Graph] = {}

    @property
    def enabled(self) -> bool:
        return self._capture is not None

    def read(
        self, ids: Tensor, positions: Tensor, lengths: list[int], ends: Tensor, to: CausalRows | None
    ) -> Tensor | None:
        """Logits `[prompts, V]` after the last token of each; None where a plain forward must serve them. ids,
        positions int64 `[R]`, prompt by prompt; `ends`: int64, the last token of each."""
        count = len(ids)
        if self._capture is None or to is None or any(to.before) or count > SIZES[-1] or len(lengths) > MOST:
            return None
        if not self._graphs:
            # All at the first prompt, which is the warm-up's: no request waits for it.
            self._graphs = {size: self._captured(size, to, self._capture) for size in reversed(SIZES)}
        graph = self._graphs[next(size for size in SIZES if size >= count)]
        graph.ids[:count].copy_(ids)
        graph.positions[:count].copy_(positions)
        graph.slots[:count].copy_(to.slots)
        graph.slots[count:].fill_(to.spare)
        numbers = torch.tensor([i for i, n in enumerate(lengths) for _ in range(n)])
        graph.sequence[:count].copy_(numbers, non_blocking=True)
        graph.sequence[count:].fill_(-1)
        graph.ends[: len(lengths)].copy_(ends)
        graph.replay()
        # The next replay writes over what this one gave.
        return graph.logits[-1][: len(lengths)].clone()

    def _captured(self, size: int, to: CausalRows, capture: Capture) -> _Graph:
        device = to.slots.device
        ids, positions, sequence = (torch.zeros(size, dtype=torch.int64, device=device) for _ in range(3))
        slots = torch.full((size,), to.spare, dtype=torch.int64, device=device)
        ends = torch.zeros(MOST, dtype=torch.int64, device=device)
        logits: list[Tensor] = []

        def work() -> None:
            attend = PackedPrompts(to, slots, sequence)
            logits[:] = [self._model(ids, positions, attend, ends)]

        return _Graph(ids, positions, slots, sequence, ends, logits, capture(work, f"a prompt of {size} tokens"))


class PackedPrompts:
    """`Attend` of prompts without a context; their keys and values go to their slots."""

    def __init__(self, to: CausalRows, slots: Tensor, sequence: Tensor) -> None:
        self._to, self._slots = to, slots
        at = torch.arange(len(sequence), device=sequence.device)
        self._mask = ((sequence[:, None] == sequence) & (at[:, None] >= at))[None, None]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q `[R, H, D]`, k and v `[R, G, D]` -> `[R, H, D]`."""
        slot_k, slot_v = self._to.k[layer], self._to.v[layer]
        slot_k.index_copy_(0, self._slots, k.to(slot_k.dtype))
        slot_v.index_copy_(0, self._slots, v.to(slot_v.dtype))
        group = q.shape[1] // k.shape[1]
        heads = (x.transpose(0, 1)[None] for x in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
        return F.scaled_dot_product_attention(*heads, attn_mask=self._mask)[0].transpose(0, 1)
