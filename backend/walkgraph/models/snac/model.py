"""The decoder half of SNAC: three levels of codes to sound.

Parameter names are the public checkpoint's; its weight norms are folded into plain weights when it is loaded. Always
float32.

Shape letters: B rows, F frames of S samples each, K codes of a frame, L latents, T places of a stage, C channels.

The kept part of a window depends only on its receptive field, so every stage is cut to what the later ones need.
Backward from kept samples `[a, b)`, where `rest` is the reach on each side of the blocks after the upsampling (the
three residual units: 3 * (1 + 3 + 9) = 39; the last convolution: 3) and an upsampling by s has 2s taps from -ceil(s/2):

    wanted     = [a, b)                                              what the stage must have right at its end
    made       = [a - rest, b + rest), within the window             what its upsampling makes
    next stage = [ceil((made.a + ceil(s/2) - 2s + 1) / s), floor((made.b - 1 + ceil(s/2)) / s) + 1), within the window

Places outside `wanted` but in `made` are wrong, as convolutions see zeros beyond `made`; nothing that is kept reads
them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.weights import read_tensors, undecoded
from walkgraph.errors import InvalidInput, NotFound
from walkgraph.layers.sound.snake import add_snake, place_noise, snake
from walkgraph.layers.unset import unset
from walkgraph.models.snac.config import SnacConfig, read_snac

Noise = Callable[[int, int, int], Tensor]
"""(stage, first place, place after the last) of the window -> float32 `[B, places]`."""
_DILATIONS = (1, 3, 9)
_KERNEL = 7
_SIDE = _KERNEL // 2
_ADDED = 0.3
_WEIGHT_NORMS = (
    (".parametrizations.weight.original0", ".parametrizations.weight.original1"),
    (".weight_g", ".weight_v"),
)
"""Suffixes of a weight's length and direction."""


class Span(NamedTuple):
    start: int
    stop: int

    def widened(self, by: int, length: int) -> "Span":
        return Span(max(0, self.start - by), min(length, self.stop + by))

    def cut(self, x: Tensor, held: "Span") -> Tensor:
        """The slice of x `[..., T]` for this span; x covers `held`."""
        return x if self == held else x[..., self.start - held.start : self.stop - held.start]


class Stage(NamedTuple):
    """The spans that one stage of the decoder computes."""

    read: Span
    """Span of the stage before."""
    made: Span
    wanted: Span


_SNAC_24KHZ = SnacConfig(
    sampling_rate=24000,
    encoder_dim=48,
    encoder_rates=(2, 4, 8, 8),
    decoder_dim=1024,
    decoder_rates=(8, 8, 4, 2),
    codebook_size=4096,
    codebook_dim=8,
    vq_strides=(4, 2, 1),
)
SNAC: dict[str, SnacConfig] = {
    "snac-24khz": _SNAC_24KHZ,
    "snac-tiny": replace(_SNAC_24KHZ, encoder_dim=1, decoder_dim=16, codebook_size=64, codebook_dim=4),
}
"""The published shape, and one for tests with the same frame size."""


