"""Pictures cut, turned and put beside each other, against NumPy and Pillow."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from PIL import Image

from tests.support.palette import Served
from walkgraph.architectures.pictures import MAX_PIXELS

CHANCE = np.random.default_rng(3)


@pytest.fixture(scope="module")
def served() -> Served:
    return Served("picture")


def some(width: int, height: int) -> torch.Tensor:
    return torch.from_numpy(CHANCE.uniform(-1, 1, (3, height, width)).astype(np.float32))


def huge(width: int, height: int) -> torch.Tensor:
    """A picture that takes no memory."""
    return torch.zeros(3, 1, 1).expand(3, height, width)


def plain(width: int, height: int, color: str) -> np.ndarray:
    levels = np.array(list(bytes.fromhex(color[1:])), np.float32)
    return np.broadcast_to((levels / 127.5 - 1)[:, None, None], (3, height, width)).copy()


@pytest.mark.parametrize(
    ("left", "top", "width", "height"), [(0, 0, 0, 0), (2, 1, 3, 2), (5, 3, 100, 100), (0, 4, 1, 0)]
)
def test_a_crop_is_a_slice(served: Served, left: int, top: int, width: int, height: int) -> None:
    pixels = some(9, 7)
    made = served.give("picture.crop", {"pixels": pixels}, left=left, top=top, width=width, height=height)
    columns = [x for x in range(9) if x >= left and (not width or x < left + width)]
    rows = [y for y in range(7) if y >= top and (not height or y < top + height)]
    assert made.numpy().tolist() == pixels.numpy()[:, rows][:, :, columns].tolist()


def test_a_crop_beyond_the_picture_is_refused(served: Served) -> None:
    assert "9 by 7" in served.refusal("picture.crop", {"pixels": some(9, 7)}, left=9)
    assert "lower `left` or `top`" in served.refusal("picture.crop", {"pixels": some(9, 7)}, top=8000)


@pytest.mark.parametrize("fill", ["color", "edge"])
@pytest.mark.parametrize("sides", [(0, 0, 0, 0), (1, 2, 3, 4), (20, 0, 0, 9)])
def test_a_border_is_numpys(served: Served, fill: str, sides: tuple[int, int, int, int]) -> None:
    left, top, right, bottom = sides
    pixels, around = some(5, 4), ((0, 0), (top, bottom), (left, right))
    given = {"left": left, "top": top, "right": right, "bottom": bottom, "fill": fill, "color": "#ff8000"}
    made = served.give("picture.pad", {"pixels": pixels}, **given).numpy()
    if fill == "edge":
        wanted = np.pad(pixels.numpy(), around, mode="edge")
    else:
        wanted = plain(left + 5 + right, top + 4 + bottom, "#ff8000")
        wanted[:, top : top + 4, left : left + 5] = pixels.numpy()
    np.testing.assert_allclose(made, wanted, atol=1e-6)


def test_a_border_of_too_many_pixels_is_refused_before_it_is_made(served: Served) -> None:
    assert "64 million" in served.refusal("picture.pad", {"pixels": some(4, 4)}, left=8192, top=8192)


@pytest.mark.parametrize(("direction", "axes"), [("horizontal", 2), ("vertical", 1), ("both", (1, 2))])
def test_a_mirrored_picture_is_numpys(served: Served, direction: str, axes: int | tuple[int, int]) -> None:
    pixels = some(5, 4)
    made = served.give("picture.flip", {"pixels": pixels}, direction=direction)
    assert np.array_equal(made.numpy(), np.flip(pixels.numpy(), axes))


@pytest.mark.parametrize("degrees", [-360, -90, 0, 90, 180, 270])
def test_quarter_turns_keep_every_pixel(served: Served, degrees: float) -> None:
    pixels = some(6, 3)
    made = served.give("picture.rotate", {"pixels": pixels}, degrees=degrees)
    assert np.array_equal(made.numpy(), np.rot90(pixels.numpy(), degrees // 90, (1, 2)))


@pytest.mark.parametrize("expand", [True, False])
@pytest.mark.parametrize("degrees", [30.0, -77.5, 181.0, 90.0])
def test_other_turns_interpolate_between_four_pixels(served: Served, degrees: float, expand: bool) -> None:
    pixels = some(9, 6)
    made = served.give("picture.rotate", {"pixels": pixels}, degrees=degrees, expand=expand, color="#804020").numpy()
    if not expand:
        assert made.shape == (3, 6, 9)
    elif degrees != 90:
        angle = math.radians(degrees)
        wide = abs(9 * math.cos(angle)) + abs(6 * math.sin(angle))
        assert 0 <= made.shape[2] - wide < 2
    wanted = turned(pixels.numpy(), degrees, made.shape[2], made.shape[1], plain(1, 1, "#804020")[:, 0, 0])
    # Where a sample lies on the picture's edge, rounding decides whether it is inside.
    apart = np.abs(made - wanted).max(0) > 1e-3
    assert apart.mean() < 0.03


def turned(picture: np.ndarray, degrees: float, width: int, height: int, fill: np.ndarray) -> np.ndarray:
    """Pixel by pixel: where it comes from, and the four around that, those at the edge repeated."""
    angle, (_, rows, columns) = math.radians(degrees), picture.shape
    made = np.empty((3, height, width), np.float32)
    for y, x in itertools.product(range(height), range(width)):
        dx, dy = x + 0.5 - width / 2, y + 0.5 - height / 2
        from_x = dx * math.cos(angle) - dy * math.sin(angle) + columns / 2
        from_y = dx * math.sin(angle) + dy * math.cos(angle) + rows / 2
        if not (0 <= from_x < columns and 0 <= from_y < rows):
            made[:, y, x] = fill
            continue
        left, top = math.floor(from_x - 0.5), math.floor(from_y - 0.5)
        right_share, lower_share = from_x - 0.5 - left, from_y - 0.5 - top
        made[:, y, x] = sum(
            picture[:, min(max(top + down, 0), rows - 1), min(max(left + across, 0), columns - 1)]
            * (right_share if across else 1 - right_share)
            * (lower_share if down else 1 - lower_share)
            for down in (0, 1)
            for across in (0, 1)
        )
    return made


def test_a_turned_picture_of_too_many_pixels_is_refused(served: Served) -> None:
    assert "64 million" in served.refusal("picture.rotate", {"pixels": huge(8000, 8000)}, degrees=45)


@pytest.mark.parametrize("direction", ["across", "down"])
@pytest.mark.parametrize("align", ["start", "middle", "end"])
def test_pictures_lie_side_by_side(served: Served, direction: str, align: str) -> None:
    pictures = [some(4, 3), some(2, 5), some(1, 1)]
    given = {"direction": direction, "align": align, "gap": 2, "color": "#0000ff"}
    made = served.give("picture.concat", {"pictures": pictures}, **given).numpy()
    across = direction == "across"
    wanted = plain(11, 5, "#0000ff") if across else plain(4, 13, "#0000ff")
    at = 0
    for picture in pictures:
        length, breadth = picture.shape[2 if across else 1], picture.shape[1 if across else 2]
        aside = {"start": 0, "middle": ((5 if across else 4) - breadth) // 2, "end": (5 if across else 4) - breadth}
        top, left = (aside[align], at) if across else (at, aside[align])
        wanted[:, top : top + picture.shape[1], left : left + picture.shape[2]] = picture.numpy()
        at += length + 2
    np.testing.assert_allclose(made, wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("count", "columns", "shape"), [(1, 0, (1, 1)), (5, 0, (2, 3)), (5, 2, (3, 2)), (2, 9, (1, 2))]
)
def test_pictures_fill_a_grid_row_by_row(served: Served, count: int, columns: int, shape: tuple[int, int]) -> None:
    pictures = [some(3, 4), *(some(2, 2) for _ in range(count - 1))]
    made = served.give("picture.grid", {"pictures": pictures}, columns=columns, gap=1, color="#101010").numpy()
    rows, wide = shape
    wanted = plain(wide * 4 - 1, rows * 5 - 1, "#101010")
    for index, picture in enumerate(pictures):
        top, left = index // wide * 5 + (4 - picture.shape[1]) // 2, index % wide * 4 + (3 - picture.shape[2]) // 2
        wanted[:, top : top + picture.shape[1], left : left + picture.shape[2]] = picture.numpy()
    np.testing.assert_allclose(made, wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["picture.concat", "picture.grid"])
def test_lists_that_are_no_pictures_or_too_large_are_refused(served: Served, name: str) -> None:
    for bad in ([], [some(2, 2)] * 1025, [some(2, 2), "a"], [some(2, 2)[0]], "abc", some(2, 2)):
        assert "pictures" in served.refusal(name, {"pictures": bad})
    side = math.isqrt(MAX_PIXELS) // 2
    assert "64 million" in served.refusal(name, {"pictures": [huge(side, side)] * 16})


@pytest.mark.parametrize("color", ["red", "#12345", "#1234567", "#12345g", "", "#１２３４５６"])
def test_a_colour_has_six_digits(served: Served, color: str) -> None:
    assert "#ff8800" in served.refusal("picture.pad", {"pixels": some(2, 2)}, color=color, left=1)


@pytest.mark.parametrize("bad", [torch.zeros(4, 2, 2), torch.zeros(3, 0, 2), torch.zeros(2, 2), "a", b"x", 1.0, None])
@pytest.mark.parametrize("name", ["picture.crop", "picture.pad", "picture.flip", "picture.rotate"])
def test_values_that_are_no_pixels_are_refused(served: Served, name: str, bad: object) -> None:
    assert "[3, height, width]" in served.refusal(name, {"pixels": bad})


def test_a_batch_gives_what_single_calls_give(served: Served) -> None:
    pictures = [some(6, 4) for _ in range(3)] + [some(3, 3)]
    for name, params in (("picture.flip", {}), ("picture.pad", {"left": 2}), ("picture.crop", {"left": 1})):
        alone = [served.give(name, {"pixels": picture}, **params) for picture in pictures]
        calls = [served.call(name, {"pixels": one}, run=str(n), **params) for n, one in enumerate(pictures)]
        made = served.together(*calls)
        assert all(torch.equal(one["pixels"], other) for one, other in zip(made, alone, strict=True))


def test_a_quarter_turn_is_pillows(served: Served) -> None:
    levels = CHANCE.integers(0, 256, (4, 6, 3), dtype=np.uint8)
    pixels = torch.from_numpy(levels).movedim(-1, 0) / 127.5 - 1
    made = served.give("picture.rotate", {"pixels": pixels}, degrees=90)
    back = ((made.movedim(0, -1) + 1) * 127.5).round().to(torch.uint8).numpy()
    assert np.array_equal(back, np.array(Image.fromarray(levels).transpose(Image.Transpose.ROTATE_90)))
