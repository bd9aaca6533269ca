"""Read a picture by rules: the background, then every blob's colour, shape, size and cell. Independent of the model."""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from walkgraph.starters.shapes.render import CELL, GROUNDS, PALETTE, SIDE, coverage
from walkgraph.starters.shapes.scenes import SHAPES, SIZES, Item, Scene, scene

_CONTRAST = 40.0
"""Distance from the background, in 255ths, at which a pixel belongs to an item."""
_LEAST_AREA = 8.0
"""Pixels; smaller blobs are ignored."""
_WORST_FIT = 0.45
"""The largest share of a blob's area that may differ from the best template."""
_WORST_INK = 70.0
"""The largest distance of a blob's colour from the palette's, in 255ths."""

Picture = NDArray[np.uint8]
Grey = NDArray[np.float64]


class Seen(NamedTuple):
    scene: Scene
    middles: tuple[tuple[float, float], ...]
    """(x, y) of every item, in pixels, in the scene's order."""
    strange: int
    """Count of blobs that are no item of this world; 0 in a clean picture."""


def detect(picture: Picture) -> Seen:
    """picture uint8 `[64, 64, 3]`."""
    pixels = picture.astype(np.float64)
    background = int(np.argmin([np.linalg.norm(np.median(pixels, (0, 1)) - ground) for ground in GROUNDS]))
    ground = np.median(pixels, (0, 1))
    contrast = np.linalg.norm(pixels - ground, axis=-1)
    found: list[tuple[Item, tuple[float, float]]] = []
    strange = 0
    for blob in _blobs(contrast > _CONTRAST):
        item = _read(pixels, ground, contrast, blob)
        strange += item is None
        found += [] if item is None else [item]
    found.sort(key=lambda pair: pair[0].cell)
    return Seen(scene(background, tuple(i for i, _ in found)), tuple(m for _, m in found), strange)


def _read(
    pixels: Grey, ground: Grey, contrast: Grey, blob: NDArray[np.bool_]
) -> tuple[Item, tuple[float, float]] | None:
    inner = blob & (contrast > 0.8 * contrast[blob].max())
    ink = np.median(pixels[inner], 0)
    distances = [float(np.linalg.norm(ink - known)) for known in PALETTE]
    colour = int(np.argmin(distances))
    along = ink - ground
    near = _grown(blob)
    cover = np.where(near, np.clip((pixels - ground) @ along / (along @ along), 0, 1), 0.0)
    fits = [(_fit(cover, shape, size), shape, size) for shape in range(len(SHAPES)) for size in range(len(SIZES))]
    fit, shape, size = min(fits)
    if fit > _WORST_FIT or distances[colour] > _WORST_INK:
        return None
    x, y = _middle(cover, shape, size)
    cell = 3 * min(int(y / CELL), 2) + min(int(x / CELL), 2)
    return Item(shape, colour, size, cell), (x, y)


def _fit(cover: Grey, shape: int, size: int) -> float:
    template = _template(shape, size, *_middle(cover, shape, size))
    return float(np.abs(cover - template).sum() / cover.sum())


def _middle(cover: Grey, shape: int, size: int) -> tuple[float, float]:
    """The cell point of this shape if the blob's centre of mass is the shape's."""
    (x, y), (off_x, off_y) = _mass(cover), _centre_offset(shape, size)
    return x - off_x, y - off_y


@cache
def _centre_offset(shape: int, size: int) -> tuple[float, float]:
    x, y = _mass(_template(shape, size, SIDE / 2, SIDE / 2))
    return x - SIDE / 2, y - SIDE / 2


def _mass(cover: Grey) -> tuple[float, float]:
    centre = np.arange(SIDE) + 0.5
    total = cover.sum()
    return float(cover.sum(0) @ centre / total), float(cover.sum(1) @ centre / total)


def _template(shape: int, size: int, x: float, y: float) -> Grey:
    middle = torch.tensor([x, y], dtype=torch.float32)
    return coverage(torch.tensor(shape), torch.tensor(size), middle).double().numpy()


def _blobs(mask: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """Connected sets of pixels (including diagonals), largest label first, without small ones."""
    labels = np.where(mask, np.arange(1, mask.size + 1).reshape(mask.shape), 0)
    while True:
        spread = np.where(mask, _neighbour_max(labels), 0)
        if np.array_equal(spread, labels):
            break
        labels = spread
    blobs = [labels == label for label in np.unique(labels) if label]
    return [blob for blob in blobs if blob.sum() >= _LEAST_AREA]


def _grown(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return _neighbour_max(mask.astype(np.int64)) > 0


def _neighbour_max(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    padded = np.pad(labels, 1)
    height, width = labels.shape
    return np.max([padded[y : y + height, x : x + width] for y in range(3) for x in range(3)], 0)
