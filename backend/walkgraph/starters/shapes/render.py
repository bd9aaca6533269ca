"""Scenes to antialiased pictures of 64x64, in batches, on any device: analytic distances, no loops over pixels.

Shape letters: B pictures, K items of a picture, S side in pixels.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.starters.shapes.scenes import MOST_ITEMS, Scene

SIDE = 64
CELL = SIDE / 3
JITTER = 1.0
"""The most pixels of an item's offset from the middle of its cell, along each axis."""
PALETTE = ((220, 40, 40), (40, 170, 70), (45, 90, 220), (245, 215, 50), (150, 60, 180), (245, 140, 30))
GROUNDS = ((255, 255, 255), (16, 16, 16), (150, 150, 150))
RADII = (4.5, 7.25)
"""Radius of a circle of each size; the other shapes cover about the same area."""
_CORNERS = (0, 4, 3, 5)
_OUTER = (1.0, 1.2533, 1.4, 1.4)
"""Corner radius of each shape, in circle radii."""
_INNER = (1.0, math.cos(math.pi / 4), 0.5, 0.5)
"""Radius half-way between two corners, in corner radii."""
_TURN = (0.0, math.pi / 4, math.pi / 2, math.pi / 2)
_DROP = (0.0, 0.0, 0.25, 0.05)
"""Distance of a shape's middle below its box's, in corner radii."""

ABSENT = (-1, 0, 0, 0)


class _Tables(NamedTuple):
    """The constants above as float32 tensors on one device, as creating them anew would wait for the device each
    time."""

    outlines: Tensor
    """`[5, shapes]`: corners, outer, inner, turn, drop."""
    radii: Tensor
    inks: Tensor
    grounds: Tensor


@cache
def _tables(device: torch.device) -> _Tables:
    outlines = torch.tensor([_CORNERS, _OUTER, _INNER, _TURN, _DROP], device=device)
    colours = (torch.tensor(table, device=device) / 255 for table in (PALETTE, GROUNDS))
    return _Tables(outlines, torch.tensor(RADII, device=device), *colours)


def rows(scenes: list[Scene]) -> tuple[Tensor, Tensor]:
    """int64 items `[B, K, 4]` (shape -1 where absent) and backgrounds `[B]`."""
    items = [[*map(tuple, s.items), *[ABSENT] * (MOST_ITEMS - len(s.items))] for s in scenes]
    return torch.tensor(items), torch.tensor([s.background for s in scenes])


def offsets(count: int, seed: int) -> Tensor:
    """float32 `[count, K, 2]` (x, y) in pixels."""
    uniform = torch.rand(count, MOST_ITEMS, 2, generator=torch.Generator().manual_seed(seed))
    return (uniform * 2 - 1) * JITTER


def draw(scenes: list[Scene], seed: int) -> Tensor:
    """uint8 `[B, S, S, 3]`."""
    items, backgrounds = rows(scenes)
    return render(items, backgrounds, offsets(len(scenes), seed)).mul(255).round().byte().movedim(1, -1)


def render(items: Tensor, backgrounds: Tensor, shifts: Tensor) -> Tensor:
    """items int64 `[B, K, 4]`, backgrounds `[B]`, shifts `[B, K, 2]` -> float32 `[B, 3, S, S]` in [0, 1], in multiples
    of 1/255."""
    shape, colour, size, cell = items.unbind(-1)
    middle = torch.stack([cell % 3, cell // 3], -1) * CELL + CELL / 2 + shifts
    cover = coverage(shape.clamp(min=0), size, middle) * (shape >= 0)[..., None, None]
    tables = _tables(items.device)
    picture = tables.grounds[backgrounds][..., None, None]
    inks = tables.inks[colour][..., None, None]
    for k in range(items.shape[1]):
        picture = picture + cover[:, k, None] * (inks[:, k] - picture)
    return picture.mul(255).round().div(255).expand(-1, -1, SIDE, SIDE)


def coverage(shape: Tensor, size: Tensor, middle: Tensor) -> Tensor:
    """The share of each pixel that a shape covers: shape, size int64 `[...]`, middle `[..., 2]` (x, y) -> `[..., S,
    S]`."""
    device = shape.device
    tables = _tables(device)
    corners, outer, inner, turn, drop = (table[..., None, None] for table in tables.outlines[:, shape])
    radius = tables.radii[size][..., None, None]
    centre = torch.arange(SIDE, device=device) + 0.5
    dx = centre - middle[..., 0, None, None]
    dy = centre[:, None] - middle[..., 1, None, None] - drop * outer * radius
    length, angle = torch.hypot(dx, dy), torch.atan2(-dy, dx)
    # Fold every corner onto the x axis: the outline is then one line from the corner to half-way to the next corner.
    sector = 2 * math.pi / corners.clamp(min=1)
    folded = (torch.remainder(angle - turn + sector / 2, sector) - sector / 2).abs()
    half = sector / 2
    ex, ey = inner * torch.cos(half) - 1, inner * torch.sin(half)
    line = ey * (length * torch.cos(folded) / (outer * radius) - 1) - ex * length * torch.sin(folded) / (outer * radius)
    distance = torch.where(corners == 0, length - radius, line * outer * radius / torch.hypot(ex, ey))
    return (0.5 - distance).clamp(0, 1)
