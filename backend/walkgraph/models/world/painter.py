"""From features to pixels and places: shows and measures a world model's imagination.

Shape letters: B pictures, n = SIDE * SIDE / 64 patches, d width of the features, c channels.
"""

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.models.world.scene import Scene

GRID = 8
"""Patches along a row and along a column."""
_MEANS = (0.5, 0.5, 0.5, 0.5, 0.5, 0.0, 0.0)
_DEVIATIONS = (0.25, 0.25, 0.29, 0.25, 0.25, 0.7, 0.7)
READ = len(_MEANS)


@dataclass(frozen=True, kw_only=True)
class PainterConfig:
    features: int = 192
    channels: tuple[int, ...] = (96, 64, 48, 24)
    """Channels at 8, 16, 32 and 64 pixels per side."""

    @classmethod
    def from_json(cls, values: dict[str, object]) -> Self:
        """Read a config. Raises TypeError or ValueError for unknown or malformed fields."""
        known = {field.name for field in dataclasses.fields(cls)}
        if values.keys() - known:
            raise ValueError(f"unknown {sorted(values.keys() - known)}")
        features, channels = values["features"], values["channels"]
        if not isinstance(features, int) or not isinstance(channels, list) or len(channels) != 4:
            raise ValueError("`features` is a number and `channels` a list of four")
        return cls(features=features, channels=tuple(int(c) for c in channels))


class Reading(NamedTuple):
    """The contents of a scene as read from features, in the scene's units."""

    place: Tensor
    """`[B, 2]`: x and y of the shape."""
    grip: Tensor
    """`[B]`"""
    arrow: Tensor
    """`[B, 2]`"""
    heading: Tensor
    """`[B, 2]`: components along x and y."""


class _Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(F.gelu(self.conv1(F.gelu(x))))


class Painter(nn.Module):
    """Pixels by convolutions; places by one linear map of the features' mean."""

    def __init__(self, config: PainterConfig) -> None:
        super().__init__()
        self.config = config
        first, *others = config.channels
        self.enter = nn.Conv2d(config.features, first, 1)
        self.first = _Block(first)
        sizes = zip(config.channels[:-1], others, strict=True)
        self.widen = nn.ModuleList(nn.Conv2d(before, 4 * after, 1) for before, after in sizes)
        self.blocks = nn.ModuleList(_Block(after) for after in others)
        self.leave = nn.Conv2d(others[-1], 3, 3, padding=1)
        self.read = nn.Linear(config.features, READ)

    def forward(self, features: Tensor) -> Tensor:
        """normed features `[B, n, d]` -> pixels `[B, 3, H, W]` in about [-1, 1]."""
        x = self.first(self.enter(features.transpose(1, 2).unflatten(2, (GRID, GRID))))
        for widen, block in zip(self.widen, self.blocks, strict=True):
            x = block(F.pixel_shuffle(widen(x), 2))
        return self.leave(F.gelu(x))

    def reading(self, features: Tensor) -> Reading:
        """normed features `[B, n, d]` -> the scene's contents."""
        return reading(self.read(features.mean(-2)))


@cache
def _spread(device: torch.device) -> tuple[Tensor, Tensor]:
    """Means and deviations, made once per device; usable in training too."""
    with torch.inference_mode(mode=False):
        return torch.tensor(_MEANS, device=device), torch.tensor(_DEVIATIONS, device=device)


def reading(numbers: Tensor) -> Reading:
    """Standardized numbers `[B, READ]` -> the scene's contents."""
    means, deviations = _spread(numbers.device)
    values = numbers.float() * deviations + means
    return Reading(values[..., :2], values[..., 2], values[..., 3:5], values[..., 5:7])


def facts(scene: Scene) -> Tensor:
    """Scenes `[B]` -> the standardized numbers `[B, READ]` that `Painter.read` should give."""
    down = scene.axis > 0.5
    nothing = torch.zeros_like(scene.heading)
    heading = [torch.where(down, nothing, scene.heading), torch.where(down, scene.heading, nothing)]
    values = torch.cat([scene.place, scene.grip[..., None], scene.arrow(), torch.stack(heading, -1)], -1)
    means, deviations = _spread(values.device)
    return (values - means) / deviations
