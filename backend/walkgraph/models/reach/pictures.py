"""Pictures of the arm's world, drawn in batches on any device from distances to outlines: antialiased, no loops over
pixels.

Shape letters: B pictures, S side in pixels.
"""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.models.reach import scene as world

SIDE = 64
"""Side in pixels of the pictures that the policy sees."""
_INKS = (
    (222, 52, 52),
    (46, 168, 84),
    (52, 104, 228),
    (244, 198, 40),
    (148, 70, 190),
    (242, 130, 36),
)
"""Inks of the targets, in the order of their colours."""
_GROUND, _FLOOR, _REACH = (244, 243, 239), (214, 212, 205), (232, 230, 224)
_LINKS = ((62, 70, 84), (104, 114, 130))
_JOINT, _TIP = (30, 34, 42), (250, 250, 250)
_BALL, _SHINE = 0.085, 0.03
_WIDE = (0.055, 0.042)
"""Half the width of each link, in units of the world."""


class _Tables(NamedTuple):
    """Colours as float32 in [0, 1], on one device."""

    inks: Tensor
    plain: Tensor
    """ground, floor, reach, first link, second link, joint, tip `[7, 3]`"""


@cache
def _tables(device: torch.device) -> _Tables:
    plain = (_GROUND, _FLOOR, _REACH, *_LINKS, _JOINT, _TIP)
    return _Tables(*(torch.tensor(colours, device=device) / 255 for colours in (_INKS, plain)))


@cache
def _grid(device: torch.device, side: int) -> tuple[Tensor, Tensor]:
    """x `[1, 1, S]` and y `[1, S, 1]` of the pixels' middles."""
    middle = (torch.arange(side, device=device) + 0.5) * (2 / side) - 1
    return middle[None, None], -middle[None, :, None]


def picture(state: Tensor, side: int = SIDE) -> Tensor:
    """Scenes `[B, WIDTH]` -> float32 `[B, 3, S, S]` in [-1, 1]."""
    x, y = _grid(state.device, side)
    inks, (ground, floor, reach, *links, joint, white) = _tables(state.device)
    canvas = _Canvas(x, y, ground.view(1, 3, 1, 1).expand(len(state), 3, side, side))
    joints = state[:, :2]
    base = torch.tensor(world.BASE, device=state.device).expand(len(state), 2)
    elbow, tip = world.elbow(joints), world.tip(joints)
    canvas.ring(base[:1], sum(world.LINKS), 0.012, reach)
    canvas.lay(y - (world.BASE[1] - 0.1), floor)
    for target in world.targets(state).unbind(1):
        there, ink = target[:, 0] >= 0, inks[target[:, 0].long().clamp(min=0)]
        canvas.disc(target[:, 1:], _BALL, ink, there)
        canvas.disc(target[:, 1:] + _SHINE, _SHINE, 0.5 + 0.5 * ink, there)
    canvas.disc(base, 0.12, joint)
    canvas.link(base, elbow, _WIDE[0], links[0])
    canvas.link(elbow, tip, _WIDE[1], links[1])
    canvas.disc(elbow, 0.06, joint)
    canvas.disc(base, 0.05, links[1])
    canvas.disc(tip, 0.055, joint)
    canvas.disc(tip, 0.025, white)
    return canvas.colours * 2 - 1


class _Canvas:
    """Each drawing covers the earlier ones. Lengths are the world's; colours are `[3]` or `[B, 3]`."""

    def __init__(self, x: Tensor, y: Tensor, colours: Tensor) -> None:
        self._x, self._y, self.colours = x, y, colours
        self._sharp = colours.shape[-1] / 2

    def lay(self, distance: Tensor, ink: Tensor, there: Tensor | None = None) -> None:
        """distance `[B, S, S]` to an outline, negative inside; there bool `[B]`: true where it is drawn at all."""
        cover = (0.5 - distance * self._sharp).clamp(0, 1)
        if there is not None:
            cover = cover * there[:, None, None]
        self.colours = torch.lerp(self.colours, ink.view(-1, 3, 1, 1), cover[:, None])

    def disc(self, middle: Tensor, radius: float, ink: Tensor, there: Tensor | None = None) -> None:
        self.lay(self._from(middle) - radius, ink, there)

    def ring(self, middle: Tensor, radius: float, half: float, ink: Tensor) -> None:
        self.lay((self._from(middle) - radius).abs() - half, ink)

    def link(self, start: Tensor, end: Tensor, half: float, ink: Tensor) -> None:
        """A line with round ends, from `start` to `end` `[B, 2]`."""
        way = end - start
        dx, dy = self._x - start[:, 0, None, None], self._y - start[:, 1, None, None]
        along = (dx * way[:, 0, None, None] + dy * way[:, 1, None, None]) / way.square().sum(1)[:, None, None]
        along = along.clamp(0, 1)
        self.lay(torch.hypot(dx - along * way[:, 0, None, None], dy - along * way[:, 1, None, None]) - half, ink)

    def _from(self, middle: Tensor) -> Tensor:
        return torch.hypot(self._x - middle[:, 0, None, None], self._y - middle[:, 1, None, None])
