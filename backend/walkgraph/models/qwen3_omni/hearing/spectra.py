"""Log-mel spectra, as Whisper's feature extractor makes them, of sounds of any length.

Shape letters: L frames of a sound, M bands.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

RATE = 16000
"""Samples per second."""
HOP = 160
"""Samples between two frames."""
LEAST = 201
"""The fewest samples: the mirrored half window before the first sample must be there."""
_WINDOW = 400
_FLOOR, _RANGE = 1e-10, 8.0
"""The least energy, and the powers of ten below the loudest band of a sound that are told apart."""
_FRAMES = 1 << 14
"""The most frames whose spectra are computed at once."""


def frames_of(samples: int) -> int:
    return samples // HOP


class _Tables(NamedTuple):
    window: Tensor
    """float32 `[400]`"""
    filters: Tensor
    """float32 `[201, M]`"""


class Spectra:
    """Spectra of one number of bands; the tables are copied to a device once."""

    def __init__(self, mels: int) -> None:
        self._mels = mels
        self._tables: dict[torch.device, _Tables] = {}

    def __call__(self, waves: Sequence[Tensor]) -> list[Tensor]:
        """Sounds float32 `[n]` of at least `LEAST` samples -> float32 `[L, M]` each, by a sound's own samples only."""
        cut = [_windows(wave) for wave in waves]
        counts = [len(windows) for windows in cut]
        together = len(cut) > 1 and sum(counts) <= _FRAMES
        pieces = [torch.cat(cut)] if together else [part for one in cut for part in one.split(_FRAMES)]
        tables = self._on(waves[0].device)
        found = [_energies(piece, tables) for piece in pieces]
        energies = found[0] if len(found) == 1 else torch.cat(found)
        logs = energies.clamp(min=_FLOOR).log10().split(counts)
        return [(torch.maximum(log, log.max() - _RANGE) + 4) / 4 for log in logs]

    def _on(self, device: torch.device) -> _Tables:
        if device not in self._tables:
            window = torch.hann_window(_WINDOW, dtype=torch.float32, device="cpu")
            self._tables[device] = _Tables(window.to(device), mel_filters(self._mels).to(device))
        return self._tables[device]


def mel_filters(mels: int) -> Tensor:
    """float32 `[201, M]` on the CPU: triangles of equal area over the bins of a spectrum, their corners equally far
    apart on Slaney's scale, from 0 Hz to half the rate."""
    top = _mels_of(RATE / 2)
    corners = torch.tensor([_hertz_of(top * i / (mels + 1)) for i in range(mels + 2)], dtype=torch.float64)
    bins = torch.linspace(0, RATE / 2, _WINDOW // 2 + 1, dtype=torch.float64)[:, None]
    low, middle, high = corners[:-2], corners[1:-1], corners[2:]
    rising, falling = (bins - low) / (middle - low), (high - bins) / (high - middle)
    return (torch.minimum(rising, falling).clamp(min=0) * 2 / (high - low)).float()


def _windows(wave: Tensor) -> Tensor:
    """`[n]` -> `[L, 400]`: a window around every 160th sample, mirrored at the ends, without the last one."""
    half = _WINDOW // 2
    mirrored = F.pad(wave.float()[None], (half, half), mode="reflect")[0]
    return mirrored.unfold(0, _WINDOW, HOP)[: frames_of(len(wave))]


def _energies(windows: Tensor, tables: _Tables) -> Tensor:
    """`[L, 400]` -> `[L, M]`."""
    spectrum = torch.fft.rfft(windows * tables.window)
    return spectrum.abs().square() @ tables.filters


# Slaney's scale is linear up to 1000 Hz, and logarithmic above.
_LINEAR, _BREAK = 200 / 3, 1000.0
_STEP = math.log(6.4) / 27


def _mels_of(hertz: float) -> float:
    return hertz / _LINEAR if hertz < _BREAK else _BREAK / _LINEAR + math.log(hertz / _BREAK) / _STEP


def _hertz_of(mels: float) -> float:
    first = _BREAK / _LINEAR
    return mels * _LINEAR if mels < first else _BREAK * math.exp((mels - first) * _STEP)
