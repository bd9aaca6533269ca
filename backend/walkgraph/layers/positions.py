"""Fixed sinusoids: grid positions of image tokens and the time of a flow step."""

import math
from typing import cast

import torch
from torch import Tensor, nn


def sincos(positions: Tensor, width: int) -> Tensor:
    """float64 `[n]` -> `[n, width]`: sines of the first half, cosines of the second, periods up to 10,000 turns."""
    rates = 10_000.0 ** -(torch.arange(width // 2, dtype=torch.float64, device=positions.device) / (width // 2))
    angles = positions.double()[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], 1)


def sincos_grid(side: int, width: int) -> Tensor:
    """float32 `[side * side, width]`, row-major: the first half of the width encodes the column, the second the row."""
    cells = torch.arange(side * side, device="cpu")
    columns, rows = cells % side, cells // side
    return torch.cat([sincos(columns, width // 2), sincos(rows, width // 2)], 1).float()


class GridPositions(nn.Module):
    """A frozen table of `side * side` grid positions; position id = row * side + column."""

    def __init__(self, side: int, width: int) -> None:
        super().__init__()
        table = sincos_grid(side, width).to(torch.get_default_device())
        self.pos_embed = nn.Parameter(table, requires_grad=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.pos_embed[ids]


class TimeEmbedding(nn.Module):
    """Time in [0, 1], unscaled -> `[n, width]` through 256 sinusoids (cosines first) and a two-layer MLP."""

    frequencies = 256

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(self.frequencies, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, t: Tensor) -> Tensor:
        into = cast("nn.Linear", self.mlp[0])
        return self.mlp(time_sinusoid(t, self.frequencies).to(into.weight.dtype))


def time_sinusoid(t: Tensor, width: int) -> Tensor:
    """t `[n]` -> float32 `[n, width]`: cosines, then sines, of t times 10,000^(-i / (width/2))."""
    half = width // 2
    rates = torch.exp(-math.log(10_000.0) / half * torch.arange(half, dtype=torch.float32, device=t.device))
    angles = t.float()[:, None] * rates
    return torch.cat([angles.cos(), angles.sin()], 1)
