"""Code2Wav: frames of codes to sound, for streams that come in chunks.

A frame's codes become one embedding; a causal transformer reads it with the frames of its window; then convolutions
and transposed convolutions make `frame_samples` samples of it. Each transposed convolution of the decoder needs the
next input, so the sound of a stream stays `ahead` samples behind its frames, and the reference never makes the last
ones. What a stream's next chunk needs of the ones before is in its `StreamState`, of one size at any length: a chunk's
samples are the same however the stream is cut.

Parameter names are the public checkpoint's; its layer scales are folded into the weights before them.

Shape letters: B streams, n frames of each, K codes of a frame, T places of a stage, C channels.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from walkgraph.layers.attention.sliding_window import WindowAttend
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.mlp import SwiGLU
from walkgraph.layers.linear.packed import Packable
from walkgraph.layers.linear.product import product
from walkgraph.layers.linear.step_linear import STREAMED
from walkgraph.layers.norm.rms_norm import RMSNorm
from walkgraph.layers.rope import NeoxRope
from walkgraph.layers.sound.causal_conv import CausalConv, DepthwiseConv, MonoConv, Tails, Upsample
from walkgraph.layers.sound.snake_conv import (
    Launch,
    Onward,
    Snake,
    enter,
    leave,
    rise_launch,
    unit,
    unit_launch,
    upsample,
)
from walkgraph.layers.sound.speech import frame_rows
from walkgraph.models.qwen3_omni.vocoder.config import VocoderConfig

_ROWS = 400
"""Frames of all streams that are decoded at once; the largest activations of a frame take 0.7 MiB in float32."""
_KERNEL = 7
_DILATIONS = (1, 3, 9)
_EPS = 1e-6


class StreamState(NamedTuple):
    """The states that streams keep between chunks; zeros before they begin."""

    window: Tensor
    """`[S, L, 2, P, G, D]`: keys and values of the last frames, in a table of which each stream has a row: one after
    the other, if nothing else is said."""
    tails: Tensor
    """`[B, N]`: ends of the inputs of all convolutions."""


class ConvNeXt(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.dwconv = DepthwiseConv(width, _KERNEL)
        self.norm = nn.LayerNorm(width, eps=_EPS)
        self.pwconv1 = nn.Linear(width, 4 * width)
        self.pwconv2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, lacks: Tensor, tails: Tails) -> Tensor:
        """x `[B, T, W]`, which lacks a bias, is consumed -> the same."""
        x, normed = self.dwconv.normed(x, lacks, self.norm, tails, then=self.pwconv2.bias)
        rows = product(normed.flatten(0, 1), self.pwconv1.weight, self.pwconv1.bias, activation="gelu")
        return product(rows, self.pwconv2.weight, residual=x.flatten(0, 1)).view_as(x)


class ResidualUnit(Packable):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.act1 = Snake(width)
        self.conv1 = CausalConv(width, width, _KERNEL, dilation=dilation)
        self.act2 = Snake(width)
        self.conv2 = CausalConv(width, width, 1)
        self._launch: Launch | None = None
        self._packed = False

    def forward(self, room: Tensor, x: Tensor, onward: Onward, *, keep: bool) -> Tensor:
        """room: the snake of x; the unit is added to x -> the room of what reads the sum. x lacks the biases of all
        that was added to it, and so does the result: adding each of them would take a pass."""
        return unit(self.conv1, self.act2, self.conv2, room, x, onward, keep=keep, launch=self._launch)

    def pack(self) -> None:
        self._launch, self._packed = unit_launch(self.conv1, self.conv2), True

    @property
    def is_packed(self) -> bool:
        return self._packed


class DecoderBlock(Packable):
    """One stage: upsampling and three residual units."""

    def __init__(self, width: int, rate: int) -> None:
        super().__init__()
        units = [ResidualUnit(width // 2, dilation) for dilation in _DILATIONS]
        self.block = nn.ModuleList([Snake(width), Upsample(width, width // 2, rate, 2), *units])
        self._launch: Launch | None = None
        self._shifts: tuple[Tensor, ...] = ()
        """The biases that x lacks before each unit, and behind the last one: float32."""

    @property
    def begin(self) -> tuple[Snake, Upsample]:
        """The snake before the stage, and what reads it."""
        return cast("Snake", self.block[0]), cast("Upsample", self.block[1])

    @property
    def lacking(self) -> Tensor:
        """The sum of the biases that the stage's result lacks."""
        return self._shifts[-1]

    def forward(self, room: Tensor, onward: Onward, *, first: bool) -> Tensor:
        """room: that of `begin` -> that of what reads the stage's result."""
        (_, rise), units = self.begin, list(cast("Iterable[ResidualUnit]", self.block[2:]))
        ways = [
            Onward(one.act1, lacks, one.conv1, onward.tails) for one, lacks in zip(units, self._shifts, strict=False)
        ]
        x, room = upsample(rise, room[:, rise.places :] if first else room, ways[0], self._launch)
        for one, way in zip(units, (*ways[1:], onward), strict=True):
            room = one(room, x, way, keep=way is not onward)
        return room

    def pack(self) -> None:
        upsample, units = cast("Upsample", self.block[1]), cast("Iterable[ResidualUnit]", self.block[2:])
        biases = [upsample.bias, *(unit.conv2.bias for unit in units)]
        self._shifts = tuple(torch.stack(biases).float().cumsum(0).unbind())
        self._launch = rise_launch(upsample)

    @property
    def is_packed(self) -> bool:
        return bool(self._shifts)


