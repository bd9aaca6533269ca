"""The arm's pictures against a naive drawing: each pixel the mean of many points that lie in a shape or don't."""

import math

import numpy as np
import pytest
import torch

from walkgraph.models.reach import pictures
from walkgraph.models.reach import scene as world

torch.set_num_threads(1)
FINE = 6


def in_disc(x: np.ndarray, y: np.ndarray, middle: tuple[float, float], radius: float) -> np.ndarray:
    return (x - middle[0]) ** 2 + (y - middle[1]) ** 2 <= radius**2


def in_link(
    x: np.ndarray, y: np.ndarray, start: tuple[float, float], end: tuple[float, float], half: float
) -> np.ndarray:
    points = [(start[0] + (end[0] - start[0]) * i / 200, start[1] + (end[1] - start[1]) * i / 200) for i in range(201)]
    return np.any([in_disc(x, y, point, half) for point in points], 0)


def naive(state: torch.Tensor, side: int) -> np.ndarray:
    """`[S, S, 3]` in 0..255: one colour for each point, points averaged."""
    axis = (np.arange(side * FINE) + 0.5) / (side * FINE) * 2 - 1
    x, y = np.meshgrid(axis, -axis)
    first, second = state[:2].tolist()
    base = world.BASE
    elbow = (base[0] + world.LINKS[0] * math.cos(first), base[1] + world.LINKS[0] * math.sin(first))
    tip = (elbow[0] + world.LINKS[1] * math.cos(first + second), elbow[1] + world.LINKS[1] * math.sin(first + second))
    image = np.empty((*x.shape, 3))
    image[:] = (244, 243, 239)
    reach = np.hypot(x - base[0], y - base[1]) - sum(world.LINKS)
    shapes: list[tuple[np.ndarray, tuple[float, ...]]] = [
        (np.abs(reach) <= 0.012, (232, 230, 224)),
        (y <= base[1] - 0.1, (214, 212, 205)),
    ]
    inks = ((222, 52, 52), (46, 168, 84), (52, 104, 228), (244, 198, 40), (148, 70, 190), (242, 130, 36))
    for colour, px, py in state[3:].view(3, 3).tolist():
        if colour >= 0:
            ink = inks[int(colour)]
            shapes.append((in_disc(x, y, (px, py), 0.085), ink))
            shapes.append((in_disc(x, y, (px + 0.03, py + 0.03), 0.03), tuple(127.5 + part / 2 for part in ink)))
    shapes += [
        (in_disc(x, y, base, 0.12), (30, 34, 42)),
        (in_link(x, y, base, elbow, 0.055), (62, 70, 84)),
        (in_link(x, y, elbow, tip, 0.042), (104, 114, 130)),
        (in_disc(x, y, elbow, 0.06), (30, 34, 42)),
        (in_disc(x, y, base, 0.05), (104, 114, 130)),
        (in_disc(x, y, tip, 0.055), (30, 34, 42)),
        (in_disc(x, y, tip, 0.025), (250, 250, 250)),
    ]
    for inside, ink in shapes:
        image[inside] = ink
    return image.reshape(side, FINE, side, FINE, 3).mean((1, 3))


@pytest.mark.parametrize("side", [64, 96])
def test_a_picture_is_as_a_naive_drawing(side: int) -> None:
    state = world.drawn(3, torch.Generator().manual_seed(5))
    drawn = (pictures.picture(state, side) + 1) * 127.5
    for got, scene in zip(drawn.permute(0, 2, 3, 1).numpy(), state, strict=True):
        wrong = np.abs(got - naive(scene, side))
        assert wrong.mean() < 1.0
        assert (wrong.max(-1) > 40).mean() < 0.01


def test_pictures_of_a_batch_are_those_of_its_scenes() -> None:
    state = world.drawn(4, torch.Generator().manual_seed(6))
    together = pictures.picture(state)
    assert together.shape == (4, 3, pictures.SIDE, pictures.SIDE)
    assert float(together.abs().max()) <= 1
    for index in range(4):
        torch.testing.assert_close(pictures.picture(state[index : index + 1])[0], together[index])


def test_what_is_named_is_not_seen() -> None:
    state = world.drawn(1, torch.Generator().manual_seed(7))
    other = state.clone()
    other[:, 2] = (other[:, 2] + 1) % 2
    assert torch.equal(pictures.picture(state), pictures.picture(other))
