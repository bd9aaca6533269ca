"""The serving form of V-JEPA 2-AC: the same layers as products over rows, with the keys and values of frames in a paged
cache.

A layer takes eight launches: two norms, four products with their epilogues, the rotation, and the attention of blocks.
For one frame on Hopper it takes five: see `walkgraph.layers.fitted_blocks`. A picture is a block in a cache of its own,
which lives as long as the forward.

Shape letters: B pictures or sequences, n patches of a frame, R rows of all of them, d width of the encoder, W width, H
heads, D head dim.
"""

import itertools
from collections.abc import Callable, Iterable
from typing import cast

import torch
from torch import Tensor, nn

from walkgraph.abi.states import Placed
from walkgraph.abi.step import PagedRows, PagedSlot
from walkgraph.layers.attention.paged_blocks import Places, paged_block_attention
from walkgraph.layers.fitted_blocks import FittedBlocks, FittedMap, fits
from walkgraph.layers.linear.product import product
from walkgraph.layers.norm.layer_norm import shifted_norm
from walkgraph.layers.pictures.frames import ConditionMaps, FrameAngles, frame_rows
from walkgraph.layers.pictures.patches import patchify
from walkgraph.models.vjepa2.config import CONDITIONS
from walkgraph.models.vjepa2.model import FEATURE_EPS, Vjepa2Block, Vjepa2Encoder, Vjepa2Predictor, normed, spread

_PAGE = 16
Heads = Callable[[int, Tensor], Tensor]
"""Layer and turned queries `[R, H, D]` -> heads `[R, H, D]`; the layer's keys and values are placed."""


class Blocks:
    """The layers of one network and the norm behind them, as they are served; and a map behind it, if there is one."""

    def __init__(self, blocks: Iterable[nn.Module], norm: nn.LayerNorm, end: nn.Linear | None = None) -> None:
        self._layers = [one.weights() for one in cast(Iterable[Vjepa2Block], blocks)]
        self._fitted = FittedBlocks.of(self._layers, None if end is None else (norm, end))
        self._norm, self._end = norm, end
        biases = [_given(part.bias).float() for one in self._layers for part in (one.out, one.fc2)]
        self._shifts = list(itertools.accumulate(biases, initial=torch.zeros_like(biases[0])))
        """float32 `[W]` each: the running sums of the biases that the library's products would add to the stream,
        before each norm and at the end. The stream itself goes without them."""

    def __call__(self, x: Tensor, places: Callable[[int], Places], heads: Heads, sums: Tensor | None = None) -> Tensor:
        """x `[R, W]`, consumed -> `[R, W]`, normed, or `[R, N]` with an end. places: where a layer's keys and values
        go; sums: `row_sums` of x, if they are known."""
        if self._fitted is not None and fits(x):
            x = self._fitted(x, lambda index, qkv: heads(index, qkv.placed(places(index))), sums)
            return shifted_norm(x, None, self._norm) if self._end is None else x
        for index, layer in enumerate(self._layers):
            y = product(shifted_norm(x, self._shifts[2 * index], layer.norm), *layer.qkv)
            x = product(heads(index, places(index).placed(y)).flatten(1), layer.out.weight, residual=x)
            y = shifted_norm(x, self._shifts[2 * index + 1], layer.mlp_norm)
            y = product(y, layer.fc1.weight, layer.fc1.bias, activation=layer.activation)
            x = product(y, layer.fc2.weight, residual=x)
        x = shifted_norm(x, self._shifts[-1], self._norm)
        return x if self._end is None else product(x, self._end.weight, self._end.bias)


