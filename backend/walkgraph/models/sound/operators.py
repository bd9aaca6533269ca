"""Sound cut, mixed, made louder, split and drawn. Shape letters: N samples, T windows, F frequencies."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.abi.calls import Call, CallFailed, Outputs
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.architectures.sounds import all_waveforms_of, allow, resampled, waveform_of
from walkgraph.models.sound.components import MOST_LISTED

_FRAMES_A_SECOND = 100
"""Frames in which silence is looked for."""
_SILENT = 1e-6
"""Sound whose level is lower is silence: -120 dB."""
_QUIETEST = -200.0
"""Decibels below which nothing is told apart."""
_COLORS = ((0, 0, 0), (60, 15, 110), (180, 50, 90), (250, 150, 50), (255, 250, 200))
"""The colours of the drawn powers, from black in equal steps."""


class OneByOne(Operator):
    """Serves calls one after the other: sounds seldom have equal lengths."""

    pure: ClassVar[bool] = True

    @abstractmethod
    def made(self, call: Call) -> Tensor | list[Tensor]:
        """The output of a call."""

    port: ClassVar[str] = "waveform"

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{self.port: self.made(call)} for call in calls]


class Resample(Operator):
    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"waveform": wave} for wave in map(_resampled, calls)]


class Mix(OneByOne):
    def made(self, call: Call) -> Tensor:
        wave, other = waveform_of(call, "waveform"), waveform_of(call, "other")
        start = _samples(call, "start")
        length = max(len(wave), start + len(other))
        allow(call, length, "other")
        made = F.pad(wave, (0, length - len(wave)))
        made[start : start + len(other)] += other * _factor(float(call.params["gain"]))
        return made


class Cut(OneByOne):
    def made(self, call: Call) -> Tensor:
        start, length = _samples(call, "start"), _samples(call, "length")
        wave = waveform_of(call, "waveform")
        return wave[start : start + length if call.params["length"] else None].clone()


class Concat(OneByOne):
    def made(self, call: Call) -> Tensor:
        waves, gap = all_waveforms_of(call, "waveforms", MOST_LISTED), _samples(call, "gap")
        allow(call, sum(map(len, waves)) + gap * (len(waves) - 1), "waveforms")
        silence = waves[0].new_zeros(gap)
        return torch.cat([piece for wave in waves for piece in (silence, wave)][1:])


class Gain(OneByOne):
    def made(self, call: Call) -> Tensor:
        return waveform_of(call, "waveform") * _factor(float(call.params["gain"]))


class Normalise(OneByOne):
    def made(self, call: Call) -> Tensor:
        wave = waveform_of(call, "waveform")
        if not len(wave):
            return wave
        size = wave.abs().max() if call.params["by"] == "peak" else wave.square().mean().sqrt()
        return wave * torch.where(size > _SILENT, _factor(float(call.params["level"])) / size, 1.0)


class SilenceSplit(OneByOne):
    port: ClassVar[str] = "waveforms"

    def made(self, call: Call) -> list[Tensor]:
        wave = waveform_of(call, "waveform")
        parts = _parts(call, wave)
        if len(parts) > MOST_LISTED:
            message = f"`{call.node}` finds {len(parts):,} parts, and {MOST_LISTED:,} is the most"
            raise CallFailed(f"{message}; raise `silence`, or lower `threshold`", "waveform", code="invalid_input")
        return [wave[start:stop].clone() for start, stop in parts] or [wave[:0]]


class Spectrogram(OneByOne):
    port: ClassVar[str] = "pixels"

    def made(self, call: Call) -> Tensor:
        return _drawn(call, waveform_of(call, "waveform"))


def _resampled(call: Call) -> Tensor:
    wave = waveform_of(call, "waveform")
    rate, wanted = int(call.params["sample_rate"]), int(call.params["wanted"])
    allow(call, -(-len(wave) * wanted // rate), "waveform")
    return torch.from_numpy(resampled(wave.numpy(), rate, wanted))


def _samples(call: Call, name: str) -> int:
    """A parameter in seconds as samples."""
    return round(float(call.params[name]) * int(call.params["sample_rate"]))


def _factor(decibels: float) -> float:
    return 10 ** (decibels / 20)


def _parts(call: Call, wave: Tensor) -> list[tuple[int, int]]:
    """First sample and end of each part, by the power of frames of a hundredth of a second."""
    step = int(call.params["sample_rate"]) // _FRAMES_A_SECOND
    frames = F.pad(wave, (0, -len(wave) % step)).view(-1, step)
    loud = frames.square().mean(1) >= _factor(float(call.params["threshold"])) ** 2
    heard = loud.nonzero()[:, 0].cpu()
    if not len(heard):
        return []
    # A part ends where the next frame that is heard is far enough away.
    ends = (heard.diff() * step > _samples(call, "silence")).nonzero()[:, 0]
    firsts = torch.cat([heard[:1], heard[ends + 1]]).tolist()
    lasts = torch.cat([heard[ends], heard[-1:]]).tolist()
    # Margins meet in the middle of the shortest silence at most.
    margin = min(_samples(call, "margin"), _samples(call, "silence") // 2)
    return [
        (max(first * step - margin, 0), min((last + 1) * step + margin, len(wave)))
        for first, last in zip(firsts, lasts, strict=True)
    ]


def _drawn(call: Call, wave: Tensor) -> Tensor:
    """float32 `[3, height, width]` in [-1, 1]."""
    window, size = int(call.params["window"]), (int(call.params["height"]), int(call.params["width"]))
    # As many windows as columns at most, at least a quarter of a window apart.
    wave = F.pad(wave, (0, max(window - len(wave), 0)))
    hop = max(window // 4, -(-len(wave) // size[1]))
    hann = torch.hann_window(window, device=wave.device)
    spectrum = torch.stft(wave, window, hop, window=hann, center=True, pad_mode="constant", return_complex=True)
    span = float(call.params["range"])
    decibels = (20 * (spectrum.abs() / (hann.sum() / 2)).log10()).clamp(min=_QUIETEST)
    loudness = (decibels - decibels.max().clamp(min=_QUIETEST + span)) / span + 1
    picture = F.interpolate(loudness.flip(0)[None, None], size, mode="bilinear", align_corners=False, antialias=True)
    return _colored(picture[0, 0].clamp(0, 1))


def _colored(shares: Tensor) -> Tensor:
    """`[H, W]` in 0..1 -> `[3, H, W]` in [-1, 1]."""
    colors = torch.tensor(_COLORS, device=shares.device) / 127.5 - 1
    at = shares * (len(_COLORS) - 1)
    below = at.long().clamp(max=len(_COLORS) - 2)
    share = (at - below)[..., None]
    return (colors[below] * (1 - share) + colors[below + 1] * share).permute(2, 0, 1).contiguous()
