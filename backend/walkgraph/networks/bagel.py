"""BAGEL: a mixture-of-transformers model that reads text and pictures and writes text and pictures.

Here are its config, its modules under the public checkpoint's names, and the pieces that its operators call. What is
attended by whom, and at which position, is the caller's: an image block is BOI, tokens, EOI with one position.

Shape letters: R rows, W model width, N latent tokens, V vocabulary.
"""

from dataclasses import dataclass
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.layers.attention import Attend, BlockAttend
from walkgraph.layers.decoder import DecoderLayer, DecoderShape, DecoderSizes
from walkgraph.layers.mlp import GeluMLP
from walkgraph.layers.positions import GridPositions, TimeEmbedding
from walkgraph.networks.flux_vae import VaeConfig
from walkgraph.networks.mot import MoTForCausalLM
from walkgraph.networks.siglip_navit import SiglipConfig, SiglipNavit


@dataclass(frozen=True, kw_only=True)
class LlmConfig(DecoderSizes):
    rope_theta: float = 1e6
    norm_eps: float = 1e-6

    @property
    def shape(self) -> DecoderShape:
        return self.layer(qkv_bias=True, qk_norm=True)


@dataclass(frozen=True, kw_only=True)
class PictureRules:
    """How a client's picture is resized before an encoder: sides become multiples of `stride`, within bounds."""

    min_side: int
    max_side: int
    stride: int
    max_pixels: int = 14 * 14 * 9 * 1024

    def __post_init__(self) -> None:
        if self.min_side % self.stride or self.max_side % self.stride or self.min_side > self.max_side:
            raise ValueError("`min_side` <= `max_side` must both be multiples of `stride`")

    def target(self, width: int, height: int) -> tuple[int, int]:
        """The size to resize a picture of this size to. Equal bounds give that square, whatever the shape."""
        if self.min_side == self.max_side:
            return self.min_side, self.min_side
        scale = max(min(self.max_side / max(width, height), 1.0), self.min_side / min(width, height))
        width, height = self._scaled(width, height, scale)
        if width * height > self.max_pixels:
            width, height = self._scaled(width, height, self.max_pixels / (width * height))
        if max(width, height) > self.max_side:
            width, height = self._scaled(width, height, self.max_side / max(width, height))
        return width, height

    def _scaled(self, width: int, height: int, scale: float) -> tuple[int, int]:
        w, h = (max(self.stride, round(round(side * scale) / self.stride) * self.stride) for side in (width, height))
        return w, h


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    bos: int
    eos: int
    boi: int
    eoi: int


@dataclass(frozen=True, kw_only=True)
class BagelConfig:
    llm: LlmConfig
    vit: SiglipConfig
    vae: VaeConfig
    tokens: SpecialTokens
    vit_pictures: PictureRules
    vae_pictures: PictureRules
    latent_side: int
    """Side of the table of latent positions: the largest picture in latent tokens."""
    latent_patch: int = 2

    def __post_init__(self) -> None:
        if max(self.tokens.bos, self.tokens.eos, self.tokens.boi, self.tokens.eoi) >= self.llm.vocab:
            raise ValueError(f"special tokens must lie below `llm.vocab` {self.llm.vocab}")
        if self.vae_pictures.stride != self.pixels_per_token or self.vit_pictures.stride != self.vit.patch:
            raise ValueError("picture strides must be the ViT's patch and the pixels per latent token")

    @property
    def latent_channels(self) -> int:
        """Width of one latent token (64 in the published model)."""
        return self.latent_patch**2 * self.vae.latent_channels

    @property
    def pixels_per_token(self) -> int:
        """Pixels along a latent token's side (16 in the published model)."""
        return self.latent_patch * self.vae.downsample

    def latent_grid(self, width: int, height: int) -> tuple[int, int]:
        """(rows, columns) of latent tokens of a picture of this size in pixels."""
        step = self.pixels_per_token
        if width % step or height % step or max(width, height) > self.latent_side * step:
            raise ValueError(f"picture sides must be multiples of {step}, at most {self.latent_side * step} pixels")
        return height // step, width // step

    @classmethod
    def from_json(cls, document: dict) -> Self:
        """The inverse of `dataclasses.asdict`; refuses unknown and missing keys."""
        parts = {
            "llm": LlmConfig,
            "vit": SiglipConfig,
            "tokens": SpecialTokens,
            "vit_pictures": PictureRules,
            "vae_pictures": PictureRules,
        }
        values = {key: parts[key](**value) if key in parts else value for key, value in document.items()}
        if "vae" in values:
            vae = values["vae"]
            values["vae"] = VaeConfig(**{**vae, "multipliers": tuple(vae.get("multipliers", ()))})
        return cls(**values)


BAGEL_7B_MOT = BagelConfig(
    llm=LlmConfig(width=3584, hidden=18944, layers=28, heads=28, kv_heads=4, head_dim=128, vocab=152064),
    vit=SiglipConfig(width=1152, hidden=4304, layers=26, heads=16, patch=14, side=70),
    vae=VaeConfig(channels=128, multipliers=(1, 2, 4, 4), blocks=2, latent_channels=16, shift=0.1159, scale=0.3611),
    tokens=SpecialTokens(bos=151644, eos=151645, boi=151652, eoi=151653),
    vit_pictures=PictureRules(min_side=224, max_side=980, stride=14),
    vae_pictures=PictureRules(min_side=512, max_side=1024, stride=16),
    latent_side=64,
)
"""BAGEL-7B-MoT as published: 14.6 billion parameters."""


class Bagel(nn.Module):
    """Everything but the autoencoder. Rows of one kind in, rows out; nothing is kept between calls."""

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
        """Lay out weights so that fewer products read them, once they are loaded; it freezes them."""
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

        `attend` keeps the pictures apart; a list of their lengths in rows does too.
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
