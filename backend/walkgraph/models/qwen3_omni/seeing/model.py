"""The vision encoder of Qwen3-Omni: pictures and videos of any sizes to embeddings, one for 2 by 2 patches.

A *sheet* is what attention sees at once: a picture, or two frames of a video. Sheets don't depend on each other, so a
batch is computed in pieces of some of them.

Parameter names are the public checkpoint's, below `thinker.visual`.

Shape letters: S sheets of a clip, F frames of a sheet, R rows (patches), W width, D head dim, n embeddings of a clip,
K features of inner layers.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.layers.attention.dense_attention import BlockAttend
from walkgraph.layers.encoder import EncoderRows, EncoderWeights
from walkgraph.layers.linear.product import product
from walkgraph.layers.norm.layer_norm import added_norm
from walkgraph.layers.pictures.patches import block_patches, in_blocks
from walkgraph.layers.rope import AxialRope, Rotation
from walkgraph.models.qwen3_omni.seeing.config import VisionConfig

_ROWS = 1 << 16
"""The most patches of a piece with several sheets; the largest picture has fewer."""


class Seen(NamedTuple):
    """The numbers that a clip gives."""

    embeddings: Tensor
    """`[n, out]`"""
    deepstack: Tensor
    """`[K, n, out]`"""
    grid: tuple[int, int, int]
    """Sheets, rows and columns of the embeddings."""


class Places(NamedTuple):
    """The values that depend on a patch's place alone, for the patches of a sheet, in their order."""

    learned: Tensor
    """`[rows * columns, W]`"""
    cos: Tensor
    """float32 `[rows * columns, 1, D]`, and `sin` likewise."""
    sin: Tensor


class VisionAttention(nn.Module):
    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.proj = nn.Linear(config.width, config.width)


class VisionMLP(nn.Module):
    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.linear_fc1 = nn.Linear(config.width, config.hidden)
        self.linear_fc2 = nn.Linear(config.hidden, config.width)


class VisionBlock(nn.Module):
    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm1 = nn.LayerNorm(config.width, config.norm_eps)
        self.norm2 = nn.LayerNorm(config.width, config.norm_eps)
        self.attn = VisionAttention(config)
        self.mlp = VisionMLP(config)

    def weights(self) -> EncoderWeights:
        return EncoderWeights(
            norm=self.norm1,
            qkv=(self.attn.qkv.weight, self.attn.qkv.bias),
            heads=self.heads,
            out=self.attn.proj,
            mlp_norm=self.norm2,
            fc1=self.mlp.linear_fc1,
            fc2=self.mlp.linear_fc2,
            activation="gelu_tanh",
        )


class VisionPatches(nn.Module):
    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        size = (config.frames, config.patch, config.patch)
        self.proj = nn.Conv3d(3, config.width, kernel_size=size, stride=size)

    def forward(self, patches: Tensor) -> Tensor:
        """`[R, 3 * F * patch²]` -> `[R, W]`; patches of one frame count as often as the convolution has frames."""
        weight, bias = self.proj.weight, self.proj.bias
        if patches.shape[1] != weight[0].numel():
            weight = weight.float().sum(2).to(weight.dtype)
        return product(patches.to(weight.dtype), weight.flatten(1), bias)


class Merger(nn.Module):
    """Patches that lie side by side become one row; the norm is before that, or after it."""

    def __init__(self, config: VisionConfig, *, after: bool) -> None:
        super().__init__()
        self.after, self.wide = after, config.width * config.merge**2
        self.ln_q = nn.LayerNorm(self.wide if after else config.width, config.norm_eps)
        self.mlp = nn.ModuleList([nn.Linear(self.wide, self.wide), nn.GELU(), nn.Linear(self.wide, config.out)])

    def forward(self, x: Tensor) -> Tensor:
        """`[R, W]` -> `[R / merge², out]`."""
        into, _, out = cast("tuple[nn.Linear, nn.GELU, nn.Linear]", tuple(self.mlp))
        _, normed = added_norm(x.view(-1, self.wide) if self.after else x, None, self.ln_q)
        hidden = product(normed.view(-1, self.wide), into.weight, into.bias, activation="gelu")
        return product(hidden, out.weight, out.bias)


