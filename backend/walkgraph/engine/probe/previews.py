"""Previews: small pictures of large values, chosen by the modality of their port.

A tensor is reduced on its own device, without reading any number on the host; a few kilobytes are left.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from walkgraph.graph.conversation import Conversation
from walkgraph.telemetry.events import (
    AnyPreview,
    HeatPreview,
    MediaPreview,
    NumbersPreview,
    PicturePreview,
    SoundPreview,
    TextPreview,
)

SIDE = 128
"""Pixels of a picture's longer side at most."""
CELLS = 64
"""Cells of a heat map's side."""
NUMBERS = 256
TEXT = 2000
"""Characters at most."""
MEDIA_BYTES = 64 * 1024
RATE = 24_000
"""Samples per second of every waveform that the components here give."""
SECONDS = 2
_SAMPLES = 32_000
"""Samples of a sound from which on its rate is halved."""
_COLOURS = 3
_READ = 1 << 22
"""The most numbers that a heat map is made of; of a larger value, only some rows are read."""

_FEW = frozenset({"tokens", "codes", "actions", "state", "scalar", "flag"})
_SEEN = frozenset({"image", "pixels", "latents"})
_HEARD = frozenset({"audio", "waveform"})


class Reduced(NamedTuple):
    tensors: tuple[Tensor, ...]
    """Tensors to copy to the host, for `shown`."""
    shown: Callable[[Sequence[Tensor]], AnyPreview]


def plain(value: Any) -> AnyPreview | None:
    """The preview of a value that is not a tensor; None if there is nothing to show."""
    match value:
        case str():
            return TextPreview(text=value[:TEXT])
        case Conversation():
            return TextPreview(text=value.as_text()[:TEXT])
        case bytes():
            return MediaPreview(data=value if len(value) <= MEDIA_BYTES else b"", nbytes=len(value))
        case bool() | int() | float():
            return NumbersPreview(values=(float(value),), columns=1)
        case list() if value and all(isinstance(one, bool | int | float) for one in value[:NUMBERS]):
            numbers = tuple(float(one) for one in value[:NUMBERS])
            return NumbersPreview(values=numbers, columns=len(numbers))
        case _:
            return None


def reduced(value: Tensor, modality: str) -> Reduced | None:
    """Reduce a tensor to its preview; None for an empty one."""
    if not value.numel():
        return None
    if value.dim() == 0 or modality in _FEW:
        return _numbers(value)
    if modality in _SEEN and (picture := _pictured(value, modality)) is not None:
        return _picture(picture, measured=modality == "latents")
    if modality in _HEARD and value.is_floating_point():
        return _sound(value)
    return _numbers(value) if value.numel() <= CELLS else _heat(value)


# ── numbers ─────────────────────────────────────────────────────────────────────────────────────


def _numbers(value: Tensor) -> Reduced:
    columns = min(NUMBERS, value.shape[-1]) if value.dim() else 1

    def shown(small: Sequence[Tensor]) -> AnyPreview:
        return NumbersPreview(values=tuple(small[0].tolist()), columns=columns)

    return Reduced((value.reshape(-1)[:NUMBERS].to(torch.float64),), shown)


# ── pictures ────────────────────────────────────────────────────────────────────────────────────


def _pictured(value: Tensor, modality: str) -> Tensor | None:
    """View a value as a picture `[c, h, w]`, the first of several; None if it can't be one."""
    while value.dim() > 3:
        value = value[0]
    if value.dim() == 3:
        channels, _, last = value.shape
        first = channels in (1, 3, 4) if modality != "latents" else channels < last and channels < value.shape[1]
        return value if first else value.permute(2, 0, 1)
    side = round(value.shape[0] ** 0.5)
    if value.dim() == 2 and modality == "latents" and side > 1 and side * side == value.shape[0]:
        return value.view(side, side, value.shape[1]).permute(2, 0, 1)
    return value[None] if value.dim() == 2 and modality != "latents" else None


def _picture(value: Tensor, *, measured: bool) -> Reduced:
    """Make a picture. `measured`: scale each channel from its lowest to its highest value; otherwise values are 0 to
    1, or -1 to 1 if any is negative."""
    height, width = _shrunk(value.shape[1], value.shape[2])
    channels = value[:_COLOURS] if value.shape[0] >= _COLOURS else value[:1].expand(_COLOURS, -1, -1)
    numbers = channels.to(torch.float32) / (255 if value.dtype == torch.uint8 else 1)
    small = adaptive_avg_pool2d(numbers.nan_to_num(0.0, 0.0, 0.0)[None], (height, width))[0]
    if measured:
        low, high = small.amin((1, 2), keepdim=True), small.amax((1, 2), keepdim=True)
        small = (small - low) / (high - low).clamp(min=1e-30)
    else:
        small = torch.where(small.amin() < -1 / 255, (small + 1) / 2, small)

    def shown(there: Sequence[Tensor]) -> AnyPreview:
        return PicturePreview(width=width, height=height, rgb=there[0].numpy().tobytes())

    return Reduced((_bytes(small).permute(1, 2, 0).contiguous(),), shown)


def _shrunk(height: int, width: int) -> tuple[int, int]:
    most = max(height, width, SIDE)
    return max(1, height * SIDE // most), max(1, width * SIDE // most)


# ── sounds ──────────────────────────────────────────────────────────────────────────────────────


def _sound(value: Tensor) -> Reduced:
    samples = value.reshape(-1, value.shape[-1])[0][: RATE * SECONDS].to(torch.float32)
    rate = RATE
    if len(samples) > _SAMPLES:
        samples, rate = samples[: len(samples) // 2 * 2].view(-1, 2).mean(1), RATE // 2

    def shown(there: Sequence[Tensor]) -> AnyPreview:
        return SoundPreview(rate=rate, pcm=there[0].numpy().astype("<i2").tobytes())

    return Reduced(((samples.nan_to_num(0.0).clamp(-1, 1) * 32767).round().to(torch.int16),), shown)


# ── matrices ────────────────────────────────────────────────────────────────────────────────────


def _heat(value: Tensor) -> Reduced:
    matrix = value.reshape(-1, value.shape[-1])
    matrix = matrix[:: -(-matrix.numel() // _READ)].to(torch.float32).nan_to_num(0.0, 0.0, 0.0)
    rows, columns = min(CELLS, matrix.shape[0]), min(CELLS, matrix.shape[1])
    small = adaptive_avg_pool2d(matrix[None], (rows, columns))[0]
    low, high = small.amin(), small.amax()
    cells = _bytes((small - low) / (high - low).clamp(min=1e-30))

    def shown(there: Sequence[Tensor]) -> AnyPreview:
        ends: list[float] = there[1].tolist()
        return HeatPreview(rows=rows, columns=columns, cells=there[0].numpy().tobytes(), low=ends[0], high=ends[1])

    return Reduced((cells, torch.stack([low, high])), shown)


def _bytes(shares: Tensor) -> Tensor:
    return (shares * 255).round().clamp(0, 255).to(torch.uint8)
