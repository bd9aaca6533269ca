"""Prompts with media, whose positions are stored; `make_positions.py` asks the published code for them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from walkgraph.models.qwen3_omni.positions import Grid

ANSWERS = Path(__file__).parent / "positions.npz"


class Piece(NamedTuple):
    """A piece of a prompt; what it has says what it is."""

    count: int = 0
    """Tokens of text, or embeddings of sound."""
    grid: Grid | None = None
    rate: float | None = None
    """Frames a second of a video."""
    heard: bool = False


def said(count: int) -> Piece:
    return Piece(count)


def sound(tokens: int) -> Piece:
    return Piece(tokens, heard=True)


def picture(rows: int, columns: int) -> Piece:
    return Piece(grid=(1, rows, columns))


def video(grid: Grid, rate: float) -> Piece:
    return Piece(grid=grid, rate=rate)


def film(grid: Grid, rate: float, tokens: int) -> Piece:
    return Piece(tokens, grid, rate, heard=True)


PROMPTS: Mapping[str, Sequence[Piece]] = {
    "text": (said(7),),
    "sound": (said(3), sound(39), said(4)),
    "two sounds": (sound(13), said(1), sound(4)),
    "a wide picture": (said(3), picture(2, 9), said(5)),
    "a tall picture at once": (picture(7, 3), said(2)),
    "sound, then a picture": (said(2), sound(5), said(3), picture(4, 4), said(6)),
    "a picture, then sound": (said(2), picture(3, 2), sound(20), said(6)),
    "two pictures": (said(1), picture(2, 3), picture(5, 1), said(1)),
    "a slow video": (said(4), video((3, 2, 3), 1.0), said(4)),
    "a video with fractions": (said(4), video((4, 2, 2), 3.0), said(4), picture(2, 2), said(3)),
    "a fast video, high": (said(1), video((2, 30, 2), 24.0), said(2)),
    "a video and sound beside it": (said(1), video((2, 2, 2), 2.0), said(2), sound(8), said(1)),
    "a film": (said(4), film((3, 2, 2), 2.0, 39), said(5)),
    "a film whose sound ends first": (said(4), film((4, 3, 2), 1.0, 30), said(5)),
    "a film whose sound is short, and high": (said(2), film((2, 40, 1), 2.0, 15), said(5)),
    "a film whose pictures are high": (said(2), film((2, 40, 2), 2.0, 26), said(5)),
    "a film with fractions": (film((5, 2, 2), 30000 / 1001, 9), said(2), film((3, 1, 2), 3.0, 26), said(3)),
    "all of them": (said(3), picture(2, 2), said(1), sound(9), said(2), film((2, 2, 2), 2.0, 26), said(4)),
}
