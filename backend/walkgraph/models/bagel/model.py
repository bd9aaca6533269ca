"""BAGEL: a mixture-of-transformers model that reads text and pictures and writes text and pictures.

This module has the model's modules under the public checkpoint's names, and the functions that its operators call. The
caller decides attention and positions: an image block is BOI, tokens, EOI with one position.

Shape letters: R rows, W model width, N latent tokens, V vocabulary.
"""

from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.architectures.siglip_navit import SiglipNavit
from walkgraph.layers.attention.dense_attention import Attend, BlockAttend
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.mlp import GeluMLP
from walkgraph.layers.positions import GridPositions, TimeEmbedding
from walkgraph.models.bagel.config import BagelConfig
from walkgraph.models.bagel.mot import MoTForCausalLM


class Bagel(nn.Module):
    """Everything but the autoencoder: rows of one kind in, rows out. Nothing is kept between calls."""

    def __init__(self, config: BagelConfig) -> None:
        super().__init__()
        self.config = config
        llm, vit = config.llm, config.vit
        self.language_model = MoTForCausalLM(llm.shape, llm.layers, llm.vocab, llm.rope_theta)
        self.time_embedder = TimeEmbedding(llm.width)
        self.vae2llm = nn.Linear(config.latent_channels, llm.width)
        self.llm2vae = nn.Linear(llm.width, config.latent_channels)
        self.latent_pos_embed = GridPositions(config.latent_side, llm.width)
        self.vit_model = SiglipNavit(vit)
        self.connector = GeluMLP(vit.width, llm.width, llm.width)
        self.vit_pos_embed = GridPositions(vit.side, llm.width)

    def pack(self) -> Self:
        """Lay out loaded weights so that fewer products read them; this freezes them."""
        for layer in self.language_model.model.layers:
            cast(DecoderLayer, layer).pack()
        self.vit_model.pack()
        return self

    def embed_text(self, ids: Tensor) -> Tensor:
        """ids int64 `[R]` (text, and the tokens around images) -> `[R, W]`, und rows."""
        return self.language_model.model.embed_tokens(ids)

    def embed_latents(self, latents: Tensor, t: Tensor, ids: Tensor) -> Tensor:
        """Latent tokens `[N, C]`, their times `[N]` (0 for a clean picture), grid ids `[N]` -> `[N, W]`, gen rows."""
        tokens = self.vae2llm(latents.to(self.vae2llm.weight.dtype))
        return tokens + self.time_embedder(t) + self.latent_pos_embed(ids)

    def embed_block(self, latents: Tensor, t: Tensor) -> Tensor:
        """Latents `[B, h, w, C]`, one time for each of `[B]` -> `[B * h * w, W]`, gen rows."""
        (_, height, width, _), side = latents.shape, self.config.latent_side
        tokens = self.vae2llm(latents.to(self.vae2llm.weight.dtype))
        positions = self.latent_pos_embed.pos_embed.view(side, side, -1)[:height, :width]
        return (tokens + self.time_embedder(t)[:, None, None] + positions).flatten(0, 2)

    def vit_tokens(self, patches: Tensor, ids: Tensor, attend: Attend | list[int]) -> Tensor:
        """patches `[R, 3 * patch²]`, grid ids `[R]` -> `[R, W]`, und rows.

        `attend` separates the pictures; a list of their lengths in rows does too.
        """
        if isinstance(attend, list):
            attend = BlockAttend(attend)
        dtype = self.connector.fc1.weight.dtype
        return self.connector(self.vit_model.vision_model(patches.to(dtype), ids, attend)) + self.vit_pos_embed(ids)

    def backbone(self, x: Tensor, positions: Tensor, split: int, attend: Attend) -> Tensor:
        """x `[R, W]`, positions `[R]` -> normed states `[R, W]`; `x[:split]` are und rows, `x[split:]` gen rows."""
        return self.language_model.model(x, positions, split, attend)

    def velocity(self, h: Tensor) -> Tensor:
        """States of noised latent rows `[N, W]` -> float32 `[N, C]`, not rounded to the states' type: noise - data."""
        into = self.llm2vae
        if h.is_cuda and h.dtype != torch.float32 and not torch.is_grad_enabled():
            return torch.mm(h, into.weight.t(), out_dtype=torch.float32) + into.bias
        return F.linear(h.float(), into.weight.float(), into.bias.float())

    def logits(self, h: Tensor) -> Tensor:
        """States of und rows `[R, W]` -> `[R, V]`."""
        return self.language_model.lm_head(h)
