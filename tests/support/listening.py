"""Sound as a player hears it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile

_LONGEST = 60
"""Seconds."""


def heard(data: bytes) -> tuple[npt.NDArray[np.int16], int]:
    """Samples [frames, channels] and their rate. The length of a stream may be unknown."""
    if data[:4] == b"fLaC":
        return _heard_flac(data)
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        found: Any = file.read(dtype="int16", always_2d=True)
        return found, file.samplerate


def _heard_flac(data: bytes) -> tuple[npt.NDArray[np.int16], int]:
    """python-soundfile gives up where a FLAC has no length; libsndfile itself reads what is there, of a length that is
    given to it."""
    head = int.from_bytes(data[18:26], "big")
    assert head % 2**36 == 0, "it has a length"
    count = _LONGEST * (head >> 44)
    longest = data[:18] + (head | count).to_bytes(8, "big") + data[26:]
    with soundfile.SoundFile(io.BytesIO(longest)) as file:
        library: Any = soundfile
        found = np.empty((count, file.channels), np.int16)
        target = library._ffi.cast("short *", library._ffi.from_buffer(found))
        return found[: library._snd.sf_readf_short(file._file, target, count)], file.samplerate
