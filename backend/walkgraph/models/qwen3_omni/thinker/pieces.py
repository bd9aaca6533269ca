"""One piece of a conversation, as a call of the thinker appends it: a text, or media between their marks.

Shape letters: m rows of a piece, n rows of its media, W width.
"""

import math
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed
from walkgraph.models.qwen3_omni import positions
from walkgraph.models.qwen3_omni.positions import Grid, Span
from walkgraph.models.qwen3_omni.thinker.config import Marks, ThinkerConfig

MEDIA = ("image", "audio")
"""Ports with rows of media. Both together are a film: a video, and its sound."""


_MOST: Final = (1 << 62) - 1
"""The largest number of a name."""


class Piece(NamedTuple):
    """A piece with media."""

    ids: Tensor
    """int64 `[m]`, on the CPU: marks, and for each row of media the token that stands for it."""
    span: Span
    """Positions, counted from the piece's first row."""
    order: Tensor
    """int64 `[n]`, on the CPU: the rows of media in their order, as indices into those of `image`, then `audio`."""

    @property
    def marks(self) -> int:
        """Marks before the media, and as many after."""
        return (len(self.ids) - len(self.order)) // 2


def ports_of(call: Call) -> list[str]:
    """The ports whose values decide what a call with media appends."""
    return [port for port in ("image", "deepstack", "grid", "seconds", "audio") if call.inputs.get(port) is not None]


def is_media(call: Call) -> bool:
    return any(call.inputs.get(port) is not None for port in MEDIA)


def rows_of(call: Call) -> int:
    """Rows that a call with media appends."""
    counts = [len(call.inputs[port]) for port in MEDIA if call.inputs.get(port) is not None]
    return sum(counts) + 2 * sum(count > 0 for count in counts)


def piece_of(call: Call, config: ThinkerConfig) -> Piece:
    """Lay out a call with media. Raises CallFailed for values that don't fit each other or the config."""
    if any(call.inputs.get(port) is not None for port in ("ids", "token")):
        raise CallFailed(f"`{call.node}` takes either tokens or media in one call")
    seen = _rows(call, "image", config)
    heard = _rows(call, "audio", config, least=0 if seen else 1)
    if not seen:
        return _laid_out(config.marks, heard)
    grid, seconds = _grid(call, seen), _seconds(call)
    if config.deepstack:
        _fit(call, "deepstack", (config.deepstack, seen, config.llm.width))
    if heard and seconds is None:
        raise CallFailed(f"`{call.node}` needs `seconds` for a video with its sound", "seconds")
    return _laid_out(config.marks, heard, grid, seconds, config.rate)


@lru_cache(maxsize=64)
def _laid_out(
    marks: Marks, heard: int, grid: Grid | None = None, seconds: float | None = None, rate: float = 0.0
) -> Piece:
    """A piece is laid out again for each thing that is asked of its call, and alike for sounds of one length."""
    if grid is None:
        ids = [marks.audio_start, *[marks.audio] * heard, marks.audio_end]
        return Piece(torch.tensor(ids), positions.sound(heard), torch.arange(heard))
    seen, row = math.prod(grid), marks.image if seconds is None else marks.video
    if heard and seconds is not None:
        order = positions.film_order(grid, seconds, heard, per_second=rate)
        between = torch.where(order < seen, marks.video, marks.audio)
        begin, end = [marks.vision_start, marks.audio_start], [marks.audio_end, marks.vision_end]
        ids = torch.cat([torch.tensor(begin), between, torch.tensor(end)])
        return Piece(ids, positions.film(grid, seconds, heard, per_second=rate), order)
    ids = torch.tensor([marks.vision_start, *[row] * seen, marks.vision_end])
    span = positions.video(grid, 1.0 if seconds is None else seconds, per_second=rate)
    return Piece(ids, span, torch.arange(seen))


def names_of(count: int, digest: bytes | None, own: bytes) -> Tensor:
    """int64 `[m]` on the CPU: names of the last rows of a sequence, numbers that tell what they were computed from.
    None of them is a token; they are -1 if that isn't known. `digest`: of the whole sequence; `own`: tells the weights
    that computed it from others."""
    if digest is None:
        return torch.full((count,), -1)
    made = blake2b(own + digest, digest_size=16).digest()
    first, step = (int.from_bytes(half) >> 1 for half in (made[:8], made[8:]))
    # Two rows tell all of the digest; the numbers stay below zero, and wrap.
    numbers = (first + torch.arange(count) * (step | 1)) & _MOST
    return -2 - numbers


def media_rows(call: Call) -> Tensor:
    """`[n, W]`: the rows of a call's media, not in their order."""
    return torch.cat([call.inputs[port] for port in MEDIA if call.inputs.get(port) is not None])


def visual_rows(call: Call, piece: Piece) -> Tensor:
    """int64 on the CPU: the rows of the piece that hold pictures, as `image` orders them."""
    seen = 0 if call.inputs.get("image") is None else len(call.inputs["image"])
    return piece.marks + piece.order.argsort()[:seen]


def _rows(call: Call, port: str, config: ThinkerConfig, least: int = 1) -> int:
    """The count of a port's rows; 0 if it has no value. `least`: the least rows of a value; a video's sound may have
    none."""
    value = call.inputs.get(port)
    if value is None:
        return 0
    _fit(call, port, (max(len(value) if value.dim() else 0, least), config.llm.width))
    return len(value)


def _fit(call: Call, port: str, wanted: tuple[int, ...]) -> None:
    value = call.inputs.get(port)
    if value is None or tuple(value.shape) != wanted:
        got = "nothing" if value is None else f"shape {list(value.shape)}"
        raise CallFailed(f"`{call.node}.{port}` takes shape {list(wanted)}, and got {got}", port)


def _grid(call: Call, seen: int) -> Grid:
    value = call.inputs.get("grid")
    # The host's own copy, if it has one: reading the device's would wait for it.
    grid = [] if value is None else call.numbers("grid") or [int(number) for number in value.tolist()]
    if len(grid) != 3 or min(grid) < 1 or math.prod(grid) != seen:
        raise CallFailed(f"`{call.node}.grid` takes frames, rows and columns of {seen} rows, and got {grid}", "grid")
    frames, rows, columns = grid
    return frames, rows, columns


def _seconds(call: Call) -> float | None:
    value = call.inputs.get("seconds")
    if value is None:
        return None
    seconds = float(value)
    if not 0 < seconds < math.inf:
        raise CallFailed(f"`{call.node}.seconds` must be above 0, and is {seconds}", "seconds")
    return seconds
