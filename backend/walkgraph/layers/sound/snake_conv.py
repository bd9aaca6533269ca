"""Chains of causal convolutions with snakes between them: each hands the snake of its result on to the next one.

What a convolution makes lacks the biases that its reader adds. Its snake is written behind the tail of the convolution
that reads it, and is that convolution's room (`walkgraph.layers.sound.causal_conv.Tails`). In bfloat16 on a GPU all of
that is the end of the product, in one launch, except in wide convolutions of many places, which are cuDNN's. Narrow
stages have launches that read a tile's rows once for all taps.

Shape letters: B streams, T places of a chunk, P places of a tail, S spare places, C channels of the input, O of the
output.
"""

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor, nn

from walkgraph.layers.linear.packed import UNPACKED, Packable
from walkgraph.layers.sound.causal_conv import CausalConv, MonoConv, Tails, Upsample
from walkgraph.layers.sound.snake import half_turns, snake_beta

_MAJOR = 9
"""Compute capability that the kernels are written and measured for."""
_ALIGNED = 32
"""Channels that a tile has a multiple of."""
_MANY, _WIDE = 150, 512
"""Above so many tiles, the library's products and the passes behind them are faster, except convolutions of fewer
channels than `_WIDE` without dilation."""


class Snake(Packable):
    """`walkgraph.layers.sound.snake.snake_beta`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(width))
        self.beta = nn.Parameter(torch.zeros(width))
        self._waves: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor, shift: Tensor, out: Tensor) -> None:
        snake_beta(x, self.alpha, self.beta, shift, out=out)

    @property
    def waves(self) -> tuple[Tensor, Tensor]:
        """float32 `[C]` each: half turns of the sine per unit, and the height of its square."""
        if self._waves is None:
            raise RuntimeError(UNPACKED)
        return self._waves

    def pack(self) -> None:
        self._waves = half_turns(self.alpha, self.beta)

    @property
    def is_packed(self) -> bool:
        return self._waves is not None


class Onward(NamedTuple):
    """The memory to which a result goes."""

    snake: Snake
    shift: Tensor
    """`[O]`: the sum of the biases that the result lacks."""
    reader: CausalConv | MonoConv | Upsample
    """The convolution that reads the snake."""
    tails: Tails

    def room(self, x: Tensor) -> Tensor:
        """The snake of x `[B, T, O]` behind the reader's tail -> `[B, P + T + S, O]`."""
        places, length = self.reader.places, x.shape[1]
        room = self.tails.room(places, x, self._spare(length))
        filled = room[:, : places + length]
        self.snake(x, self.shift, filled[:, places:])
        self.tails.keep(filled, places)
        return room

    def opened(self, like: Tensor, length: int, kernels: ModuleType) -> "tuple[Tensor, tuple[Tensor, ...]]":
        """The same for a kernel to fill, without spare places where a kernel reads it."""
        batch, places, channels = like.shape[0], self.reader.places, len(self.shift)
        reads = isinstance(self.reader, CausalConv) and _prefers_library(self.reader, batch, length, kernels)
        room = like.new_empty(batch, places + length + (self._spare(length) if reads else 0), channels)
        return room, kernels.OnwardTensors(self.shift, *self.snake.waves, room, *self.tails.take(places * channels))

    def _spare(self, length: int) -> int:
        return self.reader.spare(length) if isinstance(self.reader, CausalConv) else 0


Launch = Callable[..., None]
"""One of `walkgraph.layers.kernels.vocoder_stage`, whose module needs CUDA."""


def unit_launch(first: CausalConv, second: CausalConv) -> Launch | None:
    """Returns the launch that computes units of these weights; None where there is none."""
    weight = first.conv.weight
    if _kernels(weight.transpose(1, 2)) is None:
        return None
    from walkgraph.layers.kernels.vocoder_stage import UnitLaunch

    return UnitLaunch.of(weight, first.bias, second.conv.weight[..., 0], first.dilation)


def rise_launch(conv: Upsample) -> Launch | None:
    """Returns the launch of an upsampling convolution, or None."""
    weight = conv.conv.weight.transpose(1, 2).flatten(1)
    if _kernels(weight.t()[None]) is None:
        return None
    from walkgraph.layers.kernels.vocoder_stage import RiseLaunch

    return RiseLaunch.of(weight, conv.reach)


