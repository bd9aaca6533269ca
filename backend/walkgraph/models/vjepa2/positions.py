"""Rotary positions in three directions: the frame, the row and the column each turn a third of a head.

The published weights were trained with frequencies laid out twice, one after the other, while neighbouring numbers
rotate as a pair, so the two numbers of a pair rotate by different angles. This is kept, as the weights depend on it.
Everything is computed in float32.

Shape letters: n tokens of a frame, D head dim.
"""

from typing import NamedTuple

import torch
from torch import Tensor

_THETA = 10000.0


class Angles(NamedTuple):
    """Radians of every number of a head. Those of a token are `frame index * frame + places[token]`; in each place one
    of the two is 0."""

    frame: Tensor
    """float32 `[D]`: per frame."""
    places: Tensor
    """float32 `[n, D]`: by the token's row and column."""

    def at(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """frames `[...]` -> cosines and sines, float32 `[..., n, D]`."""
        radians = frames[..., None, None].float() * self.frame + self.places
        return radians.cos(), radians.sin()

    def to(self, device: torch.device | str) -> "Angles":
        return Angles(self.frame.to(device), self.places.to(device))


class GridRope:
    """`angles` of one model, made once per device and side, as copying them in a forward would make it wait."""

    def __init__(self, head_dim: int, *, before: int = 0) -> None:
        self._head_dim, self._before = head_dim, before
        self._made: dict[tuple[torch.device, tuple[int, int]], Angles] = {}

    def angles(self, side: tuple[int, int], device: torch.device) -> Angles:
        """The angles, on the device."""
        key = device, side
        if key not in self._made:
            self._made[key] = angles(self._head_dim, side, before=self._before).to(device)
        return self._made[key]


def angles(head_dim: int, side: tuple[int, int], *, before: int = 0) -> Angles:
    """Angles of a frame of `side` rows and columns of tokens, row by row, after `before` tokens that turn by their
    frame only.

    Raises ValueError for a head of fewer than 6 numbers.
    """
    part = 2 * (head_dim // 3 // 2)
    if not part:
        raise ValueError(f"a head of {head_dim} numbers has no room for three directions; 6 are needed")
    on = torch.device("cpu")
    exponents = torch.arange(part // 2, dtype=torch.float32, device=on) / (part / 2)
    speeds = (1.0 / _THETA**exponents).repeat(2)
    height, width = side
    frame = torch.zeros(head_dim, device=on)
    frame[:part] = speeds
    places = torch.zeros(before + height * width, head_dim, device=on)
    cells = places[before:].view(height, width, head_dim)
    cells[..., part : 2 * part] = torch.arange(height, device=on)[:, None, None] * speeds
    cells[..., 2 * part : 3 * part] = torch.arange(width, device=on)[None, :, None] * speeds
    return Angles(frame, places)


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x `[..., H, D]`, cos and sin float32 `[..., 1, D]` -> like x: y[2i] = x[2i] cos[2i] - x[2i+1] sin[2i],
    y[2i+1] = x[2i+1] cos[2i+1] + x[2i] sin[2i+1]."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    swapped = torch.stack((-odd, even), -1).flatten(-2)
    return (x * cos + swapped * sin).to(x.dtype)
