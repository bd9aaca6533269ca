"""Sounds that a client sends in other formats than WAV, which is what tasks take."""

import asyncio
import base64
import binascii
import importlib
import io
from typing import Any

from walkgraph.service import sound
from walkgraph.service.openai.chat_schemas import AudioPart, ChatRequest
from walkgraph.service.openai.serving import unsupported

MAX_SAMPLES = 32 * 1024 * 1024
"""Of one sound, over all channels; a small file of silence could hold any number."""


async def in_wav(request: ChatRequest) -> None:
    """Replace what is no WAV. Raises Unprocessable for what can't be read."""
    for i, message in enumerate(request.messages):
        for j, part in enumerate(message.content if isinstance(message.content, list) else ()):
            if isinstance(part, AudioPart) and part.input_audio.format != "wav":
                at = f"/messages/{i}/content/{j}/input_audio/data"
                part.input_audio.data = await asyncio.to_thread(_as_wav, part.input_audio.data, at)


def _as_wav(data: str, at: str) -> str:
    library: Any = importlib.import_module("soundfile")
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise unsupported(at, "invalid_value", "this is no base64") from None
    try:
        with library.SoundFile(io.BytesIO(raw)) as file:
            most = MAX_SAMPLES // max(file.channels, 1)
            samples = file.read(most + 1, dtype="int16", always_2d=True)
            rate = file.samplerate
    except (library.LibsndfileError, TypeError, ValueError, OverflowError):
        raise unsupported(at, "invalid_value", "this is no sound that can be read; send WAV, MP3 or FLAC") from None
    if len(samples) > most:
        raise unsupported(at, "invalid_value", f"a sound may have {MAX_SAMPLES} samples; shorten it")
    return base64.b64encode(sound.written(sound.Sound(rate, samples))).decode()
