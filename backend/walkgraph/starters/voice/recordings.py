"""Recordings of all units, as frames: each once before another word, and once before a pause.

The carrier sentences are those of phonetics: "say circle now" and "say circle".
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from walkgraph.models.voice.config import PAUSE, CodecSizes
from walkgraph.starters.voice.espeak import Espeak
from walkgraph.starters.voice.frames import FLOOR, Frames, frames
from walkgraph.starters.voice.units import SAID, UNITS

SILENCE = 12
"""Frames of a pause."""


class Spoken(NamedTuple):
    """A unit as it was recorded."""

    unit: int
    final: bool
    """Before a pause."""
    frames: Frames
    sound: NDArray[np.floating]
    rate: int


def record(sizes: CodecSizes) -> list[Spoken]:
    espeak = Espeak()
    made = [_spoken(espeak, sizes, unit, final=final) for unit in range(len(SAID)) for final in (False, True)]
    return [*made, _pause(sizes, espeak.rate)]


def _spoken(espeak: Espeak, sizes: CodecSizes, unit: int, *, final: bool) -> Spoken:
    word = SAID[UNITS[unit]]
    recording = espeak.say(f"say {word}." if final else f"say {word} now.")
    # A word with a hyphen is several to espeak-ng.
    begin = recording.starts[1]
    end = len(recording.sound) if final else recording.starts[-1]
    if final:
        loud = np.flatnonzero(np.abs(recording.sound) > 1e-3)
        end = min(end, int(loud[-1]) + espeak.rate // 50)
    rate = espeak.rate
    found = frames(recording.sound.astype(np.float64), rate, sizes, begin / rate, end / rate)
    return Spoken(unit, final, found, recording.sound[begin:end], rate)


def _pause(sizes: CodecSizes, rate: int) -> Spoken:
    silent = Frames(np.full((SILENCE, sizes.bands), FLOOR), np.zeros((SILENCE, sizes.bands)), np.full(SILENCE, 100.0))
    return Spoken(UNITS.index(PAUSE), True, silent, np.zeros(SILENCE * rate // 50, np.float32), rate)
