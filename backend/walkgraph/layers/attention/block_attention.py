"""Place the keys, values and queries of blocks of thousands of tokens: from a product to where attention reads them.

A block's tokens share one rotary position, so that a row of the batch has one pair of sines and cosines; or they have
one each.

Shape letters: B rows of a batch, n tokens of a block, T of them that are placed at once, H query heads, G key/value
heads, D head dim, S slots.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.attention.heads import HeadNorms, HeadTargets, RotaryTable
from walkgraph.layers.rope import Rotation, rotate


def rotary_from_first(positions: Tensor, tokens: int, frequencies: Tensor) -> RotaryTable:
    """Rotary table of consecutive tokens: positions int64 `[B]` of each row's first token -> `[B, T, D/2]`."""
    if positions.is_cuda:
        from walkgraph.layers.kernels.block_heads import turns

        return RotaryTable(*turns(positions, tokens, frequencies))
    return RotaryTable.at(positions[:, None] + torch.arange(tokens, device=positions.device), frequencies)


def place_heads(qkv: Tensor, turns: RotaryTable, norms: HeadNorms | None, to: HeadTargets, first: int) -> None:
    """Norm (if there are `norms`) and rotate queries and keys in float32, and write them and the values to their
    places, rounded once.

    qkv `[B * T, (H + 2G) * D]`: tokens `first` to `first + T` of every row's block; or `[B * T, 2G * D]`, only keys and
    values.
    """
    if qkv.is_cuda:
        from walkgraph.layers.kernels.block_heads import place

        place(qkv, turns, norms, to, first)
        return
    rows, (groups, width) = turns.cos.shape[0], to.k.shape[1:]
    tokens = qkv.shape[0] // rows
    heads = qkv.shape[1] // width - 2 * groups
    q, k, v = qkv.unflatten(1, (-1, width)).split([heads, groups, groups], 1)
    cos, sin = (_of_tokens(part, tokens)[:, None] for part in turns)
    rotation = Rotation(torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1))
    slots = to.slots.view(rows, -1)[:, first : first + tokens].flatten()
    to.k[slots] = rotate(k.float() if norms is None else _normed(k, norms.k, norms.eps), rotation).to(to.k.dtype)
    to.v[slots] = v.to(to.v.dtype)
    if heads:
        turned = rotate(q.float() if norms is None else _normed(q, norms.q, norms.eps), rotation).to(to.q.dtype)
        to.q.unflatten(0, (rows, -1))[:, first : first + tokens] = turned.unflatten(0, (rows, tokens))


def _of_tokens(turn: Tensor, tokens: int) -> Tensor:
    """`[B, D/2]` or `[B, T, D/2]` -> `[B * T, D/2]`."""
    return turn.flatten(0, 1) if turn.dim() == 3 else turn.repeat_interleave(tokens, 0)


def _normed(heads: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(heads.float(), weight.shape, weight.float(), eps)
