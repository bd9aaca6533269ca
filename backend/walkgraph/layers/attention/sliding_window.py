"""Causal attention of streams within a window, whose past is a tensor of fixed size: the keys and values of the last
frames.

The past is kept in the order of time, not as a ring, so that what a row attends has one order wherever a stream is cut.

Shape letters: B streams, L layers, n new frames of each, P frames of the past (the window less one), H query heads,
G key/value heads, D head dim.
"""

import torch
from torch import Tensor

from walkgraph.layers.attention.dense_attention import dense_attention

_ALIGNED = 16
"""Multiple of a row's length that the library's kernels take without a copy of the mask."""


class WindowAttend:
    """`Attend` for the layers of one forward; rows are stream by stream."""

    def __init__(self, before: Tensor, start: Tensor, frames: int) -> None:
        """before `[B, L, 2, P, G, D]`: keys and values; start int64 `[B]`: frames of each stream before these."""
        batch, layers, two, past, *head = before.shape
        self._frames, self._past = frames, past
        self._held = before.new_empty(batch, layers, two, past + frames, *head)
        self._held[:, :, :, :past] = before
        at = torch.arange(-(-(past + frames) // _ALIGNED) * _ALIGNED, device=before.device)
        query, key = at[:frames, None], at
        seen = (key >= query) & (key <= query + past) & (key >= past - start[:, None, None])
        mask = torch.zeros(seen.shape, dtype=before.dtype, device=before.device).masked_fill_(~seen, -torch.inf)
        self._mask = mask[:, None, :, : past + frames]

    @property
    def after(self) -> Tensor:
        """The next past, a view."""
        return self._held[:, :, :, self._frames :]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (part.unflatten(0, (-1, self._frames)) for part in (q, k, v))
        keys, values = self._held[:, layer].unbind(1)
        keys[:, self._past :], values[:, self._past :] = k, v
        return dense_attention(q, keys, values, self._mask).flatten(0, 1)
