"""Parts of a vocoder's stages in one launch each: see `vocoder_stage.cu`.

Shape letters: B streams, T places of each, C channels of the input, N columns of a place, K taps, O channels of a place
of the result, whose places are N / O times as many.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self

import torch
from torch import Tensor

from walkgraph.layers.kernels.snake_conv import OnwardTensors
from walkgraph.memory.cuda_source import CudaKernel, is_available

REACH = 54
"""The most places that the taps of a unit reach back."""
_BRICK = 8


class Cut(NamedTuple):
    """The tiles and buffers of a launch; the source explains the names."""

    channels: int
    columns: int
    width: int
    taps: int
    reach: int
    second: bool
    depth: int
    warpgroups: int
    ring: int
    rooms: int

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block."""
        rows = self.rooms * (64 * self.warpgroups + self.reach)
        rings = 2 * self.ring * self.depth * self.columns
        return rings + rows * (2 * self.channels + 16) + 16 * (self.ring + self.rooms)

    @property
    def defined(self) -> dict[str, int]:
        """The compiler's macros."""
        return {name.upper(): int(value) for name, value in self._asdict().items()}


UNITS = {
    96: Cut(96, 96, 96, 7, REACH, True, depth=96, warpgroups=2, ring=8, rooms=2),
    192: Cut(192, 192, 192, 7, REACH, True, depth=96, warpgroups=2, ring=3, rooms=1),
}
"""Residual units, by channels."""
RISES = {(192, 288): Cut(192, 288, 96, 2, 1, False, depth=64, warpgroups=2, ring=3, rooms=2)}
"""Upsampling convolutions, by channels and columns."""


class _Arguments(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("rows", "weights", "x", "room", "before", "after")),
        *((name, ctypes.c_void_p) for name in ("bias", "turns", "height", "shift", "next_turns", "next_height")),
        *((name, ctypes.c_int) for name in ("batch", "length", "in_rows", "dilation", "room_row", "tail_row")),
        *((name, ctypes.c_int) for name in ("tail", "keep")),
    ]


class _Launch:
    """One kernel with its weights."""

    def __init__(self, cut: Cut, weights: Tensor, dilation: int) -> None:
        """weights: those of `bricks`."""
        self._weights, self._dilation, self._cut = weights, dilation, cut
        self._kernel = _compiled(cut, weights.device)

    def run(
        self, rows: Tensor, length: int, x: Tensor, inner: tuple[Tensor, ...], onward: OnwardTensors, keep: bool
    ) -> None:
        """rows `[B, R, C]`, of which `length` places are made; x `[B, ..]`; inner: bias, half turns and height between
        two products."""
        shift, turns, height, room, before, after = onward
        if any(one.data_ptr() % 16 or one.stride(0) % _BRICK for one in (before, after)):
            raise ValueError("tails must begin at multiples of 16 bytes")
        tensors = (rows, self._weights, x, room, before, after, *inner, shift, turns, height)
        pointers = [one.data_ptr() for one in tensors]
        sizes = (len(rows), length, rows.stride(0) // rows.shape[2], self._dilation, room.stride(0), before.stride(0))
        groups = self._cut.warpgroups
        tiles = len(rows) * -(-length // (64 * groups))
        blocks = min(tiles, torch.cuda.get_device_properties(x.device).multi_processor_count)
        self._kernel.launch_early(blocks, 128 * (groups + 1), _Arguments(*pointers, *sizes, before.shape[1], keep))


class UnitLaunch:
    """A residual unit."""

    def __init__(self, first: Tensor, bias: Tensor, second: Tensor, dilation: int) -> None:
        """The arguments are those of `of`, and have a launch."""
        cut, order = UNITS[len(first)], columns(len(first)).to(first.device)
        taps = [*first[order].unbind(2), second[order][:, order]]
        self._bias, self._launch = bias.float(), _Launch(cut, bricks(taps, cut.depth), dilation)

    @classmethod
    def of(cls, first: Tensor, bias: Tensor, second: Tensor, dilation: int) -> Self | None:
        """first `[C, C, K]` and second `[C, C]`: weights in torch's layout; bias `[C]`: the first convolution's. None
        where there is no launch for them."""
        cut = UNITS.get(len(first))
        if cut is None or first.shape[1:] != (cut.channels, cut.taps) or not _served(first):
            return None
        return cls(first, bias, second, dilation) if (cut.taps - 1) * dilation <= cut.reach else None

    def __call__(
        self, rows: Tensor, x: Tensor, waves: tuple[Tensor, Tensor], onward: OnwardTensors, *, keep: bool
    ) -> None:
        """rows `[B, R, C]`; x `[B, T, C]`, to which the unit is added if `keep`; waves: float32 `[C]` half turns and
        height of the snake behind the first convolution. All are contiguous but tails, whose rows are, and all begin at
        multiples of 16 bytes: raises ValueError for other tails."""
        self._launch.run(rows, x.shape[1], x, (self._bias, *waves), onward, keep)


class RiseLaunch:
    """An upsampling convolution."""

    def __init__(self, weight: Tensor, cut: Cut) -> None:
        """weight `[C, K * N]`: what a row gives its own places, then what it gives the places before."""
        order = columns(cut.columns).to(weight.device)
        # The room's first row is the one before a place.
        taps = [part.t()[order] for part in reversed(weight.chunk(cut.taps, 1))]
        self._launch = _Launch(cut, bricks(taps, cut.depth), 1)

    @classmethod
    def of(cls, weight: Tensor, taps: int) -> Self | None:
        """The arguments as above; None where there is no launch for them."""
        cut = RISES.get((len(weight), weight.shape[1] // taps))
        return cls(weight, cut) if cut is not None and cut.taps == taps and _served(weight) else None

    def __call__(self, rows: Tensor, length: int, kept: Tensor, onward: OnwardTensors) -> None:
        """rows `[B, R, C]`, of which `length` places are made; kept `[B, T * N / O, O]`: where the sums go. The layout
        as in `UnitLaunch`."""
        shift, turns, height = onward[:3]
        self._launch.run(rows, length, kept, (shift, turns, height), onward, True)


def _served(weight: Tensor) -> bool:
    if not weight.is_cuda or weight.dtype != torch.bfloat16:
        return False
    return torch.cuda.get_device_capability(weight.device) == (9, 0) and is_available()


@cache
def _compiled(cut: Cut, device: torch.device) -> CudaKernel:
    return CudaKernel(Path(__file__).with_suffix(".cu"), "vocoder_stage", cut.defined, cut.shared)


def bricks(taps: list[Tensor], depth: int) -> Tensor:
    """Weights `[N, C]` of each tap as a launch reads them, stage after stage: `[len(taps) * C / depth, depth / 8,
    N / 8, 8, 8]`, in each brick the columns before the depth."""
    by_depth = torch.stack(taps).transpose(1, 2)
    split = by_depth.unflatten(2, (-1, _BRICK)).unflatten(1, (-1, depth // _BRICK, _BRICK))
    return split.transpose(3, 4).transpose(4, 5).flatten(0, 1).contiguous()


def columns(count: int) -> Tensor:
    """The channels in the order of the products' columns, int64 `[N]`: a lane has two of every eight columns, and by
    this order eight adjacent channels of each 32."""
    return torch.arange(count).view(-1, 4, 4, 2).transpose(1, 2).flatten()
