"""Frames of recordings: pitch, levels and voicing, as the codec's decoder takes them.

Shape letters: F frames, M bands, N samples.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from walkgraph.models.voice.codec import LOWEST
from walkgraph.models.voice.config import CodecSizes

Array = NDArray[np.floating]
FLOOR = -110.0
"""The least level of a band, in decibels."""
_PITCHES = 65.0, 250.0
"""Range in which the pitch is looked for, in Hz."""
_PERIODIC = 0.55
"""Least correlation of a voiced frame with itself one period later."""
_PERIODS = 4
"""Periods of a window: neighbouring harmonics just don't overlap."""
_SHORT = 0.02
"""Seconds of a window without a pitch."""
_POINTS = 4096


class Frames(NamedTuple):
    level: Array
    """`[F, M]`: power per Hz, in decibels."""
    voiced: Array
    """`[F, M]`: share of the power that is harmonic."""
    pitch: Array
    """`[F]`: in Hz; between voiced frames it is interpolated."""


def frames(sound: Array, rate: int, sizes: CodecSizes, start: float, stop: float) -> Frames:
    """The frames of a part of a recording, from `start` to `stop` in seconds; a frame is where it ends."""
    step = sizes.hop / sizes.rate
    times = start + step * np.arange(1, max(2, round((stop - start) / step) + 1))
    pitch, periodic = _pitches(sound, rate, times)
    centres = bands(sizes)
    level = np.empty((len(times), len(centres)))
    voiced = np.zeros_like(level)
    for at, time in enumerate(times):
        if periodic[at]:
            level[at], voiced[at] = _harmonic(sound, rate, time, pitch[at], centres)
        else:
            level[at] = _noisy(sound, rate, time, centres)
    return Frames(np.maximum(level, FLOOR), voiced, pitch)


def bands(sizes: CodecSizes) -> Array:
    """`[M]`: the bands' frequencies in Hz."""
    low, high = (2595 * np.log10(1 + at / 700) for at in (LOWEST, sizes.top))
    return 700 * (10 ** (np.linspace(low, high, sizes.bands) / 2595) - 1)


def _pitches(sound: Array, rate: int, times: Array) -> tuple[Array, NDArray[np.bool_]]:
    """`[F]` in Hz, and true for voiced frames."""
    shortest, longest = (int(rate / at) for at in reversed(_PITCHES))
    found = np.zeros(len(times))
    good = np.zeros(len(times), bool)
    for at, time in enumerate(times):
        piece = _cut(sound, round(time * rate), 3 * longest)
        piece = piece - piece.mean()
        size = len(piece) - longest - 1
        whole = np.array([(piece[:size] * piece[lag : lag + size]).sum() for lag in range(shortest - 1, longest + 2)])
        energy = np.concatenate([[0.0], np.cumsum(piece**2)])
        lags = np.arange(shortest - 1, longest + 2)
        both = np.sqrt(energy[size] * (energy[lags + size] - energy[lags])) + 1e-9
        like = whole / both
        best = like[1:-1].max()
        # The shortest of nearly equal periods: a multiple of a period is one too.
        peaks = [i for i in range(1, len(like) - 1) if like[i - 1] <= like[i] >= like[i + 1] and like[i] > 0.9 * best]
        if not peaks or best < _PERIODIC or energy[size] / size < 1e-6:
            continue
        a, b, c = like[peaks[0] - 1 : peaks[0] + 2]
        found[at] = rate / (lags[peaks[0]] + 0.5 * (a - c) / (a - 2 * b + c - 1e-12))
        good[at] = True
    if not good.any():
        return np.full(len(times), 100.0), good
    where = np.flatnonzero(good)
    return np.interp(np.arange(len(times)), where, found[where]), good


def _harmonic(sound: Array, rate: int, time: float, pitch: float, centres: Array) -> tuple[Array, Array]:
    window = np.hanning(round(_PERIODS * rate / pitch))
    seen = np.abs(np.fft.rfft(_cut(sound, round(time * rate), len(window)) * window, _POINTS))
    step = rate / _POINTS
    count = int(min(rate / 2, centres[-1] * 1.05) / pitch)
    power, noise = np.empty(count), np.empty(count)
    for number in range(1, count + 1):
        middle, reach = number * pitch / step, max(1, round(0.15 * pitch / step))
        at = round(middle)
        peak = seen[max(at - reach, 0) : at + reach + 1].max(initial=1e-9)
        power[number - 1] = (2 * peak / window.sum()) ** 2 / (2 * pitch)
        valleys = [round((number + half) * pitch / step) for half in (-0.5, 0.5)]
        least = min(seen[min(valley, len(seen) - 1)] for valley in valleys)
        noise[number - 1] = 2 * least**2 / ((window**2).sum() * rate)
    where = pitch * np.arange(1, count + 1)
    level = np.interp(centres, where, 10 * np.log10(power + 1e-12))
    # A valley of noise alone has as much power as the noise at the peak beside it.
    share = np.clip(1 - noise / (power + 1e-12), 0, 1)
    return level, np.interp(centres, where, np.convolve(np.pad(share, 2, mode="edge"), np.ones(5) / 5, "valid"))


def _noisy(sound: Array, rate: int, time: float, centres: Array) -> Array:
    window = np.hanning(round(_SHORT * rate))
    seen = np.abs(np.fft.rfft(_cut(sound, round(time * rate), len(window)) * window, _POINTS)) ** 2
    power = 2 * seen / ((window**2).sum() * rate)
    edges = np.concatenate([[0.0], (centres[1:] + centres[:-1]) / 2, [centres[-1]]]) * (_POINTS / rate)
    sums = np.concatenate([[0.0], np.cumsum(power)])
    low, high = np.floor(edges[:-1]).astype(int), np.maximum(np.ceil(edges[1:]), np.floor(edges[:-1]) + 1).astype(int)
    return 10 * np.log10((sums[high] - sums[low]) / (high - low) + 1e-12)


def _cut(sound: Array, middle: int, length: int) -> Array:
    """`[length]` samples around one; silence beyond the ends."""
    first = middle - length // 2
    piece = sound[max(first, 0) : max(first + length, 0)]
    return np.pad(piece, (max(-first, 0), max(length - len(piece) - max(-first, 0), 0)))
