"""Sound and video files from clients, whose bytes may be anything, read by FFmpeg through PyAV.

The reader of a file follows from its first bytes, never from FFmpeg's guess: some formats that it knows are lists of
other files and addresses, which it would open.
"""

import wave
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from walkgraph.abi.calls import Call, CallFailed

SOUND_FORMATS = ("wav", "flac", "ogg", "mp3", "aac", "mov", "matroska")
VIDEO_FORMATS = ("mov", "matroska")
_NAMES = {
    "wav": "WAV",
    "flac": "FLAC",
    "ogg": "Ogg",
    "mp3": "MP3",
    "aac": "AAC",
    "mov": "MP4",
    "matroska": "WebM",
}
_SOUND_CODECS = ("aac", "alac", "flac", "mp3", "mp3float", "opus", "libopus", "vorbis")
_PCM = tuple(f"pcm_{kind}" for kind in "u8 s16le s24le s32le f32le f64le s16be s24be s32be alaw mulaw".split())
_VIDEO_CODECS = ("h264", "hevc", "vp8", "vp9", "libvpx", "libvpx-vp9", "av1", "libdav1d", "mpeg4")
_MAGIC = (
    ("riff", 0, b"RIFF"),
    ("flac", 0, b"fLaC"),
    ("ogg", 0, b"OggS"),
    ("mov", 4, b"ftyp"),
    ("matroska", 0, b"\x1a\x45\xdf\xa3"),
    ("mp3", 0, b"ID3"),
)
"""Format, place and bytes there."""
_HEADED = {"wav": {"probesize": "32"}}
"""Format -> options where the header says everything: nothing is decoded to find out more, which takes 10 to 20 ms."""
_LONG = 1 << 21
"""Bytes of a WAV file that is read in large packets: they are decoded faster, but take 4 ms more to open."""
_LARGE = {"max_size": str(1 << 20)}
_PLAIN_WIDTH = 2
"""Bytes of a sample."""
RATES = range(1000, 384_001)
"""Samples per second."""
CHANNELS = 64
"""The most channels."""
MAX_FRAME = 4096 * 2304
"""The most pixels of a frame."""
_THREADS = 2
"""The threads of one decoder; several files may be read at once."""


class PlainSound(NamedTuple):
    """Sound as a file holds it."""

    samples: np.ndarray
    """int16 `[channels, n]`"""
    rate: int


def plain_wav(data: Any) -> PlainSound | None:
    """The samples of a WAV file of 16-bit integers, the kind that recorders make; None for anything else, and for files
    that say more than their header. Three seconds take 0.04 ms; FFmpeg takes 1.1 ms."""
    if not isinstance(data, bytes) or _format_of(data) != "wav":
        return None
    try:
        with wave.open(BytesIO(data)) as file:
            channels, width, rate, count, *_ = file.getparams()
            if width != _PLAIN_WIDTH or rate not in RATES or channels > CHANNELS:
                return None
            read = file.readframes(min(count, len(data)))
    except (wave.Error, EOFError):
        return None
    whole = len(read) // (channels * _PLAIN_WIDTH) * channels * _PLAIN_WIDTH
    return PlainSound(np.frombuffer(read[:whole], "<i2").reshape(-1, channels).T, rate)


@contextmanager
def opened(call: Call, port: str, formats: Sequence[str]) -> Iterator[Any]:
    """The container at a port, in one of these formats, for as long as it is read. Raises `CallFailed` for bytes that
    aren't one, wherever that shows."""
    import av

    data: Any = call.inputs.get(port)
    form = _format_of(data) if isinstance(data, bytes) else None
    if form is None or form not in formats:
        raise broken(call, port, formats)
    options = {
        "format_whitelist": form,
        "codec_whitelist": ",".join((*_SOUND_CODECS, *_VIDEO_CODECS, *_PCM)),
        "max_pixels": str(MAX_FRAME),
        **_HEADED.get(form, {}),
        **(_LARGE if form == "wav" and len(data) >= _LONG else {}),
    }
    try:
        with av.open(BytesIO(data), format=form, options=options, **_metadata(av)) as container:
            yield container
    except (CallFailed, MemoryError):
        raise
    except Exception as error:  # on broken bytes decoders raise all kinds of exceptions
        raise broken(call, port, formats) from error


def sound_stream(container: Any) -> Any:
    """The sound track that a player would play; None if there is none that may be read."""
    found = container.streams.best("audio")
    return found if _readable(found, (*_SOUND_CODECS, *_PCM)) else None


def video_stream(container: Any) -> Any:
    """The pictures that a player would show; None if there are none that may be read."""
    found = container.streams.best("video")
    if not _readable(found, _VIDEO_CODECS):
        return None
    found.codec_context.thread_count = _THREADS
    # A frame may have another size than its container says.
    found.codec_context.options = {"max_pixels": str(MAX_FRAME)}
    return found


def broken(call: Call, port: str, formats: Sequence[str]) -> CallFailed:
    names = ", ".join(_NAMES[form] for form in formats)
    message = f"`{call.node}` reads whole files in {names}, and this is none or is damaged; encode it again"
    return CallFailed(message, port, code="invalid_input")


def _metadata(av: Any) -> dict[str, Any]:
    """The argument that lets metadata in unknown encodings pass; from PyAV 19 on they always do."""
    return {} if int(av.__version__.split(".")[0]) >= 19 else {"metadata_errors": "ignore"}


def _readable(stream: Any, codecs: Sequence[str]) -> bool:
    return stream is not None and stream.codec_context is not None and stream.codec_context.name in codecs


def _format_of(data: bytes) -> str | None:
    head = next((form for form, at, magic in _MAGIC if data[at : at + len(magic)] == magic), None)
    if head == "riff":
        return "wav" if data[8:12] == b"WAVE" else None
    if head is None and len(data) > 1 and data[0] == 0xFF and data[1] >= 0xE0:
        # Both begin with eleven bits that are set; AAC has no layer.
        return "mp3" if data[1] & 0x06 else "aac"
    return head
