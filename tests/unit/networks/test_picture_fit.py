"""A picture's second resize, and the bounds of a picture's pixels."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from tests.unit.engine.plans import call, engine_of, outputs, plan_of
from walkgraph.engine.engine import Engine
from walkgraph.layers.patches import normalise, to_levels
from walkgraph.networks.operators_media import MAX_PIXELS

NODES = {"in": ("operators_media:PictureIn", {}), "fit": ("operators_media:PictureFit", {})}
KEEP = {"size": 0, "min_side": 0, "max_side": 0, "stride": 1, "max_pixels": MAX_PIXELS}


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