def interleaved(strides: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Level -> places of its codes in a frame: a code comes before the finer ones of its time, and these before the
    next of its own level; `(4, 2, 1)` gives `((0,), (1, 4), (2, 3, 5, 6))`."""
    levels: list[list[int]] = [[] for _ in strides]

    def visit(level: int) -> None:
        levels[level].append(sum(map(len, levels)))
        if level + 1 < len(strides):
            for _ in range(strides[level] // strides[level + 1]):
                visit(level + 1)

    visit(0)
    return tuple(map(tuple, levels))


def stages(config: SnacConfig, frames: int, keep: tuple[int, int]) -> tuple[Span, tuple[Stage, ...]]:
    """(the span of latents read, every stage) for frames `[keep)` of a window; see the head of this file."""
    rates = config.decoder_rates
    lengths = [frames * config.frame_latents]
    for rate in rates:
        lengths.append(lengths[-1] * rate)
    wanted = Span(keep[0] * config.frame_samples, keep[1] * config.frame_samples).widened(_SIDE, lengths[-1])
    found: list[Stage] = []
    for rate, before, after in zip(rates[::-1], lengths[-2::-1], lengths[:0:-1], strict=True):
        made = wanted.widened(_SIDE * sum(_DILATIONS), after)
        left = math.ceil(rate / 2)
        first = -((2 * rate - 1 - left - made.start) // rate)
        read = Span(max(0, first), min(before, (made.stop - 1 + left) // rate + 1))
        found.append(Stage(read, made, wanted))
        wanted = read
    return wanted.widened(_SIDE, lengths[0]), tuple(found[::-1])


class Snake(nn.Module):
    """x + sin(alpha x)^2 / alpha, alpha of each channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, width, 1))

    def forward(self, x: "Sum") -> Tensor:
        return snake(x.held, self.alpha.flatten(), x.add, x.bias)

    def with_sum(self, x: "Sum", scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(the sum, its snake); `scale` `[B, T]` multiplies the added term."""
        if x.add is None:
            return x.held, self(x)
        return add_snake(x.held, self.alpha.flatten(), x.add, x.bias, scale)


class Sum(NamedTuple):
    """A pending sum, computed in one pass with the operation that follows: held + add + bias."""

    held: Tensor
    """`[B, C, T]`"""
    add: Tensor | None = None
    bias: Tensor | None = None
    """`[C]`"""

    def cut(self, to: Span, held: Span) -> "Sum":
        return Sum(to.cut(self.held, held), None if self.add is None else to.cut(self.add, held), self.bias)


class NoiseBlock(nn.Module):
    """Adds noise, one number per place for all channels, scaled by the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Conv1d(width, width, 1, bias=False)


class ResidualUnit(nn.Module):
    def __init__(self, width: int, dilation: int, groups: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            Snake(width),
            nn.Conv1d(width, width, _KERNEL, dilation=dilation, padding=_SIDE * dilation, groups=groups),
            Snake(width),
            nn.Conv1d(width, width, 1),
        )

    def forward(self, x: Sum, scale: Tensor | None = None) -> Sum:
        first, wide, second, last = self.block
        held, active = cast("Snake", first).with_sum(x, scale)
        narrow = cast("nn.Conv1d", last)
        return Sum(held, F.conv1d(second(Sum(wide(active))), narrow.weight), narrow.bias)


class DecoderBlock(nn.Module):
    """One stage: upsampling, noise, three residual units."""

    def __init__(self, width: int, rate: int, *, noise: bool, depthwise: bool) -> None:
        super().__init__()
        out = width // 2
        units = [ResidualUnit(out, dilation, out if depthwise else 1) for dilation in _DILATIONS]
        noises = [NoiseBlock(out)] if noise else []
        self.block = nn.ModuleList([Snake(width), nn.ConvTranspose1d(width, out, 2 * rate, rate), *noises, *units])
        self.rate = rate

    def forward(self, x: Sum, stage: Stage, noise: Callable[[int, int], Tensor] | None) -> Sum:
        """x `[B, C, read]` -> `[B, C / 2, wanted]`"""
        scale: Tensor | None = None
        for module in self.block:
            if isinstance(module, Snake):
                x = Sum(module(x))
            elif isinstance(module, nn.ConvTranspose1d):
                x = Sum(self._upsampled(module, x.held, stage))
            elif isinstance(module, NoiseBlock):
                if noise is not None:
                    scale = noise(stage.made.start, stage.made.stop)
                    x = Sum(x.held, module.linear(x.held))
            else:
                x, scale = module(x, scale), None
        return x.cut(stage.wanted, stage.made)

    def _upsampled(self, module: nn.ConvTranspose1d, x: Tensor, stage: Stage) -> Tensor:
        start = stage.read.start * self.rate - math.ceil(self.rate / 2)
        whole = Span(start, start + (x.shape[-1] + 1) * self.rate)
        # The convolution leaves out what both ends have in excess; the rest is cut.
        both = min(stage.made.start - whole.start, whole.stop - stage.made.stop)
        x = F.conv_transpose1d(x, module.weight, module.bias, stride=self.rate, padding=both)
        return stage.made.cut(x, Span(whole.start + both, whole.stop - both))


class Level(nn.Module):
    """One of the quantizer's codebooks."""

    def __init__(self, config: SnacConfig, stride: int) -> None:
        super().__init__()
        self.codebook = nn.Embedding(config.codebook_size, config.codebook_dim)
        self.out_proj = nn.Conv1d(config.codebook_dim, config.latent_dim, 1)
        self.stride = stride

    def forward(self, codes: Tensor) -> Tensor:
        """codes `[B, L / stride]` -> `[B, latent_dim, L]`"""
        z = self.out_proj(self.codebook(codes).transpose(1, 2))
        return z[..., None].expand(*z.shape, self.stride).flatten(2)


class Quantizer(nn.Module):
    def __init__(self, config: SnacConfig) -> None:
        super().__init__()
        self.quantizers = nn.ModuleList(Level(config, stride) for stride in config.vq_strides)

    def forward(self, codes: Sequence[Tensor]) -> Tensor:
        levels = [level(part) for level, part in zip(self.quantizers, codes, strict=True)]
        return torch.stack(levels).sum(0)


class Decoder(nn.Module):
    def __init__(self, config: SnacConfig) -> None:
        super().__init__()
        latent, widths = config.latent_dim, config.widths
        head = [nn.Conv1d(latent, widths[0], _KERNEL, padding=_SIDE)]
        if config.depthwise:
            depthwise = nn.Conv1d(latent, latent, _KERNEL, padding=_SIDE, groups=latent)
            head = [depthwise, nn.Conv1d(latent, widths[0], 1)]
        blocks = [
            DecoderBlock(width, rate, noise=config.noise, depthwise=config.depthwise)
            for width, rate in zip(widths, config.decoder_rates, strict=False)
        ]
        self.model = nn.ModuleList(
            [*head, *blocks, Snake(widths[-1]), nn.Conv1d(widths[-1], 1, _KERNEL, padding=_SIDE)]
        )

    def forward(self, z: Tensor, read: Span, plan: Sequence[Stage], noise: Noise | None) -> Tensor:
        """z `[B, latent_dim, read]` -> `[B, wanted of the last stage]`"""
        index = 0
        x = Sum(z)
        for module in self.model:
            if isinstance(module, DecoderBlock):
                x = x.cut(plan[0].read, read) if index == 0 else x
                x = module(x, plan[index], _at_stage(noise, index))
                index += 1
            else:
                x = Sum(module(x if isinstance(module, Snake) else x.held))
        return x.held[:, 0].tanh()


def _at_stage(noise: Noise | None, stage: int) -> Callable[[int, int], Tensor] | None:
    return None if noise is None else lambda start, stop: noise(stage, start, stop)


class Snac(nn.Module):
    """The reference's `quantizer.from_codes` and `decoder`."""

    def __init__(self, config: SnacConfig) -> None:
        super().__init__()
        self.config = config
        self.quantizer = Quantizer(config)
        self.decoder = Decoder(config)

    def decode(self, codes: Tensor, keep: tuple[int, int] | None = None, noise: Noise | None = None) -> Tensor:
        """int64 codes `[B, F * K]`, K per frame in the order of `interleaved`, modulo the codebook's size -> float32
        `[B, frames kept * S]` in [-1, 1]: the sound of the whole window at the kept frames.

        `keep`: frames `[start, stop)`, at least one; None: all. `noise`: None is silence.
        """
        config = self.config
        frames = codes.shape[1] // config.frame_codes
        keep = keep or (0, frames)
        if frames * config.frame_codes != codes.shape[1] or not 0 <= keep[0] < keep[1] <= frames:
            raise ValueError(f"{codes.shape[1]} codes have no frames {keep}")
        read, plan = stages(config, frames, keep)
        framed = codes.remainder(config.codebook_size).view(-1, frames, config.frame_codes)
        codes_of = framed.unbind(-1)
        levels = [torch.stack([codes_of[i] for i in p], -1).flatten(1) for p in interleaved(config.vq_strides)]
        z = read.cut(self.quantizer(levels), Span(0, frames * config.frame_latents))
        sound = self.decoder(z, read, plan, noise)
        kept = Span(keep[0] * config.frame_samples, keep[1] * config.frame_samples)
        return kept.cut(sound, plan[-1].wanted)


def counter_noise(config: SnacConfig, seed: Tensor, frame: Tensor) -> Noise:
    """Standard normal noise determined by int64 `seed` `[B]` and the place in the stream, so overlapping windows get
    the same. `frame` int64 `[B]`: frames of the stream before the window."""
    sizes = [config.frame_latents * math.prod(config.decoder_rates[: i + 1]) for i in range(len(config.decoder_rates))]

    def noise(stage: int, start: int, stop: int) -> Tensor:
        even = place_noise(seed, stage, frame * sizes[stage] + start, stop - start)
        return even.erfinv_().mul_(math.sqrt(2))

    return noise


@contextmanager
def precision(*, tf32: bool) -> Iterator[None]:
    """Convolutions on CUDA in float32, or in TF32 where `tf32`; torch's own default is TF32."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=tf32):
        yield


def load_snac(
    folder: Path, *, device: torch.device | str = "cpu", progress: Callable[[int], None] | None = None
) -> Snac:
    """Load from a folder with the published `config.json` and `model.safetensors`; strict, except that the encoder half
    is ignored. Raises `NotFound` and `InvalidInput`."""
    config = read_snac(folder)
    with unset():
        model = Snac(config)
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    state = _folded(_tensors(folder, str(device), progress))
    problems = [f"unknown tensor `{name}`" for name in state.keys() - wanted.keys()]
    problems += [f"missing tensor `{name}`" for name in wanted.keys() - state.keys()]
    problems += [
        f"`{name}` is {list(state[name].shape)}, the config requires {list(shape)}"
        for name, shape in wanted.items()
        if name in state and state[name].shape != shape
    ]
    if problems:
        raise InvalidInput(f"`model` in `{folder.name}` does not fit its config: {'; '.join(sorted(problems)[:5])}")
    model.load_state_dict(state, assign=True)
    return model.eval().requires_grad_(False)


def random_snac(name: str, seed: int, *, device: torch.device) -> Snac:
    """Random weights. Snakes have alpha near 1, as after training (near 0 they would be straight lines); residual units
    and noise add less than their input, or rounding errors would grow with every stage."""
    config = snac_config(name)
    model = drawn(lambda: Snac(config), seed, device=device, dtype=torch.float32)
    for module in model.modules():
        if isinstance(module, Snake):
            module.alpha.mul_(0.1 * math.sqrt(module.alpha.shape[1])).add_(1.0)
        elif isinstance(module, ResidualUnit):
            module.block.get_submodule("3").get_parameter("weight").mul_(_ADDED)
        elif isinstance(module, NoiseBlock):
            module.linear.weight.mul_(_ADDED)
    return model


def _tensors(folder: Path, device: str, progress: Callable[[int], None] | None) -> dict[str, Tensor]:
    """Tensors of the decoder half, float32."""
    found: dict[str, Tensor] = {}
    for name, tensor in read_tensors(folder, "model", device, _decodes):
        fault = undecoded(name, tensor)
        if fault is not None:
            raise InvalidInput(f"`model` in `{folder.name}` can't be loaded: {fault}")
        found[name] = tensor.float()
        if progress is not None:
            progress(found[name].nbytes)
    return found


def _decodes(name: str) -> bool:
    return not name.startswith("encoder.") and ".in_proj." not in name


def _folded(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Fold direction and length of a weight, in either of torch's two spellings, into the weight."""
    state = dict(tensors)
    for length, direction in _WEIGHT_NORMS:
        for name in [name for name in state if name.endswith(length)]:
            stem = name.removesuffix(length)
            if stem + direction in state:
                g, v = state.pop(name), state.pop(stem + direction)
                state[f"{stem}.weight"] = v * (g / v.flatten(1).norm(dim=1).view(-1, *[1] * (v.dim() - 1)))
    return state


def snac_config(name: str) -> SnacConfig:
    if name not in SNAC:
        raise NotFound(f"no configuration `{name}` of this family; choose one of {sorted(SNAC)}")
    return SNAC[name]
