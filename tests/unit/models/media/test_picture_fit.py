"""A picture's second resize, and the bounds of a picture's pixels."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from tests.unit.engine.plans import call, engine_of, outputs, plan_of
from walkgraph.architectures.pictures import MAX_PIXELS
from walkgraph.engine.engine import Engine
from walkgraph.layers.pictures.patches import normalise, to_levels

NODES = {
    "in": ("walkgraph.models.media.operators:PictureIn", {}),
    "fit": ("walkgraph.models.media.operators:PictureResize", {}),
}
KEEP = {
    "size": 0,
    "min_side": 0,
    "max_side": 0,
    "stride": 1,
    "max_pixels": MAX_PIXELS,
    "crop": False,
    "resample": "bicubic",
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(plan_of(NODES))


def some(width: int, height: int, mode: str = "RGB") -> Image.Image:
    numbers = np.random.default_rng(7).integers(0, 256, (height, width, len(mode)), dtype=np.uint8)
    return Image.fromarray(numbers, mode)


def encoded(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def tensor(picture: Image.Image) -> torch.Tensor:
    return normalise(torch.from_numpy(np.array(picture)))


def test_pixels_are_resized_as_the_picture_would_be(engine: Engine) -> None:
    picture = some(96, 64)
    [out] = outputs(engine, call("fit", {"pixels": tensor(picture)}, **{**KEEP, "max_side": 42, "stride": 14}))
    assert torch.equal(out["pixels"], tensor(picture.resize((42, 28), Image.Resampling.BICUBIC)))


def test_a_picture_that_fits_stays_as_it_is(engine: Engine) -> None:
    pixels = tensor(some(33, 21))
    [out] = outputs(engine, call("fit", {"pixels": pixels}, **KEEP))
    assert torch.equal(out["pixels"], pixels)


def test_every_level_comes_back() -> None:
    levels = torch.arange(256, dtype=torch.uint8).view(1, -1, 1).expand(1, 256, 3)
    assert torch.equal(to_levels(normalise(levels)), levels)
    assert to_levels(torch.tensor([-3.0, 0.0, 3.0])[:, None, None]).flatten().tolist() == [0, 128, 255]


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize(("size", "corner"), [((9, 4), (2, 0)), ((4, 9), (0, 2)), ((5, 4), (0, 0)), ((4, 4), (0, 0))])
def test_a_crop_keeps_the_middle_square(
    engine: Engine, node: str, size: tuple[int, int], corner: tuple[int, int]
) -> None:
    picture, (left, top) = some(*size), corner
    given = {"in": {"image": encoded(picture)}, "fit": {"pixels": tensor(picture)}}[node]
    [out] = outputs(engine, call(node, given, **{**KEEP, "crop": True}))
    assert torch.equal(out["pixels"], tensor(picture)[:, top : top + 4, left : left + 4])


def test_a_crop_comes_before_the_sides_are_fitted(engine: Engine) -> None:
    data = encoded(some(200, 100))
    for rules, side in (({"size": 64}, 64), ({"max_side": 50}, 50), ({"min_side": 120, "stride": 16}, 128)):
        [out] = outputs(engine, call("in", {"image": data}, **{**KEEP, **rules, "crop": True}))
        assert tuple(out["pixels"].shape) == (3, side, side)


def test_bilinear_pixels_are_not_smoothed_and_not_rounded(engine: Engine) -> None:
    """Stripes of one pixel: where every other one is read, nothing is left of the rest."""
    stripes = np.zeros((12, 12, 3), np.uint8)
    stripes[:, 1::3] = 255
    params = {**KEEP, "size": 4, "resample": "bilinear"}
    [out] = outputs(engine, call("in", {"image": encoded(Image.fromarray(stripes))}, **params))
    assert torch.equal(out["pixels"], torch.ones(3, 4, 4))
    [out] = outputs(engine, call("in", {"image": encoded(some(7, 5))}, **params))
    levels = (out["pixels"] + 1) * 127.5
    assert (levels - levels.round()).abs().max() > 0.1


@pytest.mark.parametrize(
    ("size", "pixels", "wanted"),
    [((100, 50), 5000, (100, 50)), ((100, 50), 2500, (50, 25)), ((200, 100), 5000, (50, 25))],
)
def test_a_picture_of_too_many_pixels_is_made_smaller(
    engine: Engine, size: tuple[int, int], pixels: int, wanted: tuple[int, int]
) -> None:
    data = encoded(Image.new("RGB", size))
    [out] = outputs(engine, call("in", {"image": data}, **{**KEEP, "max_pixels": pixels}))
    assert tuple(out["pixels"].shape) == (3, wanted[1], wanted[0])


def test_half_an_alpha_lets_half_the_white_through(engine: Engine) -> None:
    picture = Image.new("RGBA", (1, 1), (0, 100, 255, 51))
    [out] = outputs(engine, call("in", {"image": encoded(picture)}, **KEEP))
    assert to_levels(out["pixels"]).flatten().tolist() == [204, 224, 255]
