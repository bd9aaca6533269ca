"""Causal attention of streams within a window, whose past is a tensor of fixed size: the keys and values of the last
frames.

The past is kept in the order of time, not as a ring, so that what a row attends has one order wherever a stream is cut.

The pasts are rows of a table, in which they are moved on.

Shape letters: S rows of the table, B streams, L layers, n new frames of each, P frames of the past (the window less
one), H query heads, G key/value heads, D head dim.
"""

from functools import cached_property

import torch
from torch import Tensor

from walkgraph.layers.attention.dense_attention import dense_attention
from walkgraph.layers.rope import NeoxRope, Rotation, rotate

_ALIGNED = 16
"""Multiple of a row's length that the library's kernels take without a copy of the mask."""
_WIDTHS = frozenset({32, 64, 128})
_MAJOR = 9
"""Compute capability that the kernel is written and measured for."""


class WindowAttend:
    """Attention for the layers of one forward; rows are stream by stream."""

    def __init__(self, pasts: Tensor, rows: Tensor, start: Tensor, frames: int, rope: NeoxRope) -> None:
        """pasts `[S, L, 2, P, G, D]`: keys and values; int64 rows and start `[B]`: the row of each stream, all
        different, and the frames of the stream before these, behind which the row may hold anything."""
        self._pasts, self._rows, self._start, self._frames, self._rope = pasts, rows, start, frames, rope
        self._past = pasts.shape[3]

    def __call__(self, layer: int, qkv: Tensor, heads: int) -> Tensor:
        """qkv `[R, (H + 2G) * D]`, not yet turned by their positions -> `[R, H * D]`. Moves the past of the layer on,
        and so serves once."""
        past = self._pasts[:, layer]
        if self._fused:
            from walkgraph.layers.kernels.window_attention import window_attention

            frequencies = self._rope.frequencies(qkv.device)
            return window_attention(qkv, past, self._rows, self._start, frequencies, self._frames, heads)
        groups, width = past.shape[3:]
        parts = qkv.unflatten(1, (-1, width))
        q, k = rotate(parts[:, : heads + groups], self._rotation).split([heads, groups], 1)
        q, k, v = (part.unflatten(0, (-1, self._frames)) for part in (q, k, parts[:, heads + groups :]))
        held = past.index_select(0, self._rows).masked_fill_(self._unknown, 0)
        held = torch.cat([held, torch.stack([k, v], 1)], 2)
        past.index_copy_(0, self._rows, held[:, :, self._frames :])
        return dense_attention(q, held[:, 0], held[:, 1], self._mask).flatten(0, 1).flatten(1)

    @cached_property
    def _fused(self) -> bool:
        """True where one launch serves a layer."""
        pasts = self._pasts
        if not pasts.is_cuda or pasts.dtype != torch.bfloat16 or pasts.shape[-1] not in _WIDTHS:
            return False
        from walkgraph.layers.kernels.window_attention import FRAMES, PAST

        major = torch.cuda.get_device_capability(pasts.device)[0]
        return major == _MAJOR and self._frames <= FRAMES and self._past <= PAST

    @cached_property
    def _unknown(self) -> Tensor:
        """True for places of the past before a stream's first frame."""
        at = torch.arange(self._past, device=self._pasts.device)
        return (at < self._past - self._start[:, None])[:, None, :, None, None]

    @cached_property
    def _rotation(self) -> Rotation:
        return self._rope((self._start[:, None] + torch.arange(self._frames, device=self._start.device)).flatten())

    @cached_property
    def _mask(self) -> Tensor:
        frames, past, pasts = self._frames, self._past, self._pasts
        at = torch.arange(-(-(past + frames) // _ALIGNED) * _ALIGNED, device=pasts.device)
        query, key = at[:frames, None], at
        seen = (key >= query) & (key <= query + past) & (key >= past - self._start[:, None, None])
        mask = torch.zeros(seen.shape, dtype=pasts.dtype, device=pasts.device).masked_fill_(~seen, -torch.inf)
        return mask[:, None, :, : past + frames]
