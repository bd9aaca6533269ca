"""Scenes to antialiased pictures by analytic distances, in batches, on any device.

Shape letters: B scenes (any leading axes), H = W = SIDE pixels.
"""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.models.world.scene import RADIUS, SIDE, WALLS, Scene

GROUND = (22, 26, 40)
WALL = (120, 130, 158)
ARROW = (244, 90, 160)
GRIPS = ((70, 130, 255), (80, 215, 130), (255, 150, 45))
"""The shape's colour when its grip is 0, a half and 1."""
_NOSE, _TAIL, _WING = 4.5, 3.5, 3.5
"""Lengths of the arrow in pixels from its middle."""
_SHARE = {"disc": 1.0, "block": 0.88, "diamond": 1.0}
"""Share of the box's half side that an outline of each kind takes."""


class _Tables(NamedTuple):
    """Made once per device, as making them anew would wait for it."""

    ground: Tensor
    wall: Tensor
    arrow: Tensor
    grips: Tensor
    centre: Tensor


@cache
def _tables(device: torch.device) -> _Tables:
    ground, wall, arrow, grips = (torch.tensor(ink, device=device) / 255 for ink in (GROUND, WALL, ARROW, GRIPS))
    return _Tables(ground, wall, arrow, grips, torch.arange(SIDE, device=device) + 0.5)


def picture(scene: Scene) -> Tensor:
    """float32 `[B, 3, H, W]` in [-1, 1], rounded to whole levels of 8 bits."""
    tables = _tables(scene.place.device)
    image = tables.ground[:, None, None]
    for k in range(WALLS):
        image = _laid(image, tables.wall, _bar(scene.walls[..., k, :], tables.centre))
    image = _laid(image, _ink(scene.grip, tables.grips), _shape(scene, tables.centre))
    image = _laid(image, tables.arrow, _arrow(scene, tables.centre))
    return image.mul(255).round().div(127.5).sub(1)


def _laid(image: Tensor, ink: Tensor, cover: Tensor) -> Tensor:
    """Blend ink `[B, 3]` onto an image by its cover `[B, H, W]`."""
    return image + cover[..., None, :, :] * (ink[..., None, None] - image)


def _ink(grip: Tensor, stops: Tensor) -> Tensor:
    """`[B]` -> `[B, 3]`"""
    at = grip[..., None] * 2
    return torch.where(at < 1, stops[0] + at * (stops[1] - stops[0]), stops[1] + (at - 1) * (stops[2] - stops[1]))


def _bar(wall: Tensor, centre: Tensor) -> Tensor:
    """wall `[B, 4]` -> the exact share of each pixel that it covers, `[B, H, W]`."""
    left, top, right, bottom = (wall * SIDE)[..., None].unbind(-2)
    wide = (torch.minimum(right, centre + 0.5) - torch.maximum(left, centre - 0.5)).clamp(min=0)
    tall = (torch.minimum(bottom, centre + 0.5) - torch.maximum(top, centre - 0.5)).clamp(min=0)
    return tall[..., :, None] * wide[..., None, :]


def _offsets(place: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    """Pixels right of and below a place `[B, 2]`: `[B, 1, W]`, `[B, H, 1]`."""
    x, y = (place * SIDE)[..., None].unbind(-2)
    return (centre - x)[..., None, :], (centre - y)[..., :, None]


def _shape(scene: Scene, centre: Tensor) -> Tensor:
    dx, dy = (part.abs() for part in _offsets(scene.place, centre))
    kind, radius = scene.kind[..., None, None], RADIUS * SIDE
    disc = torch.hypot(dx, dy) - radius * _SHARE["disc"]
    block = torch.maximum(dx, dy) - radius * _SHARE["block"]
    diamond = (dx + dy - radius * _SHARE["diamond"] * 1.2) * 0.7071
    distance = torch.where(kind < 0.5, disc, torch.where(kind < 1.5, block, diamond))
    return (0.5 - distance).clamp(0, 1)


def _arrow(scene: Scene, centre: Tensor) -> Tensor:
    """A triangle whose nose points where it flies."""
    dx, dy = _offsets(scene.arrow(), centre)
    down, heading = scene.axis[..., None, None] > 0.5, scene.heading[..., None, None]
    ahead = heading * torch.where(down, dy, dx)
    aside = torch.where(down, dx, dy).abs()
    length = _NOSE + _TAIL
    edge = (aside * length - (_NOSE - ahead) * _WING) / (length**2 + _WING**2) ** 0.5
    return (0.5 - torch.maximum(edge, -ahead - _TAIL)).clamp(0, 1)
