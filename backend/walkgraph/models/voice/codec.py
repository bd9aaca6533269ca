"""The codec's decoder: each code is a frame of harmonics plus noise, and frames become sound one after the other.

A frame has a pitch, a level in each band, and the share of it that is voiced. Harmonics of the pitch change linearly
from frame to frame, and windows of shaped noise overlap. A stream's past is three whole numbers, so the sound is the
same however its frames are cut, and in any company.

Shape letters: F frames, K codes, M bands, H harmonics, N samples of a frame, Q frequencies of the noise.
"""

import math
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from walkgraph.models.voice.config import CodecSizes

Array = NDArray[np.float32]
_CYCLE = 32
"""A cycle of the pitch is 2 ** 32 steps of its phase."""
_NOISES = 64
"""Frames after which the noise repeats."""
_SEED = 5
LOWEST = 60.0
"""The least pitch, and the frequency of the lowest band, in Hz."""


class Past(NamedTuple):
    """The state of a stream: what its next frame needs of those before it."""

    code: int
    """The last frame; -1 before the first."""
    phase: int
    """Phase of the pitch where it ends."""
    frames: int

    @classmethod
    def fresh(cls) -> Self:
        return cls(-1, 0, 0)


class Codec(nn.Module):
    """The table of frames, on the CPU. It decodes without torch, whose threads would wait for each other longer than
    the work of a frame takes."""

    level: Tensor
    """`[K, M]`: power per Hz, in decibels."""
    voiced: Tensor
    """`[K, M]`: share of the power that is harmonic."""
    pitch: Tensor
    """`[K]`: in Hz."""

    def __init__(self, sizes: CodecSizes) -> None:
        super().__init__()
        self.sizes = sizes
        for name, shape in (("level", (sizes.bands,)), ("voiced", (sizes.bands,)), ("pitch", ())):
            self.register_buffer(name, torch.zeros(sizes.codes, *shape))

    def audible(self) -> Self:
        """Random numbers as levels, shares and pitches."""
        self.level = self.level * 10 - 60
        self.voiced = self.voiced.sigmoid()
        self.pitch = (self.pitch * 20 + 100).clamp(min=LOWEST)
        return self

    def decode(self, codes: Tensor, past: Past, shift: float = 0.0) -> tuple[Tensor, Past]:
        """A stream's next frames int64 `[F]`, its pitch raised by `shift` semitones -> sound `[F * N]`, and the past of
        the frame after them."""
        # Frame by frame: the last bits of a product of several frames depend on their number.
        made: list[Array] = []
        noise = self._noise(past.code, past.frames - 1)
        for code in codes.tolist():
            fresh = self._noise(code, past.frames)
            tone, phase = self._tone(past, code, 2 ** (shift / 12))
            made.append(tone + noise[self.sizes.hop :] + fresh[: self.sizes.hop])
            noise, past = fresh, Past(code, phase, past.frames + 1)
        return torch.from_numpy(np.concatenate(made).clip(-1, 1)), past

    def _tone(self, past: Past, code: int, factor: float) -> tuple[Array, int]:
        """The harmonics of a frame `[N]`, and the phase of the pitch where it ends."""
        sizes, begun = self.sizes, past.code >= 0
        both = [past.code if begun else code, code]
        pitches = [float(pitch) * factor for pitch in self._known.pitch[both]]
        first, last = (round(pitch * 2**_CYCLE / sizes.rate) for pitch in pitches)
        numbers = np.arange(1, max(1, int(sizes.top / min(pitches))) + 1)
        loud = [self._loudness(one, pitch, numbers) for one, pitch in zip(both, pitches, strict=True)]
        change = np.outer(loud[1] - loud[0] * begun, np.arange(sizes.hop, dtype=np.float32) / sizes.hop)
        # Whole numbers: a harmonic's phase is exact wherever its stream was cut.
        n = np.arange(sizes.hop)
        phase = past.phase + first * n + (last - first) * (n * n) // (2 * sizes.hop)
        turn = (np.outer(numbers, phase) % 2**_CYCLE).astype(np.float32) * np.float32(2 * math.pi / 2**_CYCLE)
        tone = ((loud[0] * begun)[:, None] + change) * np.sin(turn)
        return tone.sum(0, dtype=np.float32), (past.phase + sizes.hop * (first + last) // 2) % 2**_CYCLE

    def _loudness(self, code: int, pitch: float, numbers: NDArray[np.int64]) -> Array:
        """Amplitudes of the harmonics of a frame `[H]`."""
        known, frequency = self._known, pitch * numbers
        level, voiced = (np.interp(mel(frequency), known.bands, part[code]) for part in (known.level, known.voiced))
        loudness = np.sqrt(2 * pitch * 10 ** (level / 10) * voiced)
        return np.where(frequency > self.sizes.top, 0, loudness).astype(np.float32)

    def _noise(self, code: int, frame: int) -> Array:
        """A window of shaped noise `[2 * N]` for the frame of a number; silence for that before the first."""
        known = self._known
        if code < 0:
            return np.zeros(len(known.window), np.float32)
        level, voiced = (np.interp(known.noise, known.bands, part[code]) for part in (known.level, known.voiced))
        gain = np.sqrt(10 ** (level / 10) * (1 - voiced) * (self.sizes.rate / 2)) * known.heard
        return (np.fft.irfft(known.white[frame % _NOISES] * gain) * known.window).astype(np.float32)

    @cached_property
    def _known(self) -> "_Known":
        sizes, length = self.sizes, 2 * self.sizes.hop
        low, high = mel(np.array([LOWEST, sizes.top]))
        frequency = np.fft.rfftfreq(length, 1 / sizes.rate)
        white = np.random.default_rng(_SEED).standard_normal((_NOISES, length))
        return _Known(
            *(table.float().numpy() for table in (self.level, self.voiced, self.pitch)),
            bands=np.linspace(float(low), float(high), sizes.bands),
            noise=mel(frequency),
            heard=(frequency <= sizes.top).astype(np.float64),
            white=np.fft.rfft(white),
            window=np.sin((np.arange(length) + 0.5) * (math.pi / length)),
        )


class _Known(NamedTuple):
    """Tables that decoding reads, computed once."""

    level: Array
    voiced: Array
    pitch: Array
    bands: NDArray[np.floating]
    """`[M]`, in mel."""
    noise: NDArray[np.floating]
    """Frequencies of the noise `[Q]`, in mel."""
    heard: NDArray[np.float64]
    """`[Q]`: 1 up to the highest band."""
    white: NDArray[np.complex128]
    """Spectra of white noise `[_NOISES, Q]`."""
    window: NDArray[np.float64]
    """`[2 * N]`"""


def mel(frequency: NDArray[np.floating]) -> NDArray[np.floating]:
    """Hz -> mel."""
    return 2595 * np.log10(1 + frequency / 700)
