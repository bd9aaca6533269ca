"""Attention of narrow blocks, a few tokens each, over spans of dense keys: which kernel serves them.

Shape letters: B blocks, n tokens of a block, H query heads, G key/value heads, D head dim, S slots.
"""

import torch
from torch import Tensor

from walkgraph.layers.invariance import is_batch_invariant
from walkgraph.layers.kernels.folded_attention import attend_spans, fits, split_for
from walkgraph.layers.kernels.narrow_attention import narrow_attention


class NarrowBlocks:
    """Attention of `blocks` blocks of so many `tokens`, on a GPU."""

    def __init__(self, blocks: int, tokens: int, device: torch.device) -> None:
        self._tokens = tokens
        self._bounds = torch.arange(blocks + 1, dtype=torch.int32, device=device) * tokens
        self.spans = torch.zeros(blocks, 2, dtype=torch.int32, device=device)
        """Start and stop of each block's keys among the slots."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q `[B * n, H, D]`, k and v `[S, G, D]` -> `[B * n, H, D]`; scaled by D^-0.5."""
        # How a cluster divides keys follows from the number of blocks, so it is no choice for every batch.
        if fits(q, k, v, len(self.spans)) and not is_batch_invariant():
            split = split_for(len(self.spans), self._tokens * q.shape[1], q.device)
            if split is not None:
                return attend_spans(q, k, v, self._bounds, self.spans, split)
        return narrow_attention(q, k, v, self.spans)
