"""Pictures mixed, masked, blurred, changed and compared, against NumPy and Pillow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

from tests.support.palette import Served

CHANCE = np.random.default_rng(5)


@pytest.fixture(scope="module")
def served() -> Served:
    return Served("picture")


def some(width: int, height: int) -> torch.Tensor:
    return torch.from_numpy(CHANCE.uniform(-1, 1, (3, height, width)).astype(np.float32))


def light(pixels: torch.Tensor) -> np.ndarray:
    return pixels.numpy().astype(np.float64) / 2 + 0.5


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(("left", "top"), [(0, 0), (3, 2), (-2, -1), (7, 0), (100, 100), (-50, 0)])
def test_a_picture_is_laid_over_another_pixel_by_pixel(served: Served, left: int, top: int, masked: bool) -> None:
    over, onto = some(4, 3), some(8, 6)
    mask = torch.from_numpy(CHANCE.uniform(-0.2, 1.2, (3, 4)).astype(np.float32))
    inputs = {"over": over, "onto": onto} | ({"mask": mask} if masked else {})
    made = served.give("picture.compose", inputs, left=left, top=top, opacity=0.75)
    wanted = onto.numpy().copy()
    for y in range(3):
        for x in range(4):
            row, column = y + top, x + left
            if 0 <= row < 6 and 0 <= column < 8:
                share = 0.75 * (min(max(float(mask[y, x]), 0), 1) if masked else 1)
                wanted[:, row, column] = over.numpy()[:, y, x] * share + wanted[:, row, column] * (1 - share)
    np.testing.assert_allclose(made.numpy(), wanted, atol=1e-6)


def test_whole_levels_are_composed_as_pillow_does(served: Served) -> None:
    over, onto = (CHANCE.integers(0, 256, (5, 7, 3), dtype=np.uint8) for _ in range(2))
    mask = CHANCE.integers(0, 256, (5, 7), dtype=np.uint8)
    tensors = (torch.from_numpy(one).movedim(-1, 0) / 127.5 - 1 for one in (over, onto))
    inputs = dict(zip(("over", "onto"), tensors, strict=True)) | {"mask": torch.from_numpy(mask) / 255}
    made = (served.give("picture.compose", inputs).movedim(0, -1).numpy() + 1) * 127.5
    wanted = Image.composite(Image.fromarray(over), Image.fromarray(onto), Image.fromarray(mask))
    np.testing.assert_allclose(made, np.array(wanted), atol=1)


def test_a_mask_of_another_size_is_refused(served: Served) -> None:
    for mask in (torch.ones(4, 3), torch.ones(1, 3, 4), "mask"):
        inputs = {"over": some(4, 3), "onto": some(8, 6), "mask": mask}
        assert "3 rows of 4" in served.refusal("picture.compose", inputs)


@pytest.mark.parametrize("invert", [True, False])
def test_a_threshold_is_of_the_brightness_that_pillow_sees(served: Served, invert: bool) -> None:
    levels = CHANCE.integers(0, 256, (20, 30, 3), dtype=np.uint8)
    pixels = torch.from_numpy(levels).movedim(-1, 0) / 127.5 - 1
    made = served.give("picture.mask_threshold", {"pixels": pixels}, threshold=0.5, invert=invert).numpy()
    grey = np.array(Image.fromarray(levels).convert("L")).astype(int)
    clear = np.abs(grey - 127.5) > 1
    assert np.array_equal(made[clear], ((grey > 127.5) ^ invert)[clear])
    assert set(np.unique(made)) == {0, 1}


@pytest.mark.parametrize("shape", ["rectangle", "ellipse"])
@pytest.mark.parametrize("invert", [True, False])
@pytest.mark.parametrize(
    "box", [(0.25, 0.25, 0.75, 0.75), (0.0, 0.0, 1.0, 1.0), (0.9, 0.1, 0.2, 0.3), (0.5, 0.5, 0.5, 0.5)]
)
def test_a_mask_has_its_shape(served: Served, shape: str, invert: bool, box: tuple[float, ...]) -> None:
    sides = dict(zip(("left", "top", "right", "bottom"), box, strict=True))
    made = served.give("picture.mask_draw", {}, shape=shape, invert=invert, width=17, height=10, **sides)
    (left, right), (top, bottom) = sorted((box[0] * 17, box[2] * 17)), sorted((box[1] * 10, box[3] * 10))
    wanted = np.zeros((10, 17))
    for y in range(10):
        for x in range(17):
            across, down = x + 0.5 - (left + right) / 2, y + 0.5 - (top + bottom) / 2
            wide, high = max((right - left) / 2, 1e-6), max((bottom - top) / 2, 1e-6)
            if shape == "rectangle":
                wanted[y, x] = abs(across) <= wide and abs(down) <= high
            else:
                wanted[y, x] = (across / wide) ** 2 + (down / high) ** 2 <= 1
    assert np.array_equal(made.numpy(), 1 - wanted if invert else wanted)


def test_a_mask_takes_the_size_of_a_picture_and_may_be_soft(served: Served) -> None:
    hard = served.give("picture.mask_draw", {"pixels": some(40, 30)})
    soft = served.give("picture.mask_draw", {"pixels": some(40, 30)}, soften=3.0)
    assert hard.shape == soft.shape == (30, 40)
    np.testing.assert_allclose(soft.numpy(), blurred(hard.numpy(), 3.0), atol=1e-5)
    assert "64 million" in served.refusal("picture.mask_draw", {}, width=8192, height=8192)


def blurred(plane: np.ndarray, radius: float) -> np.ndarray:
    """Row by row and column by column, with the last pixels repeated."""
    reach = math.ceil(3 * radius)
    weights = [math.exp(-(at * at) / (2 * radius * radius)) for at in range(-reach, reach + 1)]
    weights = np.array(weights) / sum(weights)
    for _ in range(2):
        rows = [np.convolve(np.pad(row, reach, mode="edge"), weights, mode="valid") for row in plane]
        plane = np.stack(rows).T
    return plane


@pytest.mark.parametrize("radius", [0.0, 0.4, 1.7, 6.0])
def test_a_blur_is_a_gaussian(served: Served, radius: float) -> None:
    pixels = some(23, 11)
    made = served.give("picture.blur", {"pixels": pixels}, radius=radius).numpy()
    wanted = pixels.numpy() if radius == 0 else np.stack([blurred(plane, radius) for plane in pixels.numpy()])
    np.testing.assert_allclose(made, wanted, atol=1e-5)


def test_a_blur_that_takes_too_long_is_refused(served: Served) -> None:
    vast = torch.zeros(3, 1, 1).expand(3, 8000, 8000)
    assert "make it smaller first" in served.refusal("picture.blur", {"pixels": vast}, radius=4.0)
    assert "make it smaller first" in served.refusal("picture.mask_draw", {"pixels": vast}, soften=32.0)
    assert served.give("picture.blur", {"pixels": some(9, 9)}, radius=32.0).shape == (3, 9, 9)


def test_a_blur_is_near_pillows(served: Served) -> None:
    levels = CHANCE.integers(0, 256, (40, 60, 3), dtype=np.uint8)
    pixels = torch.from_numpy(levels).movedim(-1, 0) / 127.5 - 1
    made = (served.give("picture.blur", {"pixels": pixels}, radius=4.0).movedim(0, -1).numpy() + 1) * 127.5
    wanted = np.array(Image.fromarray(levels).filter(ImageFilter.GaussianBlur(4)))
    np.testing.assert_allclose(made[12:-12, 12:-12], wanted[12:-12, 12:-12], atol=4)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"saturation": 0.0},
        {"saturation": 3.0, "contrast": 0.5},
        {"contrast": 4.0, "brightness": -0.3},
        {"gamma": 2.2},
        {"saturation": 0.3, "contrast": 1.4, "brightness": 0.2, "gamma": 0.6},
    ],
)
def test_levels_change_in_their_order(served: Served, given: dict[str, float]) -> None:
    pixels = some(8, 5)
    made = served.give("picture.levels", {"pixels": pixels}, **given).numpy()
    rule = {"saturation": 1.0, "contrast": 1.0, "brightness": 0.0, "gamma": 1.0} | given
    wanted = light(pixels)
    grey = 0.299 * wanted[0] + 0.587 * wanted[1] + 0.114 * wanted[2]
    wanted = grey + (wanted - grey) * rule["saturation"]
    wanted = (wanted - 0.5) * rule["contrast"] + 0.5 + rule["brightness"]
    wanted = np.clip(wanted, 0, 1) ** (1 / rule["gamma"]) * 2 - 1
    np.testing.assert_allclose(made, wanted, atol=2e-5)


def test_a_tensor_and_back_is_the_picture(served: Served) -> None:
    pixels = some(5, 4)
    rule = {"low": -3.0, "high": 7.0}
    tensor = served.give("picture.to_tensor", {"pixels": pixels}, **rule)
    np.testing.assert_allclose(tensor.numpy(), light(pixels) * 10 - 3, atol=1e-5)
    back = served.give("picture.from_tensor", {"tensor": tensor}, **rule)
    np.testing.assert_allclose(back.numpy(), pixels.numpy(), atol=1e-6)


@pytest.mark.parametrize("shape", [(4, 5), (1, 4, 5)])
def test_a_mask_becomes_a_grey_picture(served: Served, shape: tuple[int, ...]) -> None:
    mask = torch.from_numpy(CHANCE.uniform(-0.5, 1.5, shape).astype(np.float32))
    made = served.give("picture.from_tensor", {"tensor": mask}).numpy()
    wanted = np.clip(mask.numpy().reshape(4, 5), 0, 1) * 2 - 1
    assert made.shape == (3, 4, 5)
    for channel in made:
        np.testing.assert_allclose(channel, wanted, atol=1e-6)


def test_tensors_that_are_no_picture_are_refused(served: Served) -> None:
    for bad in (torch.zeros(5), torch.zeros(2, 4, 4), torch.zeros(0, 4), torch.zeros(1, 1, 2, 2), "a", None, 3.0):
        assert "[1, h, w]" in served.refusal("picture.from_tensor", {"tensor": bad})
    vast = torch.zeros(1, 1).expand(9000, 9000)
    assert "64 million" in served.refusal("picture.from_tensor", {"tensor": vast})
    assert "differ" in served.refusal("picture.from_tensor", {"tensor": torch.zeros(2, 2)}, low=1.0, high=1.0)


def test_pictures_are_compared_in_decibels(served: Served) -> None:
    one = some(9, 7)
    other = (one + torch.from_numpy(CHANCE.normal(0, 0.1, (3, 7, 9)).astype(np.float32))).clamp(-1, 1)
    made = served.give("picture.compare", {"pixels": one, "other": other}, gain=2.0)
    apart = np.abs(light(one) - light(other))
    assert float(made["psnr"]) == pytest.approx(10 * math.log10(1 / np.square(apart).mean()), abs=1e-3)
    np.testing.assert_allclose(made["difference"].numpy(), np.clip(apart * 2, 0, 1) * 2 - 1, atol=1e-5)
    same = served.give("picture.compare", {"pixels": one, "other": one})
    assert float(same["psnr"]) == 100
    assert same["difference"].eq(-1).all()


def test_pictures_of_two_sizes_are_not_compared(served: Served) -> None:
    assert "9 by 7 and 7 by 9" in served.refusal("picture.compare", {"pixels": some(9, 7), "other": some(7, 9)})


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("picture.blur", {"radius": 1.0}),
        ("picture.levels", {"gamma": 1.3, "saturation": 0.5}),
        ("picture.mask_draw", {"soften": 1.0}),
        ("picture.mask_threshold", {}),
        ("picture.to_tensor", {}),
    ],
)
def test_a_batch_gives_what_single_calls_give(served: Served, name: str, params: dict[str, Any]) -> None:
    pictures = [some(6, 4) for _ in range(3)] + [some(3, 5)]
    alone = [served.give(name, {"pixels": picture}, **params) for picture in pictures]
    calls = [served.call(name, {"pixels": one}, run=str(n), **params) for n, one in enumerate(pictures)]
    for made, wanted in zip(served.together(*calls), alone, strict=True):
        torch.testing.assert_close(next(iter(made.values())), wanted, rtol=0, atol=1e-6)


def test_a_bad_picture_of_a_batch_fails_alone(served: Served) -> None:
    good = served.call("picture.compare", {"pixels": some(4, 4), "other": some(4, 4)})
    assert "psnr" in served.together(good)[0]
    assert "[3, height, width]" in served.refusal("picture.compare", {"pixels": some(4, 4), "other": torch.zeros(4)})