def enter(conv: CausalConv, room: Tensor, onward: Onward) -> Tensor:
    """A convolution without dilation of a whole room -> the reader's room."""
    kernels, length = _kernels(room, conv.conv.out_channels), room.shape[1] - conv.places
    if kernels is None or _prefers_library(conv, len(room), length, kernels):
        return onward.room(conv(room))
    made, to = onward.opened(room, length, kernels)
    kernels.convolve(room, conv.flat, length, taps=conv.taps, dilation=conv.dilation, onward=to)
    return made


def upsample(conv: Upsample, room: Tensor, onward: Onward, launch: Launch | None = None) -> tuple[Tensor, Tensor]:
    """-> what it makes `[B, T, O]`, and the reader's room. launch: that of `rise_launch`."""
    channels = conv.conv.out_channels
    kernels, length = _kernels(room, channels), room.shape[1] - conv.places
    if kernels is None:
        x = conv(room)
        return x, onward.room(x)
    x = room.new_empty(room.shape[0], length * conv.rate, channels)
    made, to = onward.opened(x, length * conv.rate, kernels)
    if launch is not None:
        launch(room, length, x, to)
    else:
        kernels.convolve(room, conv.flat, length, taps=conv.reach, up=True, kept=x, onward=to)
    return x, made


def unit(
    first: CausalConv,
    between: Snake,
    second: CausalConv,
    room: Tensor,
    x: Tensor,
    onward: Onward,
    *,
    keep: bool,
    launch: Launch | None = None,
) -> Tensor:
    """x + second(between(first(room))), second of one tap: into x if `keep`, which may or may not hold it otherwise;
    and its snake -> the reader's room. launch: that of `unit_launch`."""
    length, channels = x.shape[1:]
    kernels = _kernels(x, channels)
    if launch is not None and kernels is not None:
        made, to = onward.opened(x, length, kernels)
        launch(room, x, between.waves, to, keep=keep)
        return made
    if kernels is None or _prefers_library(first, len(x), length, kernels):
        inner = first(room)[:, :length]
        inner = snake_beta(inner, between.alpha, between.beta, first.bias)
        x.view(-1, channels).addmm_(inner.view(-1, channels), second.conv.weight[..., 0].t())
        return onward.room(x)
    inner, nothing = torch.empty_like(x), x.new_empty(len(x), 0)
    inward = kernels.OnwardTensors(first.bias, *between.waves, inner, nothing, nothing)
    kernels.convolve(room, first.flat, length, taps=first.taps, dilation=first.dilation, onward=inward)
    if kernels.tiles_of(len(x), length, channels) > _MANY:
        x.view(-1, channels).addmm_(inner.view(-1, channels), second.conv.weight[..., 0].t())
        return onward.room(x)
    made, to = onward.opened(x, length, kernels)
    kernels.convolve(inner, second.flat, length, x=x, kept=x if keep else None, onward=to)
    return made


def leave(conv: MonoConv, room: Tensor) -> Tensor:
    """A whole room -> float32 `[B, T]` in [-1, 1]."""
    kernels = _kernels(room)
    return conv(room).clamp(-1, 1) if kernels is None else kernels.mono(room, conv.conv.weight[0], conv.conv.bias)


def _prefers_library(conv: CausalConv, batch: int, length: int, kernels: ModuleType) -> bool:
    channels = conv.conv.out_channels
    if channels < _WIDE and conv.dilation == 1:
        return False
    return kernels.tiles_of(batch, length, channels) > _MANY


def _kernels(x: Tensor, columns: int = _ALIGNED) -> ModuleType | None:
    """The kernels, if they serve x `[B, T, C]` and as many columns."""
    if not x.is_cuda or x.dtype != torch.bfloat16 or x.shape[-1] % _ALIGNED or columns % _ALIGNED:
        return None
    if torch.cuda.get_device_capability(x.device)[0] != _MAJOR:
        return None
    from walkgraph.layers.kernels import snake_conv

    return snake_conv
