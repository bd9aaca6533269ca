"""A judge of speech without anything learned: connected words are recognised by dynamic time warping of log-mel spectra
against recordings of all words.

It is told nothing of the text, and not where a word begins. Shape letters: T spectra, S spectra of all recordings, B
bands.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

Array = NDArray[np.floating]
BANDS, SECONDS = 26, 0.012
"""Bands of a spectrum, and the time between two."""
_WINDOW, _POINTS, _LOW, _HIGH = 0.025, 1024, 80.0, 8000.0
_FLOOR, _LOUDEST = -90.0, 0.0
"""Decibels of a spectrum's bands."""
_ENTER = 60.0
"""Cost of one more word."""
_SKIP, _STAY = 6.0, 3.0
"""Costs of a step of two spectra of a recording, and of none."""
SILENT = ""


def spectra(sound: NDArray[np.floating], rate: int) -> Array:
    """Sound `[n]` -> log-mel spectra `[T, B]` in decibels."""
    length, hop = round(_WINDOW * rate), SECONDS * rate
    count = max(1, int((len(sound) - length) / hop) + 1)
    starts = (np.arange(count) * hop).astype(int)
    padded = np.pad(sound, (0, length))
    pieces = padded[starts[:, None] + np.arange(length)] * np.hanning(length)
    power = np.abs(np.fft.rfft(pieces, _POINTS)) ** 2 / (np.hanning(length) ** 2).sum()
    bands = power @ _filters(rate)
    return np.clip(10 * np.log10(bands + 1e-12), _FLOOR, _LOUDEST).astype(np.float32)


def _filters(rate: int) -> NDArray[np.float64]:
    """`[frequencies, B]`: triangles, evenly spaced on the mel scale."""
    low, high = (2595 * np.log10(1 + at / 700) for at in (_LOW, _HIGH))
    edges = 700 * (10 ** (np.linspace(low, high, BANDS + 2) / 2595) - 1)
    at = np.arange(_POINTS // 2 + 1)[:, None] * (rate / _POINTS)
    rising, falling = (at - edges[:-2]) / np.diff(edges)[:-1], (edges[2:] - at) / np.diff(edges)[1:]
    triangles = np.maximum(0, np.minimum(rising, falling))
    return triangles / np.maximum(triangles.sum(0), 1e-9)


class Judge(NamedTuple):
    """Recordings, each of one word; a word may have several."""

    names: Sequence[str]
    """`SILENT` for silence."""
    recordings: Sequence[Array]

    @classmethod
    def of(cls, recordings: Sequence[tuple[str, Array]]) -> Self:
        silence = np.full((1, BANDS), _FLOOR, np.float32)
        return cls([SILENT, *(name for name, _ in recordings)], [silence, *(one for _, one in recordings)])

    def hears(self, sound: NDArray[np.floating], rate: int) -> list[str]:
        """The words of the cheapest sequence of recordings that the sound is warped to."""
        heard, known = spectra(sound, rate), np.concatenate(self.recordings)
        costs = _distances(heard, known)
        lengths = [len(one) for one in self.recordings]
        ends = np.cumsum(lengths) - 1
        starts = ends - np.array(lengths) + 1
        second = np.concatenate([starts, np.minimum(starts + 1, ends)])
        cost = np.full(len(known), np.inf)
        word = np.full(len(known), -1)
        """The entry in `trail` of the words before the one that is warped to."""
        trail: list[tuple[int, int]] = []
        """Words, each with the entry of those before it."""
        before, after = 0.0, -1
        for row in costs:
            one, two = np.roll(cost, 1), np.roll(cost, 2)
            one[starts], two[second] = np.inf, np.inf
            ways = np.stack([cost + _STAY, one, two + _SKIP])
            best = ways.argmin(0)
            cost = ways.min(0)
            word = np.stack([word, np.roll(word, 1), np.roll(word, 2)])[best, np.arange(len(known))]
            entering = np.full(len(starts), before + _ENTER)
            entering[0] = before
            fresh = entering < cost[starts]
            cost[starts[fresh]], word[starts[fresh]] = entering[fresh], after
            cost = cost + row
            last = int(cost[ends].argmin())
            before = float(cost[ends[last]])
            trail.append((last, int(word[ends[last]])))
            after = len(trail) - 1
        return self._told(trail)

    def _told(self, trail: list[tuple[int, int]]) -> list[str]:
        at, found = len(trail) - 1, list[str]()
        while at >= 0:
            which, at = trail[at]
            found.append(self.names[which])
        return [name for name in reversed(found) if name != SILENT]

    def save(self, path: Path) -> None:
        """Spectra in steps of half a decibel."""
        made = {f"{at}": _packed(one) for at, one in enumerate(self.recordings[1:])}
        save_file(made, path)

    @classmethod
    def load(cls, path: Path, names: Sequence[str]) -> Self:
        kept: Mapping[str, NDArray[np.uint8]] = load_file(path)
        return cls.of([(name, kept[f"{at}"].astype(np.float32) / 2 + _FLOOR) for at, name in enumerate(names)])


def _packed(one: Array) -> NDArray[np.uint8]:
    return np.round((one - _FLOOR) * 2).astype(np.uint8)


def _distances(heard: Array, known: Array) -> NDArray[np.float64]:
    """`[T, S]`: root mean square differences in decibels."""
    squares = (heard**2).sum(1)[:, None] + (known**2).sum(1) - 2 * heard @ known.T
    return np.sqrt(np.maximum(squares, 0) / BANDS).astype(np.float64)


def errors(wanted: Sequence[str], heard: Sequence[str]) -> int:
    """Words that were missed, put in or taken for others: the edit distance."""
    row = list(range(len(heard) + 1))
    for i, want in enumerate(wanted, 1):
        above, row = row, [i]
        for j, have in enumerate(heard, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (want != have)))
    return row[-1]
