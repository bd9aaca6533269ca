"""Converts clients' audio to WAV, the format that tasks take."""

import asyncio
import binascii
import importlib
import io
from typing import Any

import pybase64

from walkgraph.service.openai.chat_schemas import AudioPart, ChatRequest
from walkgraph.service.openai.serving import unsupported
from walkgraph.service.values import sound

MAX_SAMPLES = 32 * 1024 * 1024
"""Total samples of a request, over all channels: a small file of silence could hold any number."""


async def in_wav(request: ChatRequest) -> None:
    """Converts audio in other formats to WAV. Raises Unprocessable if it can't be read."""
    room = MAX_SAMPLES
    for i, message in enumerate(request.messages):
        for j, part in enumerate(message.content if isinstance(message.content, list) else ()):
            if isinstance(part, AudioPart) and part.input_audio.format != "wav":
                at = f"/messages/{i}/content/{j}/input_audio/data"
                part.input_audio.data, taken = await asyncio.to_thread(_as_wav, part.input_audio.data, room, at)
                room -= taken


def _as_wav(data: str, room: int, at: str) -> tuple[str, int]:
    """(WAV in base64, number of samples). `room`: most samples."""
    library: Any = importlib.import_module("soundfile")
    try:
        raw = pybase64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise unsupported(at, "invalid_value", "this is not base64") from None
    try:
        with library.SoundFile(io.BytesIO(raw)) as file:
            most = room // max(file.channels, 1)
            samples = file.read(most + 1, dtype="int16", always_2d=True)
            rate = file.samplerate
    except (library.LibsndfileError, TypeError, ValueError, OverflowError):
        raise unsupported(at, "invalid_value", "this audio can't be read; send WAV, MP3 or FLAC") from None
    if len(samples) > most:
        raise unsupported(at, "invalid_value", f"the audio of a request may have {MAX_SAMPLES} samples; shorten it")
    return pybase64.b64encode(sound.written(sound.Sound(rate, samples))).decode(), samples.size
