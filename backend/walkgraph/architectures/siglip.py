"""The SigLIP vision transformer over square pictures of one size, with as many patches as it has positions.

Parameter names are the public checkpoint's (those of its `vision_model`).

Shape letters: B pictures, N patches of a picture, R = B * N rows, W width, P side of a patch in pixels.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.architectures.siglip_navit import SiglipEncoder, SiglipLayer
from walkgraph.checkpoints.siglip import SiglipConfig
from walkgraph.layers.attention.dense_attention import Attend, dense_attention
from walkgraph.layers.encoder import EncoderRows


class SquareEmbeddings(nn.Module):
    def __init__(self, config: SiglipConfig) -> None:
        super().__init__()
        self.config = config
        # In checkpoints it has the name and shape of a convolution; patches don't overlap, so it is one product.
        self.patch_embedding = nn.Conv2d(3, config.width, config.patch, config.patch)
        self.position_embedding = nn.Embedding(config.side**2, config.width)

    def forward(self, pixels: Tensor) -> Tensor:
        """pixels `[B, 3, side * P, side * P]` -> `[B * N, W]`."""
        into, side, patch = self.patch_embedding, self.config.side, self.config.patch
        cells = pixels.unflatten(3, (side, patch)).unflatten(2, (side, patch))
        patches = cells.permute(0, 2, 4, 1, 3, 5).reshape(pixels.shape[0], side**2, -1)
        embedded = F.linear(patches.to(into.weight.dtype), into.weight.flatten(1), into.bias)
        return (embedded + self.position_embedding.weight).flatten(0, 1)


class Squares:
    """`Attend` within each of several pictures with equally many patches. It plans nothing on the host, so it can be
    captured."""

    def __init__(self, patches: int) -> None:
        self._patches = patches

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q, k and v `[R, H, D]` -> `[R, H, D]`."""
        return dense_attention(*(part.unflatten(0, (-1, self._patches)) for part in (q, k, v))).flatten(0, 1)


class SquareVision(nn.Module):
    def __init__(self, config: SiglipConfig) -> None:
        super().__init__()
        self._patches = config.side**2
        self.embeddings = SquareEmbeddings(config)
        self.encoder = SiglipEncoder(config)
        self.post_layernorm = nn.LayerNorm(config.width, config.norm_eps)

    def forward(self, pixels: Tensor, attend: Attend | None = None) -> Tensor:
        """pixels `[B, 3, side * P, side * P]` in [-1, 1] -> `[B * N, W]`. `attend` separates the pictures; one is made
        if None."""
        if attend is None:
            attend = Squares(self._patches)
        x, layers = self.embeddings(pixels), [cast(SiglipLayer, layer) for layer in self.encoder.layers]
        if layers and layers[0].self_attn.packed is not None and not torch.is_grad_enabled():
            return self._served(x, layers, attend)
        for index, layer in enumerate(layers):
            x = layer(index, x, attend)
        return self.post_layernorm(x)

    def _served(self, x: Tensor, layers: Sequence[SiglipLayer], attend: Attend) -> Tensor:
        """Packed layers without gradients, in seven launches each: each norm adds the product before it. x `[R, W]` ->
        `[R, W]`."""
        rows = EncoderRows(x)
        for index, layer in enumerate(layers):
            rows = rows.layer(index, layer.weights(), attend, None)
        return rows.normed(self.post_layernorm)

    def pack(self) -> None:
        """Lay weights that read one input side by side. State names stay; parameters become frozen views."""
        for layer in self.encoder.layers:
            cast(SiglipLayer, layer).self_attn.pack()
