"""Causal attention of streams within a window, whose past is a tensor of fixed size: the keys and values of the last
frames.

The past is kept in the order of time, not as a ring, so that what a row attends has one order wherever a stream is cut.

Shape letters: B streams, L layers, n new frames of each, P frames of the past (the window less one), H query heads,
G key/value heads, D head dim.
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

    def __init__(self, before: Tensor, start: Tensor, frames: int, rope: NeoxRope) -> None:
        """before `[B, L, 2, P, G, D]`: keys and values; start int64 `[B]`: frames of each stream before these."""
        self._before, self._start, self._frames, self._rope = before, start, frames, rope
        self._past = before.shape[3]

    @property
    def after(self) -> Tensor:
        """The next past, once all layers have attended."""
        return self._next if self._fused else self._held[:, :, :, self._frames :]

    def __call__(self, layer: int, qkv: Tensor, heads: int) -> Tensor:
        """qkv `[R, (H + 2G) * D]`, not yet turned by their positions -> `[R, H * D]`."""
        if self._fused:
            from walkgraph.layers.kernels.window_attention import window_attention

            pasts, frequencies = (self._before[:, layer], self._next[:, layer]), self._rope.frequencies(qkv.device)
            return window_attention(qkv, *pasts, self._start, frequencies, self._frames, heads)
        groups, width = self._before.shape[4:]
        parts = qkv.unflatten(1, (-1, width))
        q, k = rotate(parts[:, : heads + groups], self._rotation).split([heads, groups], 1)
        q, k, v = (part.unflatten(0, (-1, self._frames)) for part in (q, k, parts[:, heads + groups :]))
        keys, values = self._held[:, layer].unbind(1)
        keys[:, self._past :], values[:, self._past :] = k, v
        return dense_attention(q, keys, values, self._mask).flatten(0, 1).flatten(1)

    @cached_property
    def _fused(self) -> bool:
        """True where one launch serves a layer."""
        before = self._before
        if not before.is_cuda or before.dtype != torch.bfloat16 or before.shape[-1] not in _WIDTHS:
            return False
        from walkgraph.layers.kernels.window_attention import FRAMES, PAST

        major = torch.cuda.get_device_capability(before.device)[0]
        return major == _MAJOR and self._frames <= FRAMES and self._past <= PAST

    @cached_property
    def _next(self) -> Tensor:
        return torch.empty_like(self._before, memory_format=torch.contiguous_format)

    @cached_property
    def _held(self) -> Tensor:
        batch, layers, two, past, *head = self._before.shape
        held = self._before.new_empty(batch, layers, two, past + self._frames, *head)
        held[:, :, :, :past] = self._before
        return held

    @cached_property
    def _rotation(self) -> Rotation:
        return self._rope((self._start[:, None] + torch.arange(self._frames, device=self._start.device)).flatten())

    @cached_property
    def _mask(self) -> Tensor:
        frames, past, before = self._frames, self._past, self._before
        at = torch.arange(-(-(past + frames) // _ALIGNED) * _ALIGNED, device=before.device)
        query, key = at[:frames, None], at
        seen = (key >= query) & (key <= query + past) & (key >= past - self._start[:, None, None])
        mask = torch.zeros(seen.shape, dtype=before.dtype, device=before.device).masked_fill_(~seen, -torch.inf)
        return mask[:, None, :, : past + frames]
