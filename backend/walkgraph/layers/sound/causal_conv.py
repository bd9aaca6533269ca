"""Causal convolutions of streams, channels last: a chunk is convolved behind the end of the chunk before it.

The *tail* of a convolution is the end of its input that the next chunk needs; before a stream begins it is zeros, as
causal padding is. Results don't depend on how a stream is cut into chunks.

Shape letters: B streams, T places of a chunk, P places of a tail, S spare places, C channels of the input, O of the
output, K taps.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.layers.linear.packed import UNPACKED, Packable


class Tails:
    """The tails of a network's convolutions, one after the other in a row of numbers per stream, in the order in which
    the convolutions run."""

    def __init__(self, before: Tensor) -> None:
        """before `[B, N]`"""
        self._before, self.after, self._at = before, torch.empty_like(before), 0

    def room(self, places: int, like: Tensor, spare: int = 0) -> Tensor:
        """`[B, P + T + S, C]` that begins with the next tail, for the caller to write an input like `[B, T, C]` behind
        it and to `keep` all but the spare places, which stay unset."""
        batch, length, channels = like.shape
        room = like.new_empty(batch, places + length + spare, channels)
        room[:, :places] = self._next(self._before, places, channels)
        return room

    def keep(self, room: Tensor, places: int) -> None:
        """Keep the end of a filled room as the tail for the next chunk."""
        channels = room.shape[-1]
        self._next(self.after, places, channels).copy_(room[:, room.shape[1] - places :])
        self._at += places * channels

    def take(self, numbers: int) -> tuple[Tensor, Tensor]:
        """The next tail, and where the caller must write the one for the next chunk: `[B, numbers]`."""
        part = slice(self._at, self._at + numbers)
        self._at += numbers
        return self._before[:, part], self.after[:, part]

    def behind(self, x: Tensor, places: int, spare: int = 0) -> Tensor:
        """x `[B, T, C]` behind its tail, which it then replaces -> `[B, P + T + S, C]`."""
        room, end = self.room(places, x, spare), places + x.shape[1]
        room[:, places:end] = x
        self.keep(room[:, :end], places)
        return room

    def _next(self, rows: Tensor, places: int, channels: int) -> Tensor:
        return rows[:, self._at : self._at + places * channels].unflatten(1, (places, channels))


class CausalConv(Packable):
    """A convolution whose taps reach backward. Its parameters are those of `conv`, in torch's layout; `pack` lays them
    out with the channels last.

    Places a dilation apart are read together: as rows of `dilation` columns, an input needs a convolution without
    dilation along its columns. cuDNN has fast kernels for those alone.
    """

    def __init__(self, into: int, out: int, taps: int, *, dilation: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(into, out, taps, dilation=dilation)
        self.taps, self.dilation = taps, dilation
        self.places = (taps - 1) * dilation
        self._kernel: Tensor | None = None
        """`[O, C, K, 1]`"""

    @property
    def bias(self) -> Tensor:
        return _bias(self.conv)

    @property
    def flat(self) -> Tensor:
        """The packed weight as `[O, K * C]`."""
        if self._kernel is None:
            raise RuntimeError(UNPACKED)
        return self.conv.weight.transpose(1, 2).flatten(1)

    def spare(self, length: int) -> int:
        """The unset places that an input of `length` needs behind it to be whole rows."""
        return -length % self.dilation

    def forward(self, room: Tensor, bias: Tensor | None = None) -> Tensor:
        """room `[B, P + T + S, C]` -> `[B, T + S, O]`, whose spare places are unset. Without `bias` it is left to
        whatever reads the result."""
        if self._kernel is None:
            raise RuntimeError(UNPACKED)
        image = room.unflatten(1, (-1, self.dilation)).permute(0, 3, 1, 2)
        made = F.conv2d(image, self._kernel, bias)
        return made.permute(0, 2, 3, 1).contiguous().flatten(1, 2)

    def pack(self) -> None:
        weight = self.conv.weight.data.transpose(1, 2).contiguous()
        self.conv.weight = nn.Parameter(weight.transpose(1, 2), requires_grad=False)
        self._kernel = weight[:, :, None].permute(0, 3, 1, 2)

    @property
    def is_packed(self) -> bool:
        return self._kernel is not None


class MonoConv(nn.Module):
    """A causal convolution of all channels into one: one product for all taps, whose shifted rows are summed in
    float32."""

    def __init__(self, into: int, taps: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(into, 1, taps)
        self.places = taps - 1

    def forward(self, room: Tensor) -> Tensor:
        """room `[B, P + T, C]` -> float32 `[B, T]`"""
        by_tap = (room @ self.conv.weight[0]).float()
        batch, rows, taps = by_tap.shape
        shifted = by_tap.as_strided((batch, rows - self.places, taps), (rows * taps, taps, taps + 1))
        return shifted.sum(-1) + _bias(self.conv).float()


class DepthwiseConv(nn.Module):
    """A causal convolution of each channel alone: sums of shifted rows, in float32."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, taps, groups=channels)
        self.places = taps - 1

    def forward(self, room: Tensor) -> Tensor:
        """room `[B, P + T, C]` -> `[B, T, C]`"""
        taps = self.conv.weight[:, 0].float()
        made = (room.unfold(1, self.places + 1, 1) * taps).sum(-1) + _bias(self.conv)
        return made.to(room.dtype)

    def normed(
        self, x: Tensor, lacks: Tensor, norm: nn.LayerNorm, tails: Tails, *, then: Tensor
    ) -> tuple[Tensor, Tensor]:
        """x `[B, T, C]`, which lacks a bias `[C]` -> x with both biases, and the norm of the convolution of x with the
        one that it lacks. x is consumed."""
        if x.is_cuda and x.dtype == torch.bfloat16 and x.is_contiguous():
            from walkgraph.layers.kernels.depthwise import depthwise_norm

            before, after = tails.take(self.places * x.shape[-1])
            return depthwise_norm(x, lacks, then, before, after, self.conv.weight[:, 0], _bias(self.conv), norm)
        x = x + lacks
        return x + then, norm(self(tails.behind(x, self.places)))


