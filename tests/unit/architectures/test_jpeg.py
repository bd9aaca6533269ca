"""JPEG pictures decoded in one call: the same levels as Pillow's, and Pillow for everything else."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.unit.engine.plans import call
from walkgraph.abi.calls import CallFailed
from walkgraph.architectures import pictures
from walkgraph.architectures.jpeg import PlainJpeg
from walkgraph.architectures.pictures import decode, levels_of

ORIENTATION = 0x0112


def encoded(picture: Image.Image, kind: str = "JPEG", **how: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **how)
    return buffer.getvalue()


def noise(width: int, height: int, seed: int = 0, mode: str = "RGB") -> Image.Image:
    """A smooth picture with some grain."""
    dice = np.random.default_rng(seed)
    coarse = Image.fromarray(dice.integers(0, 255, (3, 4, 3), dtype=np.uint8)).resize((width, height))
    grain = dice.integers(-9, 9, (height, width, 3))
    return Image.fromarray((np.array(coarse, np.int16) + grain).clip(0, 255).astype(np.uint8)).convert(mode)


def given(data: object) -> Any:
    return call("picture_in", {"image": data})


@pytest.mark.parametrize("seed", range(40))
def test_the_levels_are_those_of_pillow(seed: int) -> None:
    draw = random.Random(seed)
    width, height = draw.randrange(1, 130), draw.randrange(1, 130)
    how: dict[str, Any] = {
        "quality": draw.choice([5, 50, 75, 92, 100]),
        "subsampling": draw.choice(["4:4:4", "4:2:2", "4:2:0"]),
        "progressive": draw.random() < 0.3,
        "optimize": draw.random() < 0.3,
        "restart_marker_blocks": draw.choice([0, 1, 7]),
    }
    data = encoded(noise(width, height, seed, draw.choice(["RGB", "RGB", "L"])), **how)
    levels = levels_of(given(data))
    assert levels is not None
    assert (levels.dtype, levels.shape) == (np.uint8, (height, width, 3))
    assert np.array_equal(levels, np.array(decode(given(data))))


def test_only_plain_ones_of_a_fitting_size_are_decoded_so() -> None:
    picture = noise(40, 30)
    turned = Image.Exif()
    turned[ORIENTATION] = 6
    others = [
        5,
        encoded(picture, exif=turned),
        encoded(picture, xmp=b'<x:xmpmeta tiff:Orientation="6"/>'),
        encoded(picture.convert("CMYK")),
        encoded(picture, "PNG"),
        encoded(picture, "WEBP"),
        b"",
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xe0" + bytes(100),
    ]
    assert [levels_of(given(one)) for one in others] == [None] * len(others)
    plain = encoded(picture)
    assert levels_of(given(plain), lambda width, height: (width, height) == (40, 30)) is not None
    assert levels_of(given(plain), lambda width, height: (width, height) == (30, 40)) is None


def test_a_picture_that_is_too_large_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_PIXELS", 40 * 30 - 1)
    assert levels_of(given(encoded(noise(40, 30)))) is None


def test_a_damaged_one_is_left_to_pillow() -> None:
    data = encoded(noise(64, 64))
    for cut in range(3, len(data) - 2, 37):
        jpeg = PlainJpeg.of(data[:cut])
        assert jpeg is None or jpeg.levels() is None
        with pytest.raises(CallFailed):
            decode(given(data[:cut]))


@pytest.mark.parametrize("seed", range(60))
def test_whatever_comes_it_is_decoded_as_by_pillow_or_left_to_it(seed: int) -> None:
    draw = random.Random(seed)
    data = bytearray(encoded(noise(48, 32, seed)))
    for _ in range(draw.randrange(1, 6)):
        data[draw.randrange(2, len(data))] = draw.randrange(256)
    levels = levels_of(given(bytes(data)))
    try:
        whole = np.array(decode(given(bytes(data))))
    except CallFailed:
        return
    assert levels is None or np.array_equal(levels, whole)
