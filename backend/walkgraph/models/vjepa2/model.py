"""V-JEPA 2-AC: an encoder that sees one frame, and a predictor of the next frame's features from actions and poses.

Modules and parameters have the public checkpoint's names. This is plain torch with gradients, used to train a model
(`walkgraph.models.vjepa2.steps` serves it) and as the reference for the fast forms:

    model = Vjepa2(config)                            # or vjepa2_config(name) of `presets` for the config
    h = model.encoder(pixels)                         # pixels [B, 3, h, w] in [-1, 1] -> [B, n, d]
    h = model.encoder(pixels, keep)                   # keep int64 [B, m]: patches that are seen alone -> [B, m, d]
    z = normed(h)                                     # what travels: features of mean 0 and deviation 1
    p = model.predictor(z, actions, poses)            # [B, T, n, d], [B, T, 7], [B, T, 7] -> [B, T, n, d]
    next = normed(p)                                  # p[:, t] predicts z[:, t + 1]; compare after `normed`

A rollout by hand feeds `normed(p[:, -1])` back as the next frame with the next action and pose. Patches are numbered
row by row. `state_dict()` is what a weights folder holds as `encoder.safetensors` and `predictor.safetensors`.

Shape letters: B pictures or sequences, T frames, n patches of a frame, d width of the encoder, L tokens, W width, H
heads, D head dim.
"""

import math
from functools import cache
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.layers.attention.dense_attention import dense_attention
from walkgraph.layers.encoder import EncoderWeights
from walkgraph.models.vjepa2.config import CONDITIONS, TransformerConfig, Vjepa2Config
from walkgraph.models.vjepa2.positions import Angles, GridRope, turn

MEAN = (0.485, 0.456, 0.406)
"""Mean of the pictures that encoders are trained on: red, green and blue in [0, 1]."""
DEVIATION = (0.229, 0.224, 0.225)
TUBELET = 2
"""Frames of a patch; a single frame is used twice."""
ACTION = 7
"""Numbers of an action and of a pose: shift or position, turn or angles, grip."""
FEATURE_EPS = 1e-5
"""Epsilon of `normed`."""


@cache
def spread(device: torch.device) -> tuple[Tensor, Tensor]:
    """`MEAN` and `DEVIATION`, float32 `[3, 1, 1]`, copied to a device once."""
    with torch.inference_mode(mode=False):
        mean, deviation = (torch.tensor(numbers, device=device)[:, None, None] for numbers in (MEAN, DEVIATION))
    return mean, deviation


def normed(features: Tensor) -> Tensor:
    """`[..., d]` with mean 0 and deviation 1: features are predicted, compared and sent in this form."""
    return F.layer_norm(features, features.shape[-1:], eps=FEATURE_EPS)