class VisionEncoder(nn.Module):
    """Serves without gradients."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = VisionPatches(config)
        self.pos_embed = nn.Embedding(config.side**2, config.width)
        self.blocks = nn.ModuleList(VisionBlock(config) for _ in range(config.layers))
        self.merger = Merger(config, after=False)
        self.merger_list = nn.ModuleList(Merger(config, after=True) for _ in config.deepstack)
        self._rope = AxialRope(config.width // config.heads, config.theta)

    def forward(self, clips: Sequence[Tensor]) -> list[Seen]:
        """Clips `[S, F, 3, height, width]` in [-1, 1], sides multiples of `config.cell`; F is 1, or `config.frames`."""
        cell = self.config.cell
        grids = [(len(clip), clip.shape[3] // cell, clip.shape[4] // cell) for clip in clips]
        places: dict[tuple[int, int], Places] = {}
        made = [self._piece(piece, places) for piece in _pieces(clips, self.config.patch)]
        counts = [sheets * rows * columns for sheets, rows, columns in grids]
        embeddings = torch.cat([one[-1] for one in made]).split(counts)
        deepstack = torch.cat([one[:-1] for one in made], 1).split(counts, 1)
        return [Seen(*one) for one in zip(embeddings, deepstack, grids, strict=True)]

    def _piece(self, clips: Sequence[Tensor], places: dict[tuple[int, int], Places]) -> Tensor:
        """`[K + 1, n of all, out]`: the features, then the embeddings."""
        lengths: list[int] = []
        parts: list[Tensor] = []
        at: list[Places] = []
        for clip in clips:
            sheets, grid = len(clip), (clip.shape[3] // self.config.patch, clip.shape[4] // self.config.patch)
            if grid not in places:
                places[grid] = self._places(grid)
            parts.append(self.patch_embed(block_patches(clip, self.config.patch, self.config.merge)))
            at += [places[grid]] * sheets
            lengths += [grid[0] * grid[1]] * sheets
        learned, cos, sin = (torch.cat(one) for one in zip(*at, strict=True))
        return self._encoded(torch.cat(parts) + learned, lengths, Rotation(cos, sin))

    def _encoded(self, x: Tensor, lengths: Sequence[int], rotation: Rotation) -> Tensor:
        rows, attend, found = EncoderRows(x), BlockAttend(lengths), list[Tensor]()
        for index, block in enumerate(self.blocks):
            rows = rows.layer(index, cast(VisionBlock, block).weights(), attend, rotation)
            if index in self.config.deepstack:
                rows = EncoderRows(rows.whole())
                found.append(self.merger_list[len(found)](rows.x))
        return torch.stack([*found, self.merger(rows.whole())])

    def _places(self, grid: tuple[int, int]) -> Places:
        """The table of learned positions is stretched over the grid, corners on corners."""
        side, merge, table = self.config.side, self.config.merge, self.pos_embed.weight
        square = table.float().t().view(1, -1, side, side)
        stretched = F.interpolate(square, size=grid, mode="bilinear", align_corners=True)[0]
        rows, columns = (torch.arange(count, device=table.device) for count in grid)
        cells = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1)
        rotation = self._rope(in_blocks(cells, merge))
        return Places(in_blocks(stretched.permute(1, 2, 0), merge).to(table.dtype), *rotation)


def _pieces(clips: Sequence[Tensor], patch: int) -> Iterator[list[Tensor]]:
    """Clips, and parts of long ones, in their order, with about `_ROWS` patches at once."""
    piece: list[Tensor] = []
    held = 0
    for clip in clips:
        rows = clip.shape[3] * clip.shape[4] // patch**2
        for part in clip.split(max(1, _ROWS // rows)):
            if piece and held + rows * len(part) > _ROWS:
                yield piece
                piece, held = [], 0
            piece.append(part)
            held += rows * len(part)
    yield piece
