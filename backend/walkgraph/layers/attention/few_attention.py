"""Causal attention of a few new rows of any sequences over a paged cache that already holds their keys and values.

Everything but a launch's number of rows is in tensors, so that a captured launch serves any sequences. CPUs use the
plain form below; CUDA uses two kernels.

Shape letters: R rows of the launch, N tiles, P pages of all sequences, S slots (pages * page size), H query heads, G
key/value heads, D head dim.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.attention.tiles import Tile, Tiles

_HEAD_DIMS = (64, 128)
_GROUPS = 8
"""The most query heads per key head."""


def few_attention(q: Tensor, slot_k: Tensor, slot_v: Tensor, tiles: Tiles, page: int = 16) -> Tensor:
    """q `[R, H, D]`, contiguous; slot_k and slot_v `[S, G, D]` of one layer; page: slots per page -> `[R, H, D]`. A row
    attends its sequence's tokens up to and including itself. Scale D^-0.5.

    On CUDA it needs `supported` shapes.
    """
    if q.is_cuda:
        from walkgraph.layers.kernels.few_attention import launch

        return launch(q, slot_k, slot_v, tiles, page)
    return plain(q, slot_k, slot_v, tiles, page)


def supported(device: torch.device, dtype: torch.dtype, heads: int, groups: int, width: int) -> bool:
    """True if `few_attention` serves heads of these counts and widths."""
    if device.type != "cuda":
        return True
    return dtype in (torch.bfloat16, torch.float16) and width in _HEAD_DIMS and heads // groups <= _GROUPS


def plain(q: Tensor, slot_k: Tensor, slot_v: Tensor, tiles: Tiles, page: int) -> Tensor:
    """`few_attention` in torch operations, tile by tile, in float32."""
    out = torch.zeros_like(q)
    for numbers in tiles.lines.tolist():
        tile = Tile(*numbers)
        if not tile.rows:
            continue
        at = torch.arange(tile.before + tile.rows, device=q.device)
        slots = tiles.pages[tile.pages + at // page] * page + at % page
        mine = slice(tile.first, tile.first + tile.rows)
        seen = at <= at[tile.before :, None]
        heads = (x.float().transpose(0, 1)[None] for x in (q[mine], slot_k[slots], slot_v[slots]))
        attended = F.scaled_dot_product_attention(*heads, attn_mask=seen, enable_gqa=q.shape[1] != slot_k.shape[1])
        out[mine] = attended[0].transpose(0, 1).to(q.dtype)
    return out
