"""Causal attention of streams within a window, whose past is a tensor of fixed size: the keys and values of the last
frames.

The past is kept in the order of time, not as a ring, so that what a row attends has one order wherever a stream is cut.

Shape letters: B streams, L layers, n new frames of each, P frames of the past (the window less one), H query heads,
G key/value heads, D head dim.
"""

import torch
from torch import Tensor

from walkgraph.layers.attention.dense_attention import dense_attention


class WindowAttend:
    """`Attend` for the layers of one forward; rows are stream by stream. Afterwards `after` is the next past."""

    def __init__(self, before: Tensor, start: Tensor, frames: int) -> None:
        """before `[B, L, 2, P, G, D]`: keys and values; start int64 `[B]`: frames of each stream before these."""
        self._before, self._frames = before, frames
        self.after = torch.empty_like(before)
        past = before.shape[3]
        at = torch.arange(past + frames, device=before.device)
        query, key = at[:frames, None], at
        seen = (key >= query) & (key <= query + past)
        held = key >= past - start[:, None, None]
        self._mask = (seen & held)[:, None]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (part.unflatten(0, (-1, self._frames)) for part in (q, k, v))
        k, v = (self._extended(layer, index, part) for index, part in enumerate((k, v)))
        return dense_attention(q, k, v, self._mask).flatten(0, 1)

    def _extended(self, layer: int, index: int, new: Tensor) -> Tensor:
        before = self._before[:, layer, index]
        whole = torch.cat([before, new], 1)
        self.after[:, layer, index] = whole[:, -before.shape[1] :]
        return whole
