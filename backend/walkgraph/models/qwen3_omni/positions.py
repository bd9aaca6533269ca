"""Positions of a prompt's rows in time, row and column, piece by piece.

A piece of a prompt is text, or sound, a picture or a video between its special tokens. Text and sound take a position
a row, the same on all three axes. The cells of a picture start at one position and count rows and columns of its grid;
those of a video also count time, which may give fractions. What follows a piece starts after its largest position.

All numbers are float32, as in the published code, also those that follow fractions.

Shape letters: m rows of a piece, its special tokens included.
"""

from typing import NamedTuple

import torch
from torch import Tensor

Grid = tuple[int, int, int]
"""Frames, rows and columns of the embeddings of a picture or a video."""
PER_SECOND = 13.0
"""Positions that a second takes: sound has as many embeddings."""


class Span(NamedTuple):
    """The positions of a piece."""

    rows: Tensor
    """float32 `[m, 3]`: time, row and column."""
    next: float
    """Position at which the piece after it starts."""
    top: float
    """One more than its largest position: tokens that are generated go on after the largest one of a whole prompt.
    Only a video with sound may have positions beyond `next`."""


def text(count: int, start: float = 0.0) -> Span:
    """Tokens, one after the other."""
    return _ended(_line(count, start))


def sound(tokens: int, start: float = 0.0) -> Span:
    """Sound of so many embeddings, between two special tokens."""
    return text(tokens + 2, start)


def picture(grid: Grid, start: float = 0.0) -> Span:
    """A picture between two special tokens."""
    return video(grid, 1 / PER_SECOND, start)


def video(grid: Grid, seconds: float, start: float = 0.0, *, per_second: float = PER_SECOND) -> Span:
    """A video between two special tokens; `seconds`: how long a frame of its grid takes."""
    cells = _cells(grid, _times(grid, seconds, per_second), start + 1)
    last = _line(1, _after(cells))
    return _ended(torch.cat([_line(1, start), cells, last]), last)


def film(grid: Grid, seconds: float, tokens: int, start: float = 0.0, *, per_second: float = PER_SECOND) -> Span:
    """A video with sound of so many embeddings, between two special tokens of each; both start together, and their rows
    are in the order of `film_order`."""
    cells, heard = _cells(grid, _times(grid, seconds, per_second), start + 2), _line(tokens, start + 2)
    order = torch.cat([cells[:, 0], heard[:, 0]]).argsort(stable=True)
    rows = torch.cat([cells, heard])[order]
    seen = order < len(cells)
    # What follows starts after the rows at the end that are of one kind, although earlier ones may be larger.
    tail = int((seen != seen[-1]).nonzero().max()) + 1 if bool((seen != seen[-1]).any()) else 0
    last = _line(2, _after(rows[tail:]))
    return _ended(torch.cat([_line(2, start), rows, last]), last)


def film_order(grid: Grid, seconds: float, tokens: int, *, per_second: float = PER_SECOND) -> Tensor:
    """int64 `[n]`: the rows of a film in order of their time, a video's before sound's where both are the same; numbers
    count the video's rows, then those of sound."""
    frames, rows, columns = grid
    times = (torch.arange(frames, dtype=torch.float64) * seconds * per_second).repeat_interleave(rows * columns)
    return torch.cat([times, torch.arange(tokens, dtype=torch.float64)]).argsort(stable=True)


def _times(grid: Grid, seconds: float, per_second: float) -> Tensor:
    """float32 `[frames]`: positions from the first frame on."""
    return torch.arange(grid[0]) * torch.tensor(seconds, dtype=torch.float32) * per_second


def _cells(grid: Grid, times: Tensor, start: float) -> Tensor:
    """`[frames * rows * columns, 3]`"""
    axes = (times, *(torch.arange(count, dtype=torch.float32) for count in grid[1:]))
    return torch.cartesian_prod(*axes).view(-1, 3) + start


def _line(count: int, start: float) -> Tensor:
    """`[count, 3]`: one position after the other."""
    return (torch.arange(count, dtype=torch.float32) + start)[:, None].expand(-1, 3)


def _after(rows: Tensor) -> float:
    return (rows.max() + 1).item()


def _ended(rows: Tensor, last: Tensor | None = None) -> Span:
    """`last`: the rows that are placed last, if they aren't all."""
    return Span(rows, _after(rows if last is None else last), _after(rows))
