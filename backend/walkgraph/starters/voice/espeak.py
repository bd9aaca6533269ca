"""Recordings of words by espeak-ng, with the time of each word. Training alone needs it: `pip install espeakng-loader`.

Sound that espeak-ng makes is not covered by its licence.
"""

import ctypes
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_SYNCHRONOUS = 2
_BUFFER_MS = 200
_UTF8 = 1
_WORD, _END = 1, 0
_RATE, _PITCH, _RANGE = 1, 3, 4
"""Parameters: words a minute, and the base and range of the pitch, 0 to 100."""


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


_HEARD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


class Recording(NamedTuple):
    """A text as sound."""

    sound: NDArray[np.floating]
    """`[n]` in [-1, 1]"""
    starts: Sequence[int]
    """The sample at which each word begins."""


class Espeak:
    """A voice of espeak-ng."""

    def __init__(self, *, voice: str = "en-us", rate: int = 150, pitch: int = 50, spread: int = 50) -> None:
        loader: Any = import_module("espeakng_loader")
        self._library = ctypes.CDLL(loader.get_library_path())
        self._sound: list[NDArray[np.int16]] = []
        self._starts: list[int] = []
        self._callback = _HEARD(self._heard)
        data = loader.get_data_path().encode()
        self.rate: int = self._library.espeak_Initialize(_SYNCHRONOUS, _BUFFER_MS, data, 0)
        """Samples a second."""
        self._library.espeak_SetSynthCallback(self._callback)
        self._library.espeak_SetVoiceByName(voice.encode())
        for name, value in ((_RATE, rate), (_PITCH, pitch), (_RANGE, spread)):
            self._library.espeak_SetParameter(name, value, 0)

    def say(self, text: str) -> Recording:
        self._sound, self._starts = [], []
        data = text.encode()
        self._library.espeak_Synth(data, len(data) + 1, 0, 1, 0, _UTF8, None, None)
        self._library.espeak_Synchronize()
        sound = np.concatenate(self._sound).astype(np.float32) / 32768
        return Recording(sound, list(self._starts))

    def _heard(self, samples: Any, count: int, events: Any) -> int:
        if samples and count:
            self._sound.append(np.ctypeslib.as_array(samples, (count,)).copy())
        at = 0
        while events[at].type != _END:
            if events[at].type == _WORD:
                self._starts.append(events[at].sample)
            at += 1
        return 0
