"""Boxes and text on pictures, and animated pictures."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageSequence

from tests.support.palette import Served

BLACK = torch.full((3, 40, 60), -1.0)


@pytest.fixture(scope="module")
def served() -> Served:
    return Served("picture")


def levels(pixels: torch.Tensor) -> np.ndarray:
    return ((pixels.movedim(0, -1) + 1) * 127.5).round().to(torch.uint8).numpy()


def test_without_boxes_and_text_a_picture_is_kept(served: Served) -> None:
    numbers = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    pixels = torch.from_numpy(numbers).movedim(-1, 0) / 127.5 - 1
    assert np.array_equal(levels(served.give("picture.annotate", {"pixels": pixels})), numbers)


@pytest.mark.parametrize("unit", ["pixels", "shares"])
def test_a_box_is_four_lines(served: Served, unit: str) -> None:
    boxes = torch.tensor([[10.0, 30.0, 50.0, 8.0]])
    if unit == "shares":
        boxes = boxes / torch.tensor([60.0, 40.0, 60.0, 40.0])
    given = {"unit": unit, "color": "#00ff00", "thickness": 3}
    made = levels(served.give("picture.annotate", {"pixels": BLACK, "boxes": boxes}, **given))
    wanted = np.zeros((40, 60), bool)
    wanted[8:31, 10:51] = True
    wanted[11:28, 13:48] = False
    assert np.array_equal(made, np.where(wanted[..., None], np.array([0, 255, 0], np.uint8), 0))


def test_a_label_stands_above_its_box_or_in_it(served: Served) -> None:
    for top, rows in ((30, slice(14, 30)), (2, slice(3, 18))):
        inputs = {"pixels": BLACK, "boxes": torch.tensor([[5.0, top, 50.0, 38.0]])}
        bare = levels(served.give("picture.annotate", inputs, size=12))
        made = levels(served.give("picture.annotate", inputs | {"labels": ["cat\n2"]}, size=12))
        changed = (bare != made).any(-1)
        assert changed[rows].any()
        assert not changed[:, :4].any()
        assert not changed[20:28].any() or top == 30
    more = inputs | {"labels": ["a"] * 5000}
    assert served.give("picture.annotate", more, size=12).shape == BLACK.shape


def test_text_stands_where_it_is_wanted_and_is_wrapped(served: Served) -> None:
    written = {}
    for place in ("top", "middle", "bottom"):
        inputs = {"pixels": torch.full((3, 90, 60), -1.0), "text": "one two\n\nthree"}
        made = levels(served.give("picture.annotate", inputs, size=12, place=place, color="#ffffff")).any(-1)
        written[place] = np.flatnonzero(made.any(1))
    assert written["top"].max() < 60 < 75 < written["bottom"].max()
    assert written["top"].min() < written["middle"].min() < written["bottom"].min()
    long = {"pixels": torch.full((3, 90, 60), -1.0), "text": "x" * 2000}
    made = levels(served.give("picture.annotate", long, size=12, color="#ffffff"))
    rows = np.flatnonzero(made.any(-1).any(1))
    assert rows.min() < 20 < 75 < rows.max()


def test_text_of_any_characters_is_drawn_and_the_longest_word_costs_little(served: Served) -> None:
    for text in ("", " \n ", "猫 \ud800 \u202e é", "\x00\x01", "W" * 2000):
        for size in (6, 256):
            inputs = {"pixels": BLACK, "text": text}
            assert served.give("picture.annotate", inputs, size=size).isfinite().all()
    dot = {"pixels": torch.zeros(3, 1, 1), "text": "hello", "boxes": torch.tensor([[0.0, 0, 9, 9]]), "labels": ["a"]}
    assert served.give("picture.annotate", dot, thickness=64).shape == (3, 1, 1)


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"boxes": torch.zeros(4)}, "four finite numbers"),
        ({"boxes": torch.zeros(2, 3)}, "four finite numbers"),
        ({"boxes": torch.zeros(1025, 4)}, "four finite numbers"),
        ({"boxes": torch.tensor([[0.0, 0.0, float("nan"), 1.0]])}, "four finite numbers"),
        ({"boxes": "all"}, "four finite numbers"),
        ({"labels": "cat"}, "list of texts"),
        ({"labels": [1]}, "list of texts"),
        ({"labels": 7}, "list of texts"),
        ({"text": "x" * 2001}, "2000 characters"),
        ({"text": 5}, "takes text"),
        ({"pixels": torch.zeros(3)}, "[3, height, width]"),
    ],
)
def test_what_can_not_be_drawn_is_refused(served: Served, inputs: dict[str, Any], says: str) -> None:
    assert says in served.refusal("picture.annotate", {"pixels": BLACK} | inputs)


def test_boxes_far_outside_cost_nothing(served: Served) -> None:
    boxes = torch.tensor([[-1e30, -1e30, 1e30, 1e30], [1e9, 5.0, 2e9, 6.0], [3e38, 0.0, -3e38, 1.0]])
    made = served.give("picture.annotate", {"pixels": BLACK, "boxes": boxes}, unit="shares", thickness=2)
    assert made.shape == BLACK.shape


@pytest.mark.parametrize("form", ["jpeg", "webp"])
def test_a_picture_is_encoded_smaller_with_less_quality(served: Served, form: str) -> None:
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, 60), torch.linspace(-1, 1, 90), indexing="ij")
    pixels = torch.stack([rows, columns, (rows * 9).sin() * 0.5])
    grain = torch.rand(pixels.shape, generator=torch.Generator().manual_seed(0)) * 0.2 - 0.1
    pixels = (pixels + grain).clamp(-1, 1)
    sizes = []
    for quality in (5, 50, 95):
        data = served.give("picture.encode", {"pixels": pixels}, format=form, quality=quality)
        picture = Image.open(io.BytesIO(data))
        assert (picture.format, picture.size) == (form.upper(), (90, 60))
        sizes.append(len(data))
    assert sizes == sorted(set(sizes))
    assert np.abs(np.array(picture.convert("RGB")).astype(int) - levels(pixels)).mean() < 8
    assert "16,383 pixels" in served.refusal("picture.encode", {"pixels": torch.zeros(3, 1, 1).expand(3, 1, 16384)})
    assert "[3, height, width]" in served.refusal("picture.encode", {"pixels": torch.zeros(3)})


@pytest.mark.parametrize(("form", "mime"), [("webp", "WEBP"), ("gif", "GIF"), ("png", "PNG")])
@pytest.mark.parametrize(("loops", "said"), [(0, 0), (3, 3)])
def test_frames_come_back_in_order(served: Served, form: str, mime: str, loops: int, said: int) -> None:
    frames = [torch.full((3, 16, 24), value) for value in (-1.0, 0.0, 1.0, -0.5)]
    data = served.give("picture.animate", {"pictures": frames}, format=form, rate=10.0, loops=loops, quality=100)
    picture = Image.open(io.BytesIO(data))
    assert picture.format == mime
    assert picture.size == (24, 16)
    seen = [(np.array(one.convert("RGB")).mean(), one.info["duration"]) for one in ImageSequence.Iterator(picture)]
    wanted = [(float(frame.mean()) + 1) * 127.5 for frame in frames]
    np.testing.assert_allclose([mean for mean, _ in seen], wanted, atol=4)
    assert {round(duration) for _, duration in seen} == {100}
    # A GIF counts how often it starts again.
    assert picture.info.get("loop", 0) == (said - 1 if form == "gif" and said else said)


def test_one_frame_and_one_round_are_enough(served: Served) -> None:
    for form in ("webp", "gif", "png"):
        data = served.give("picture.animate", {"pictures": [torch.zeros(3, 1, 1)]}, format=form, loops=1)
        assert Image.open(io.BytesIO(data)).size == (1, 1)


def test_frames_that_can_not_be_encoded_are_refused(served: Served) -> None:
    refused = [
        ([], "list of 1 to 1,024 pictures"),
        ([torch.zeros(3, 2, 2), torch.zeros(3, 2, 3)], "different sizes"),
        ([torch.zeros(3, 1, 1).expand(3, 1000, 1000)] * 65, "64 million"),
        ([torch.zeros(3, 1, 1).expand(3, 1, 16384)], "16,383"),
        ([torch.zeros(2, 2)], "[3, height, width]"),
    ]
    for pictures, says in refused:
        assert says in served.refusal("picture.animate", {"pictures": pictures})