class EncoderSteps:
    def __init__(self, encoder: Vjepa2Encoder) -> None:
        config = encoder.config
        self._encoder, self._patch, self._heads = encoder, config.patch, config.encoder.heads
        self._weight, self._bias = _folded(encoder)
        self._blocks = Blocks(encoder.blocks, encoder.norm)
        device = self._weight.device
        self._turns = encoder.angles(device).at(torch.zeros(1, device=device))

    def __call__(self, pixels: Tensor) -> Tensor:
        """pixels `[B, 3, h, w]` in [-1, 1], of the config's side -> `[B, n, d]` in the weights' type, normed."""
        patches = patchify(pixels, self._patch).to(self._weight.dtype)
        count, tokens = patches.shape[:2]
        x = product(patches.flatten(0, 1), self._weight, self._bias)
        places = self._places(x, count, tokens)

        def heads(layer: int, q: Tensor) -> Tensor:
            return paged_block_attention(q, places.slot_k, places.slot_v, places.rows, tokens, page=_PAGE)

        return normed(self._blocks(x, lambda _: places, heads).unflatten(0, (count, tokens)))

    def _places(self, x: Tensor, count: int, tokens: int) -> Places:
        """Those of each picture's rows in a cache of this forward; the layers reuse one place."""
        pages = -(-tokens // _PAGE)
        k, v = x.new_zeros(2, count * pages * _PAGE, self._heads, x.shape[1] // self._heads).unbind()
        cos, sin = (table.expand(count, -1, -1) for table in self._turns)
        whole = torch.arange(count * pages, dtype=torch.int32, device=x.device)
        nothing = whole.new_zeros(count)
        rows = PagedRows(whole[:count], whole.view(count, pages), nothing, nothing)

        return Places(cos, sin, k, v, rows, tokens, _PAGE)


class PredictorSteps:
    def __init__(self, predictor: Vjepa2Predictor) -> None:
        self._predictor, self._tokens = predictor, predictor.config.tokens
        weight = predictor.predictor_proj.weight
        self.dtype = weight.dtype
        self._blocks = Blocks(predictor.predictor_blocks, predictor.predictor_norm, predictor.predictor_proj)
        self._fitted_embed = FittedMap.of(predictor.predictor_embed)
        self._angles = predictor.angles(weight.device)
        maps = (predictor.action_encoder, predictor.state_encoder)
        self._maps = ConditionMaps(
            torch.stack([part.weight.float().t() for part in maps]),
            torch.stack([_given(part.bias).float() for part in maps]),
        )
        width = predictor.predictor_proj.out_features
        self._normed = nn.LayerNorm(width, FEATURE_EPS, device=weight.device, dtype=weight.dtype)

    def step(self, features: Tensor, action: Tensor, pose: Tensor, slot: PagedSlot) -> Tensor:
        """One frame of every sequence, appended to its pages -> the next one `[..., n, d]`, normed.

        features `[B, n, d]` or `[B, w, n, d]`, action and pose `[B, 7]` or `[B, w, 7]`; where some have an axis of
        samples, what has none holds for all of a row's. `slot`: of all B, or B * w, sequences."""
        rows, tokens = slot.rows, self._tokens
        if features.dim() == 3 and action.dim() == 2:
            lead = action.shape[:1]
            x, sums, cos, sin = frame_rows(
                self._embedded(features),
                (action, pose),
                self._maps,
                FrameAngles(*self._angles),
                rows.rows,
                rows.positions,
            )
        else:
            x, lead = self._entering(features, action, pose)
            sums, (cos, sin) = None, self._turns(rows, lead)

        def places(layer: int) -> Places:
            return Places(cos, sin, slot.k[layer], slot.v[layer], rows, tokens)

        def heads(layer: int, q: Tensor) -> Tensor:
            return paged_block_attention(q, slot.k[layer], slot.v[layer], rows, tokens)

        return self._leaving(self._blocks(x, places, heads, sums), lead)

    def forward(self, features: Tensor, action: Tensor, pose: Tensor, frames: Tensor, to: Placed) -> Tensor:
        """Like `step`: features `[B, n, d]`, action and pose `[B, 7]`, frames `[B]`, with the rows placed in order."""
        tokens, count = self._tokens, len(action)
        cos, sin = self._angles.at(frames)
        # Slots serve as pages of one token, so the kernel that places blocks in pages works here too.
        each = torch.arange(count, dtype=torch.int32, device=action.device)
        nothing = torch.zeros_like(each)
        rows = PagedRows(each, to.slots.view(count, tokens).int(), nothing, nothing)

        def places(layer: int) -> Places:
            return Places(cos, sin, to.k[layer], to.v[layer], rows, tokens, page=1)

        x, lead = self._entering(features, action, pose)
        return self._leaving(self._blocks(x, places, to), lead)

    def _turns(self, rows: PagedRows, lead: torch.Size) -> tuple[Tensor, Tensor]:
        """Cosines and sines `[R / n, n, D]`; the samples of a row share a frame."""
        width = lead[1:].numel()
        tables = self._angles.at(rows.positions.index_select(0, rows.rows[::width]))
        # The samples of a row read the same table, which stays in the cache.
        cos, sin = (table.unsqueeze(1).expand(-1, width, -1, -1).flatten(0, 1) for table in tables)
        return cos, sin

    def _entering(self, features: Tensor, action: Tensor, pose: Tensor) -> tuple[Tensor, torch.Size]:
        """`[R, W]`: each sequence's action, pose and patches; and the axes of the sequences."""
        given = [part @ weight + bias for part, weight, bias in zip((action, pose), *self._maps, strict=True)]
        seen = self._embedded(features).unflatten(0, features.shape[:-1])
        lead = max((part.shape[:-1] for part in (action, pose, seen[..., 0])), key=len)
        conditions = torch.stack([_over(part, lead, 1) for part in given], -2).to(self.dtype)
        return torch.cat([conditions, _over(seen, lead, 2)], -2).flatten(0, -2), lead

    def _embedded(self, features: Tensor) -> Tensor:
        """`[..., n, d]` -> `[R, W]`"""
        x, embed = features.to(self.dtype).flatten(0, -2), self._predictor.predictor_embed
        if self._fitted_embed is not None and fits(x):
            return self._fitted_embed(x)
        return product(x, embed.weight, embed.bias)

    def _leaving(self, x: Tensor, lead: torch.Size) -> Tensor:
        patches = x.view(-1, self._tokens, x.shape[1])[:, CONDITIONS:].reshape(-1, x.shape[1])
        return shifted_norm(patches, None, self._normed).view(*lead, self._tokens - CONDITIONS, -1)


def _folded(encoder: Vjepa2Encoder) -> tuple[Tensor, Tensor]:
    """Weight `[d, p * p * 3]` and bias `[d]` for rows of pixels in [-1, 1]: the product itself uses a frame twice and
    standardizes it."""
    proj = encoder.patch_embed.proj
    weight = proj.weight.float().sum(2)
    mean, deviation = spread(weight.device)
    bias = _given(proj.bias).float() + (weight * ((0.5 - mean) / deviation)).sum((1, 2, 3))
    rows = (weight / (2 * deviation)).permute(0, 2, 3, 1).flatten(1)
    return rows.to(proj.weight.dtype).contiguous(), bias.to(proj.weight.dtype)


def _over(part: Tensor, lead: torch.Size, inner: int) -> Tensor:
    """`[B, *inner]` or `[*lead, *inner]` -> `[*lead, *inner]`."""
    if part.dim() < len(lead) + inner:
        part = part.unsqueeze(1)
    return part.expand(*lead, *part.shape[-inner:])


def _given(bias: Tensor | None) -> Tensor:
    if bias is None:
        raise ValueError("every linear map of this model has a bias")
    return bias