class Upsample(Packable):
    """A transposed convolution with a stride of `rate` and one or two times as many taps, cut on both sides so that
    every place comes from `reach` inputs: its own and, if there are two, the next one.

    One product makes all `rate` places of an input. The output of a stream's last input needs an input that never
    comes, and so is missing.
    """

    def __init__(self, into: int, out: int, rate: int, reach: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(into, out, reach * rate, rate)
        self.rate, self.reach = rate, reach
        self._weight: Tensor | None = None
        """`[C * reach, rate * O]`"""

    @property
    def places(self) -> int:
        return self.reach - 1

    @property
    def bias(self) -> Tensor:
        return _bias(self.conv)

    @property
    def flat(self) -> Tensor:
        """The packed weight as `[C, reach * rate * O]`: what an input gives its own places, then the places before."""
        if self._weight is None:
            raise RuntimeError(UNPACKED)
        return self._weight.view(self.conv.in_channels, -1)

    def forward(self, x: Tensor) -> Tensor:
        """x `[B, T, C]`, with the tail before it unless it begins the stream -> `[B, (T - reach + 1) * rate, O]`,
        without the bias, which is left to whatever reads the result."""
        if self._weight is None:
            raise RuntimeError(UNPACKED)
        if self.reach > 1:
            x = torch.stack([x[:, 1:], x[:, :-1]], -1).flatten(2)
        return (x @ self._weight).view(x.shape[0], x.shape[1] * self.rate, self.conv.out_channels)

    def pack(self) -> None:
        weight = self.conv.weight.data.transpose(1, 2).contiguous()
        self.conv.weight = nn.Parameter(weight.transpose(1, 2), requires_grad=False)
        self._weight = weight.view(weight.shape[0] * self.reach, -1)

    @property
    def is_packed(self) -> bool:
        return self._weight is not None


def packed(module: nn.Module) -> None:
    """Pack every part of a module."""
    for part in module.modules():
        if isinstance(part, Packable):
            part.pack()


def _bias(conv: nn.Conv1d | nn.ConvTranspose1d) -> Tensor:
    if conv.bias is None:
        raise ValueError("these convolutions have biases")
    return conv.bias
