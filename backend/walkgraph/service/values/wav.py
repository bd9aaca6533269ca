"""Joins WAV files into one."""

import io
import wave
from collections.abc import Sequence


def joined(files: Sequence[bytes]) -> bytes | None:
    """One WAV with all samples in order; None unless all files are PCM of one rate, width and channel count."""
    sounds: list[bytes] = []
    formats: set[tuple[int, int, int]] = set()
    try:
        for data in files:
            with wave.open(io.BytesIO(data)) as file:
                formats.add((file.getnchannels(), file.getsampwidth(), file.getframerate()))
                sounds.append(file.readframes(file.getnframes()))
    except (wave.Error, EOFError, RuntimeError):
        return None
    if len(formats) != 1:
        return None
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        [(channels, width, rate)] = formats
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(b"".join(sounds))
    return buffer.getvalue()
