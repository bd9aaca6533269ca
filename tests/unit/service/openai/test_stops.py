"""Stop sequences in pieces are those of the whole text, however it is cut up."""

from __future__ import annotations

import random

import pytest

from walkgraph.service.openai.stops import Cutter


def naive(text: str, stops: list[str]) -> tuple[str, bool]:
    """One character more at a time, until a stop stands at the end."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


def in_pieces(draw: random.Random, text: str) -> list[str]:
    cuts = sorted(draw.randrange(len(text) + 1) for _ in range(draw.randrange(6)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.parametrize("seed", range(300))
def test_pieces_are_cut_as_the_whole(seed: int) -> None:
    draw = random.Random(seed)
    text = "".join(draw.choice("ab") for _ in range(draw.randrange(30)))
    stops = ["".join(draw.choice("ab") for _ in range(draw.randrange(1, 6))) for _ in range(draw.randrange(4))]
    cutter = Cutter(stops)
    told = "".join(cutter.feed(piece) for piece in in_pieces(draw, text))
    assert (told + cutter.finish(), cutter.stopped) == naive(text, stops)


def test_what_can_be_no_stop_is_told_at_once() -> None:
    cutter = Cutter(["\n\n", "END"])
    assert [cutter.feed(piece) for piece in ("one", "E", "N", "X", "\n", "two", "\n", "\n", "three")] == [
        "one", "", "", "ENX", "", "\ntwo", "", "", "",
    ]  # fmt: skip
    assert cutter.stopped
    assert cutter.finish() == ""
