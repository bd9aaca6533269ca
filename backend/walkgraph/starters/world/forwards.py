"""The model's forwards as training makes them, thousands of times: their tables stay on the device, where the model's
own forwards make them anew and wait for it.

Shape letters: B pictures or sequences, T frames, n patches, m of them seen, d width, L tokens.
"""

from typing import cast

import torch
from torch import Tensor, nn

from walkgraph.networks.vjepa2 import CONDITIONS, DEVIATION, MEAN, Vjepa2Block, Vjepa2Encoder, Vjepa2Predictor
from walkgraph.networks.vjepa2_positions import angles


class Seeing(nn.Module):
    """As `encoder(pixels, keep)`."""

    def __init__(self, encoder: Vjepa2Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        on = encoder.norm.weight.device
        side = encoder.config.side
        cos, sin = angles(encoder.config.encoder.head_dim, (side, side)).at(torch.zeros(()))
        tables = {"cos": cos, "sin": sin, "mean": torch.tensor(MEAN), "deviation": torch.tensor(DEVIATION)}
        for name, table in tables.items():
            self.register_buffer(name, table.to(on), persistent=False)

    def forward(self, pixels: Tensor, keep: Tensor | None = None) -> Tensor:
        """pixels `[B, 3, h, w]`, keep int64 `[B, m]` -> `[B, n or m, d]`, before `normed`."""
        mean, deviation = (self.get_buffer(name)[:, None, None] for name in ("mean", "deviation"))
        x = self.encoder.patch_embed(((pixels + 1) / 2 - mean) / deviation)
        cos, sin = self.get_buffer("cos"), self.get_buffer("sin")
        if keep is not None:
            x = x.gather(1, keep[..., None].expand(-1, -1, x.shape[-1]))
            cos, sin = cos[keep], sin[keep]
        for block in self.encoder.blocks:
            x = block(x, cos, sin)
        return self.encoder.norm(x)


class Foreseeing(nn.Module):
    """As `predictor(frames, actions, poses)`, for so many frames at most."""

    def __init__(self, predictor: Vjepa2Predictor, most: int) -> None:
        super().__init__()
        self.predictor, self._tokens = predictor, predictor.config.tokens
        on = predictor.predictor_norm.weight.device
        cos, sin = predictor.angles().at(torch.arange(most))
        frame = torch.arange(most).repeat_interleave(self._tokens)
        tables = {"cos": cos.flatten(0, 1), "sin": sin.flatten(0, 1), "mask": frame[:, None] >= frame}
        for name, table in tables.items():
            self.register_buffer(name, table.to(on), persistent=False)

    def forward(self, frames: Tensor, actions: Tensor, poses: Tensor) -> Tensor:
        """frames `[B, T, n, d]`, actions and poses `[B, T, 7]` -> `[B, T, n, d]`, before `normed`."""
        count, model = frames.shape[1], self.predictor
        conditions = torch.stack([model.action_encoder(actions), model.state_encoder(poses)], 2)
        x = torch.cat([conditions, model.predictor_embed(frames)], 2).flatten(1, 2)
        rows = count * self._tokens
        cos, sin = (self.get_buffer(name)[:rows] for name in ("cos", "sin"))
        mask = self.get_buffer("mask")[:rows, :rows].contiguous()
        for block in cast(list[Vjepa2Block], model.predictor_blocks):
            x = block(x, cos, sin, mask)
        patches = x.unflatten(1, (count, self._tokens))[:, :, CONDITIONS:]
        return model.predictor_proj(model.predictor_norm(patches))
