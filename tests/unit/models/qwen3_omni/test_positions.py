"""Positions of prompts with media against those of the published code (`tests/golden/qwen3_omni/make_positions.py`)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.golden.qwen3_omni import positions as tiny
from walkgraph.models.qwen3_omni.positions import Span, film, film_order, picture, sound, text, video

VIDEO, SOUND = 3, 1
"""Ids in the stored prompts."""


def placed(piece: tiny.Piece, start: float) -> Span:
    if piece.grid is None:
        return (sound if piece.heard else text)(piece.count, start)
    if piece.rate is None:
        return picture(piece.grid, start)
    if piece.heard:
        return film(piece.grid, 2 / piece.rate, piece.count, start)
    return video(piece.grid, 2 / piece.rate, start)


@pytest.fixture(scope="module")
def answers() -> dict[str, np.ndarray]:
    with np.load(tiny.ANSWERS) as found:
        return {name: found[name] for name in found.files}


@pytest.mark.parametrize("name", tiny.PROMPTS)
def test_positions_are_the_published_ones(name: str, answers: dict[str, np.ndarray]) -> None:
    spans: list[Span] = []
    start = 0.0
    for piece in tiny.PROMPTS[name]:
        spans.append(placed(piece, start))
        start = spans[-1].next
    rows = torch.cat([span.rows for span in spans])
    assert rows.dtype == torch.float32
    assert torch.equal(rows, torch.from_numpy(answers[f"{name}: positions"]))
    assert max(span.top for span in spans) == answers[f"{name}: top"]


@pytest.mark.parametrize("name", [name for name in tiny.PROMPTS if "film" in name or name == "all of them"])
def test_a_films_rows_are_in_the_published_order(name: str, answers: dict[str, np.ndarray]) -> None:
    ids, at, films = torch.from_numpy(answers[f"{name}: ids"]), 0, 0
    for piece in tiny.PROMPTS[name]:
        count = len(placed(piece, 0).rows)
        if piece.grid and piece.heard and piece.rate:
            order = film_order(piece.grid, 2 / piece.rate, piece.count)
            assert sorted(order.tolist()) == list(range(count - 4))
            cells = count - 4 - piece.count
            assert torch.equal(torch.where(order < cells, VIDEO, SOUND), ids[at + 2 : at + count - 2])
            for kind in (order < cells, order >= cells):
                assert torch.equal(order[kind], order[kind].sort().values)
            films += 1
        at += count
    assert films


def test_a_film_can_leave_positions_behind_that_text_does_not_reach() -> None:
    """Sound ends last, but a high picture has larger positions."""
    span = film((2, 40, 2), 1.0, 26)
    assert span.next == 2 + 26 + 2
    assert span.top == 2 + 40
    assert {video((2, 40, 2), 1.0).top - video((2, 40, 2), 1.0).next, text(3).top - text(3).next} == {0.0}


def test_pieces_start_anywhere() -> None:
    for piece in (
        tiny.said(3),
        tiny.sound(4),
        tiny.picture(2, 3),
        tiny.video((2, 2, 2), 2.0),
        tiny.film((2, 1, 2), 2.0, 9),
    ):
        first, later = placed(piece, 0), placed(piece, 5)
        torch.testing.assert_close(later.rows, first.rows + 5)
        assert (later.next, later.top) == (first.next + 5, first.top + 5)


def test_rows_of_a_picture_by_hand() -> None:
    rows: Tensor = picture((1, 2, 3), 4).rows
    assert rows.tolist() == [
        [4, 4, 4],
        *([5, 5 + row, 5 + column] for row in range(2) for column in range(3)),
        [8, 8, 8],
    ]