class Vjepa2Attention(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.proj = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        """x `[B, L, W]`, cos and sin float32 `[..., L, D]`, mask bool `[L, L]` -> `[B, L, W]`."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
        return self.proj(dense_attention(turn(q, cos, sin), turn(k, cos, sin), v, mask).flatten(2))


class Vjepa2MLP(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.width, config.hidden)
        self.fc2 = nn.Linear(config.hidden, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Vjepa2Block(nn.Module):
    def __init__(self, config: TransformerConfig, eps: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps)
        self.attn = Vjepa2Attention(config)
        self.norm2 = nn.LayerNorm(config.width, eps)
        self.mlp = Vjepa2MLP(config)

    def weights(self) -> EncoderWeights:
        qkv, attn, mlp = (self.attn.qkv.weight, self.attn.qkv.bias), self.attn, self.mlp
        return EncoderWeights(self.norm1, qkv, attn.heads, attn.proj, self.norm2, mlp.fc1, mlp.fc2, "gelu")

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.attn(self.norm1(x), cos, sin, mask)
        return x + self.mlp(self.norm2(x))


class Vjepa2Patches(nn.Module):
    def __init__(self, config: Vjepa2Config) -> None:
        super().__init__()
        size = (TUBELET, config.patch, config.patch)
        self.proj = nn.Conv3d(3, config.encoder.width, kernel_size=size, stride=size)

    def forward(self, pixels: Tensor) -> Tensor:
        """`[B, 3, h, w]` -> `[B, n, d]`: each picture counted `TUBELET` times, in one product."""
        weight = self.proj.weight.sum(2)
        return F.conv2d(pixels, weight, self.proj.bias, stride=weight.shape[-1]).flatten(2).transpose(1, 2)


class _OfFrames(nn.Module):
    def __init__(self, config: Vjepa2Config, rope: GridRope) -> None:
        super().__init__()
        self.config, self._rope = config, rope

    def angles(self, device: torch.device) -> Angles:
        """Angles of the tokens of a picture with the config's side; conditions turn by their frame only."""
        side = self.config.side
        return self._rope.angles((side, side), device)


class Vjepa2Encoder(_OfFrames):
    def __init__(self, config: Vjepa2Config) -> None:
        super().__init__(config, GridRope(config.encoder.head_dim))
        self.patch_embed = Vjepa2Patches(config)
        self.blocks = nn.ModuleList(Vjepa2Block(config.encoder, config.norm_eps) for _ in range(config.encoder.layers))
        self.norm = nn.LayerNorm(config.encoder.width, config.norm_eps)
        _draw(self, cast(list[Vjepa2Block], list(self.blocks)))

    def forward(self, pixels: Tensor, keep: Tensor | None = None) -> Tensor:
        """pixels `[B, 3, h, w]` in [-1, 1], sides multiples of a patch -> `[B, n, d]`, before `normed`.

        `keep`: int64 `[B, m]`, the patches that are seen, in the order of the answer.
        """
        patch, device = self.config.patch, pixels.device
        x = self.patch_embed(_standard(pixels).to(self.norm.weight.dtype))
        grid = self._rope.angles((pixels.shape[2] // patch, pixels.shape[3] // patch), device)
        cos, sin = grid.at(torch.zeros((), device=device))
        if keep is not None:
            x = x.gather(1, keep[..., None].expand(-1, -1, x.shape[-1]))
            cos, sin = cos[keep], sin[keep]
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.norm(x)


class Vjepa2Predictor(_OfFrames):
    def __init__(self, config: Vjepa2Config) -> None:
        super().__init__(config, GridRope(config.predictor.head_dim, before=CONDITIONS))
        sizes, outer = config.predictor, config.encoder.width
        self.predictor_embed = nn.Linear(outer, sizes.width)
        self.action_encoder = nn.Linear(ACTION, sizes.width)
        self.state_encoder = nn.Linear(ACTION, sizes.width)
        # Part of the public checkpoint; nothing reads it.
        self.extrinsics_encoder = nn.Linear(ACTION - 1, sizes.width)
        self.predictor_blocks = nn.ModuleList(Vjepa2Block(sizes, config.norm_eps) for _ in range(sizes.layers))
        self.predictor_norm = nn.LayerNorm(sizes.width, config.norm_eps)
        self.predictor_proj = nn.Linear(sizes.width, outer)
        _draw(self, cast(list[Vjepa2Block], list(self.predictor_blocks)))

    def forward(self, features: Tensor, actions: Tensor, poses: Tensor) -> Tensor:
        """features `[B, T, n, d]`, normed; actions and poses `[B, T, 7]` -> `[B, T, n, d]`, before `normed`.

        Every token of a frame attends its whole frame and the earlier ones."""
        count = features.shape[1]
        conditions = torch.stack([self.action_encoder(actions), self.state_encoder(poses)], 2)
        x = torch.cat([conditions, self.predictor_embed(features)], 2).flatten(1, 2)
        cos, sin = self.angles(x.device).at(torch.arange(count, device=x.device))
        frame = torch.arange(count, device=x.device).repeat_interleave(self.config.tokens)
        mask = frame[:, None] >= frame if count > 1 else None
        for block in self.predictor_blocks:
            x = block(x, cos.flatten(0, 1), sin.flatten(0, 1), mask)
        patches = x.unflatten(1, (count, -1))[:, :, CONDITIONS:]
        return self.predictor_proj(self.predictor_norm(patches))


class Vjepa2(nn.Module):
    def __init__(self, config: Vjepa2Config) -> None:
        super().__init__()
        self.encoder = Vjepa2Encoder(config)
        self.predictor = Vjepa2Predictor(config)


def _standard(pixels: Tensor) -> Tensor:
    """`[B, 3, h, w]` in [-1, 1] -> float32, standardized by the mean and deviation of the training pictures."""
    mean, deviation = spread(pixels.device)
    return ((pixels.float() + 1) / 2 - mean) / deviation


def _draw(module: nn.Module, blocks: list[Vjepa2Block]) -> None:
    """Initialize for training; deeper layers add less."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv3d):
            nn.init.trunc_normal_(part.weight, std=0.02)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    with torch.no_grad():
        for depth, block in enumerate(blocks, 1):
            for last in (block.attn.proj, block.mlp.fc2):
                # A quotient of a tensor without memory would import sympy, which takes seconds.
                last.weight.mul_(1 / math.sqrt(2 * depth))
