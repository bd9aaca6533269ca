"""Attention's interface, and two implementations of it without pages.

A network computes q, k and v for the new rows of a batch and calls `attend`; it doesn't know where earlier keys and
values are, which rows belong together or what may attend what. The engine has its own `Attend` over a paged cache; this
module has the padded one (for training, and as the tests' naive reference) and the one for encoders.

Shape letters: R rows (all new tokens of a batch), B sequences, L new tokens of a sequence, P its earlier tokens,
S = P + L, H query heads, G key/value heads, D head dim.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

KV = tuple[Tensor, Tensor]
"""Keys and values of one layer, each `[B, S, G, D]`."""


class Attend(Protocol):
    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q `[R, H, D]`, k and v `[R, G, D]` -> `[R, H, D]`; scaled by D^-0.5."""
        ...


class PackedAttend:
    """`B` sequences of equal padded length with a dense mask; earlier keys and values are contiguous tensors.

    The rows come in parts: part p holds `widths[p]` rows of every sequence, sequence by sequence, and the parts follow
    each other (so the rows of one expert stay one slice). Inside a sequence the parts are concatenated in that order;
    the mask and the rotary positions say what the order of time is.

    `mask`: bool `[B, L, S]` or `[1, L, S]`, true where a query row may see a key; none means everything is seen.
    `past`: per layer what an earlier call kept. With `keep`, `kept[layer]` holds past and new rows after the call.
    """

    def __init__(
        self, widths: Sequence[int], *, mask: Tensor | None = None, past: Sequence[KV] = (), keep: bool = False
    ) -> None:
        self.widths = tuple(widths)
        self.mask = None if mask is None else mask[:, None]
        self.past = past
        self.keep = keep
        self.kept: list[KV] = []

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q_BLHD, k_BSGD, v_BSGD = self._pad(q), self._pad(k), self._pad(v)
        if self.past:
            k_BSGD = torch.cat([self.past[layer][0], k_BSGD], 1)
            v_BSGD = torch.cat([self.past[layer][1], v_BSGD], 1)
        if self.keep:
            self.kept.append((k_BSGD, v_BSGD))
        return self._unpad(dense_attention(q_BLHD, k_BSGD, v_BSGD, self.mask))

    def _pad(self, rows: Tensor) -> Tensor:
        length = sum(self.widths)
        if len(self.widths) == 1 or rows.shape[0] == length:
            return rows.view(-1, length, *rows.shape[1:])
        sequences = rows.shape[0] // length
        parts = rows.split([sequences * width for width in self.widths])
        return torch.cat([p.view(sequences, -1, *rows.shape[1:]) for p in parts], 1)

    def _unpad(self, padded: Tensor) -> Tensor:
        if len(self.widths) == 1 or padded.shape[0] == 1:
            return padded.flatten(0, 1)
        return torch.cat([p.flatten(0, 1) for p in padded.split(self.widths, 1)])


class BlockAttend:
    """Bidirectional attention inside each of consecutive blocks of rows, such as the images of an encoder's batch.
    Serves the layers of one forward."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = tuple(lengths)
        self._pictures: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if q.is_cuda and not torch.is_grad_enabled():
            from walkgraph.layers.kernels.encoder_attention import Pictures, supported

            if self._pictures is None and supported(q, k, v):
                self._pictures = Pictures(self.lengths, q)
            if self._pictures is not None:
                return self._pictures(q, k, v)
        if len(set(self.lengths)) == 1:
            n = self.lengths[0]
            return dense_attention(q.unflatten(0, (-1, n)), k.unflatten(0, (-1, n)), v.unflatten(0, (-1, n))).flatten(
                0, 1
            )
        blocks = zip(q.split(self.lengths), k.split(self.lengths), v.split(self.lengths), strict=True)
        return torch.cat([dense_attention(a[None], b[None], c[None])[0] for a, b, c in blocks])


def dense_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """q `[B, L, H, D]`, k and v `[B, S, G, D]`, mask broadcastable to `[B, H, L, S]` -> `[B, L, H, D]`."""
    repeat = q.shape[2] // k.shape[2]
    if repeat > 1:
        k, v = k.repeat_interleave(repeat, 2), v.repeat_interleave(repeat, 2)
    out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask)
    return out.transpose(1, 2)


def causal_mask(new: int, past: int = 0, *, device: torch.device | str | None = None) -> Tensor:
    """bool `[1, new, past + new]`: every new token attends the past, itself and earlier new tokens."""
    return torch.ones(new, past + new, dtype=torch.bool, device=device).tril(past)[None]
