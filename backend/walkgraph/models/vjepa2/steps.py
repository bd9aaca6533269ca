"""The serving form of V-JEPA 2-AC: the same layers as products over rows, with the keys and values of frames in a paged
cache.

A layer takes eight launches: two norms, four products with their epilogues, the rotation, and the attention of blocks.
A picture is a block in a cache of its own, which lives as long as the forward.

Shape letters: B pictures or sequences, n patches of a frame, R rows of all of them, d width of the encoder, W width, H
heads, D head dim.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.abi.states import Placed
from walkgraph.abi.step import PagedRows, PagedSlot
from walkgraph.layers.attention.paged_blocks import paged_block_attention, place_block
from walkgraph.layers.linear.product import product
from walkgraph.layers.norm.layer_norm import shifted_norm
from walkgraph.layers.pictures.patches import patchify
from walkgraph.models.vjepa2.config import CONDITIONS
from walkgraph.models.vjepa2.model import Vjepa2Block, Vjepa2Encoder, Vjepa2Predictor, normed, spread

_PAGE = 16
Attended = Callable[[int, Tensor], Tensor]
"""Layer, and queries, keys and values `[R, 3 * H * D]` -> heads `[R, H, D]`."""


class EncoderSteps:
    def __init__(self, encoder: Vjepa2Encoder) -> None:
        config = encoder.config
        self._encoder, self._patch, self._heads = encoder, config.patch, config.encoder.heads
        self._weight, self._bias = _folded(encoder)
        self._shifts = shifts_of(encoder.blocks)
        device = self._weight.device
        self._turns = encoder.angles(device).at(torch.zeros(1, device=device))

    def __call__(self, pixels: Tensor) -> Tensor:
        """pixels `[B, 3, h, w]` in [-1, 1], of the config's side -> `[B, n, d]` in the weights' type, normed."""
        patches = patchify(pixels, self._patch).to(self._weight.dtype)
        count, tokens = patches.shape[:2]
        x = product(patches.flatten(0, 1), self._weight, self._bias)
        x = through(self._encoder.blocks, x, self._attended(x, count, tokens), self._shifts)
        x = shifted_norm(x, self._shifts[-1], self._encoder.norm)
        return normed(x.unflatten(0, (count, tokens)))

    def _attended(self, x: Tensor, count: int, tokens: int) -> Attended:
        """Attention of each picture's rows in a cache of this forward, where the layers reuse one place."""
        pages = -(-tokens // _PAGE)
        k, v = x.new_zeros(2, count * pages * _PAGE, self._heads, x.shape[1] // self._heads).unbind()
        cos, sin = (table.expand(count, -1, -1) for table in self._turns)
        whole = torch.arange(count * pages, dtype=torch.int32, device=x.device)
        nothing = whole.new_zeros(count)
        rows = PagedRows(whole[:count], whole.view(count, pages), nothing, nothing)

        def attended(layer: int, qkv: Tensor) -> Tensor:
            q = place_block(qkv, cos, sin, k, v, rows, tokens, page=_PAGE)
            return paged_block_attention(q, k, v, rows, tokens, page=_PAGE)

        return attended


class PredictorSteps:
    def __init__(self, predictor: Vjepa2Predictor) -> None:
        self._predictor, self._tokens = predictor, predictor.config.tokens
        weight = predictor.predictor_proj.weight
        self.dtype = weight.dtype
        self._shifts = shifts_of(predictor.predictor_blocks)
        self._angles = predictor.angles(weight.device)
        # An action is a few hundredths: rounded to 16 bits, it would lose what distinguishes it from another.
        exact = (predictor.action_encoder, predictor.state_encoder)
        self._exact = [(part.weight.float(), _given(part.bias).float()) for part in exact]

    def step(self, features: Tensor, action: Tensor, pose: Tensor, slot: PagedSlot) -> Tensor:
        """One frame of every sequence, appended to its pages -> the next one `[..., n, d]`, normed.

        features `[B, n, d]` or `[B, w, n, d]`, action and pose `[B, 7]` or `[B, w, 7]`; where some have an axis of
        samples, what has none holds for all of a row's. `slot`: of all B, or B * w, sequences."""
        rows, tokens = slot.rows, self._tokens
        x, lead = self._entering(features, action, pose)
        cos, sin = self._turns(rows, lead)

        def attended(layer: int, qkv: Tensor) -> Tensor:
            k, v = slot.k[layer], slot.v[layer]
            q = place_block(qkv, cos, sin, k, v, rows, tokens)
            return paged_block_attention(q, k, v, rows, tokens)

        return self._leaving(through(self._predictor.predictor_blocks, x, attended, self._shifts), lead)

    def forward(self, features: Tensor, action: Tensor, pose: Tensor, frames: Tensor, to: Placed) -> Tensor:
        """Like `step`: features `[B, n, d]`, action and pose `[B, 7]`, frames `[B]`, with the rows placed in order."""
        tokens, count = self._tokens, len(action)
        cos, sin = self._angles.at(frames)
        # Slots serve as pages of one token, so the kernel that places blocks in pages works here too.
        each = torch.arange(count, dtype=torch.int32, device=action.device)
        nothing = torch.zeros_like(each)
        rows = PagedRows(each, to.slots.view(count, tokens).int(), nothing, nothing)

        def attended(layer: int, qkv: Tensor) -> Tensor:
            return to(layer, place_block(qkv, cos, sin, to.k[layer], to.v[layer], rows, tokens, page=1))

        x, lead = self._entering(features, action, pose)
        return self._leaving(through(self._predictor.predictor_blocks, x, attended, self._shifts), lead)

    def _turns(self, rows: PagedRows, lead: torch.Size) -> tuple[Tensor, Tensor]:
        """Cosines and sines `[R / n, n, D]`; the samples of a row share a frame."""
        width = lead[1:].numel()
        tables = self._angles.at(rows.positions.index_select(0, rows.rows[::width]))
        # The samples of a row read the same table, which stays in the cache.
        cos, sin = (table.unsqueeze(1).expand(-1, width, -1, -1).flatten(0, 1) for table in tables)
        return cos, sin

    def _entering(self, features: Tensor, action: Tensor, pose: Tensor) -> tuple[Tensor, torch.Size]:
        """`[R, W]`: each sequence's action, pose and patches; and the axes of the sequences."""
        given = [F.linear(part, *weights) for part, weights in zip((action, pose), self._exact, strict=True)]
        embed = self._predictor.predictor_embed
        seen = product(features.to(self.dtype).flatten(0, -2), embed.weight, embed.bias)
        seen = seen.unflatten(0, features.shape[:-1])
        lead = max((part.shape[:-1] for part in (action, pose, seen[..., 0])), key=len)
        conditions = torch.stack([_over(part, lead, 1) for part in given], -2).to(self.dtype)
        return torch.cat([conditions, _over(seen, lead, 2)], -2).flatten(0, -2), lead

    def _leaving(self, x: Tensor, lead: torch.Size) -> Tensor:
        patches = x.view(-1, self._tokens, x.shape[1])[:, CONDITIONS:].reshape(-1, x.shape[1])
        patches = shifted_norm(patches, self._shifts[-1], self._predictor.predictor_norm)
        proj = self._predictor.predictor_proj
        return normed(product(patches, proj.weight, proj.bias)).view(*lead, self._tokens - CONDITIONS, -1)


def shifts_of(blocks: Iterable[nn.Module]) -> list[Tensor]:
    """float32 `[W]` each: the running sums of the biases that a stack's products add to the stream, before each norm
    and at the end. The stream itself goes without them."""
    biases = [_given(part.bias).float() for block in cast(Iterable[Vjepa2Block], blocks) for part in _adding(block)]
    return list(itertools.accumulate(biases, initial=torch.zeros_like(biases[0])))


def _adding(block: Vjepa2Block) -> tuple[nn.Linear, nn.Linear]:
    return block.attn.proj, block.mlp.fc2


def through(blocks: Iterable[nn.Module], x: Tensor, attended: Attended, shifts: Sequence[Tensor]) -> Tensor:
    """All layers: x `[R, W]`, consumed -> `[R, W]`, less the last of `shifts`."""
    for index, block in enumerate(cast(Iterable[Vjepa2Block], blocks)):
        attn, mlp = block.attn, block.mlp
        y = shifted_norm(x, shifts[2 * index], block.norm1)
        heads = attended(index, product(y, attn.qkv.weight, attn.qkv.bias))
        x = product(heads.flatten(1), attn.proj.weight, residual=x)
        y = shifted_norm(x, shifts[2 * index + 1], block.norm2)
        y = product(y, mlp.fc1.weight, mlp.fc1.bias, activation="gelu")
        x = product(y, mlp.fc2.weight, residual=x)
    return x


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