class Transformer(nn.Module):
    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        shape = config.layer_of(width=config.width, hidden=config.hidden)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(config.layers))
        self.norm = RMSNorm(config.width, config.norm_eps)
        self.rope = NeoxRope(config.head_dim, config.rope_theta)

    def forward(self, x: Tensor, attend: WindowAttend) -> Tensor:
        """x `[B, n, W]` is consumed -> the same."""
        batch, frames = x.shape[:2]
        rows = x.flatten(0, 1)
        for index, layer in enumerate(cast("Iterable[DecoderLayer]", self.layers)):
            attention, norm = layer.self_attn, cast("RMSNorm", layer.get_submodule("input_layernorm"))
            heads = attend(index, attention.few_qkv(rows, norm, ""), attention.shape.heads)
            rows = layer.attended(heads, rows) if len(rows) <= STREAMED else _attended(layer, heads, rows)
        return self.norm(rows).unflatten(0, (batch, frames))


def _attended(layer: DecoderLayer, heads: Tensor, x: Tensor) -> Tensor:
    """`DecoderLayer.attended` for many rows x, which are consumed."""
    x = product(heads, layer.self_attn.part("o_proj", "").weight, residual=x)
    norm, mlp = layer.get_submodule("post_attention_layernorm"), cast("SwiGLU", layer.get_submodule("mlp"))
    inner = mlp.opened(norm(x))
    return product(inner, mlp.down_proj.weight, residual=x)


class Code2Wav(nn.Module):
    """Serves once it is packed."""

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        width, widths = config.width, config.widths
        self.code_embedding = nn.Embedding(config.codebook * config.groups, width)
        self.pre_transformer = Transformer(config)
        self.upsample = nn.ModuleList(
            nn.ModuleList([Upsample(width, width, ratio, 1), ConvNeXt(width)]) for ratio in config.ratios
        )
        blocks = [DecoderBlock(before, rate) for before, rate in zip(widths, config.rates, strict=False)]
        self.decoder = nn.ModuleList(
            [CausalConv(width, widths[0], _KERNEL), *blocks, Snake(widths[-1]), MonoConv(widths[-1], _KERNEL)]
        )

    @cached_property
    def state_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of a stream's window and tails."""
        config = self.config
        convolutions = [
            part for part in self.modules() if isinstance(part, CausalConv | DepthwiseConv | MonoConv | Upsample)
        ]
        tails = sum(part.places * part.conv.in_channels for part in convolutions)
        return (config.layers, 2, config.window - 1, config.kv_heads, config.head_dim), (tails,)

    def fresh(self, batch: int) -> StreamState:
        """The state of streams that begin."""
        weight = self.code_embedding.weight
        return StreamState(*(weight.new_zeros(batch, *shape) for shape in self.state_shapes))

    def decode(
        self, codes: Tensor, start: Tensor, state: StreamState, *, first: bool, rows: Tensor | None = None
    ) -> tuple[Tensor, StreamState]:
        """The next chunk of every stream: int64 codes `[B, n, K]`; int64 start `[B]`, the frames of each stream before
        it, all 0 if `first` and none otherwise; int64 rows `[B]` of the windows -> float32 `[B, s]` in [-1, 1] and the
        state after it, where s = n * `frame_samples`, less `ahead` if `first`. The windows are moved on in place; what
        they hold is not read if `first`."""
        most = max(1, _ROWS // codes.shape[0])
        pieces: list[Tensor] = []
        for piece in codes.split(most, 1):
            sound, state = self.step(piece, start, state, first=first and not pieces, rows=rows)
            pieces.append(sound)
            start = start + piece.shape[1]
        return torch.cat(pieces, 1), state

    def step(
        self, codes: Tensor, start: Tensor, state: StreamState, *, first: bool, rows: Tensor | None = None
    ) -> tuple[Tensor, StreamState]:
        """`decode` at once, for few frames."""
        rows = torch.arange(len(codes), device=codes.device) if rows is None else rows
        attend = WindowAttend(state.window, rows, start, codes.shape[1], self.pre_transformer.rope)
        x, tails = self.pre_transformer(frame_rows(codes, self.code_embedding.weight), attend), Tails(state.tails)
        for rise, block in cast("Iterable[tuple[Upsample, ConvNeXt]]", self.upsample):
            x = block(rise(x), rise.bias, tails)
        return self.waveform(x, tails, first=first), StreamState(state.window, tails.after)

    def waveform(self, x: Tensor, tails: Tails, *, first: bool) -> Tensor:
        """x `[B, T, C]` -> `[B, s]`"""
        blocks = list(cast("Iterable[DecoderBlock]", self.decoder[1:-2]))
        entry, snake, exit_ = cast("tuple[CausalConv, Snake, MonoConv]", (self.decoder[0], *self.decoder[-2:]))
        room = enter(
            entry, tails.behind(x, entry.places), Onward(blocks[0].begin[0], entry.bias, blocks[0].begin[1], tails)
        )
        for block, (then, reader) in zip(blocks, [*(one.begin for one in blocks[1:]), (snake, exit_)], strict=True):
            room = block(room, Onward(then, block.lacking, reader, tails), first=first)
        return leave(exit_, room)
