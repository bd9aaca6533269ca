"""Encodes the pieces of audio that a run outputs as one stream in the client's format, while they are generated.

Stream headers mark the length as unknown: `0xFFFFFFFF` bytes in WAV, 0 samples in FLAC.
"""

import asyncio
import importlib
import io
import wave
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from walkgraph.errors import ErrorInfo, InvalidInput, RunFailed

Samples = npt.NDArray[np.int16]
"""[frames, channels]."""

_UNKNOWN = 0xFFFFFFFF
_THREAD_SAMPLES = 65_536
"""Fewer are copied or written as FLAC in a fraction of a millisecond; MP3 and Opus need that for a tenth of them."""
_PIECE_FRAMES = 1 << 18
"""Read at a time from a compressed file."""
_OGG_PAGE_LATENCY_MS = 0x1302
"""libsndfile's `SFC_SET_OGG_PAGE_LATENCY_MS`."""
_PAGE_MS = 50.0


class Format(NamedTuple):
    name: str
    media_type: str
    rates: tuple[int, ...] = ()
    """Sample rates that it supports; empty for any."""
    channels: int = 8
    """Most channels that it supports."""
    slow: bool = False
    """Encoding a tenth of a second of audio takes over a millisecond on a slow core."""


FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Format("wav", "audio/wav"),
        Format("pcm", "audio/pcm"),
        Format("flac", "audio/flac"),
        Format("mp3", "audio/mpeg", (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000), 2, slow=True),
        Format("opus", "audio/ogg; codecs=opus", (8000, 12000, 16000, 24000, 48000), slow=True),
    )
}


class BadSound(RunFailed):
    """A model's output is not audio, or its format changed in the middle."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorInfo(code="node_error", message=message))


class Sound(NamedTuple):
    rate: int
    """Samples per second."""
    samples: Samples

    @property
    def channels(self) -> int:
        return self.samples.shape[1]

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


def read(data: bytes) -> Sound:
    """Reads a model's piece, which is a complete audio file. Raises BadSound."""
    try:
        with wave.open(io.BytesIO(data)) as file:
            if file.getsampwidth() == 2:
                flat = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.int16, copy=False)
                return Sound(file.getframerate(), flat.reshape(-1, file.getnchannels()))
    except (wave.Error, EOFError, ValueError, RuntimeError):
        pass  # a chunk that extends beyond its file raises a bare RuntimeError
    return _read_other(data)


def _read_other(data: bytes) -> Sound:
    library = _soundfile()
    try:
        with library.SoundFile(io.BytesIO(data)) as file:
            # A damaged header may claim terabytes, so memory is taken only for frames that are there.
            pieces = [file.read(_PIECE_FRAMES, dtype="int16", always_2d=True)]
            while len(pieces[-1]):
                pieces.append(file.read(_PIECE_FRAMES, dtype="int16", always_2d=True))
            return Sound(file.samplerate, np.concatenate(pieces))
    except (library.LibsndfileError, TypeError, ValueError, OverflowError):
        raise BadSound("the model's output is not audio that can be read") from None


def _soundfile() -> Any:
    """Imported late: it takes a tenth of a second to load. It has no types."""
    return importlib.import_module("soundfile")


def pcm(samples: Samples) -> bytes:
    """The samples as 16-bit little-endian integers, channels interleaved."""
    return samples.astype("<i2", copy=False).tobytes()


def written(sound: Sound) -> bytes:
    """A WAV file of known length."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(sound.channels)
        file.setsampwidth(2)
        file.setframerate(sound.rate)
        file.writeframes(pcm(sound.samples))
    return buffer.getvalue()


# ── streams ─────────────────────────────────────────────────────────────────────────────────────


class _Writer(Protocol):
    def write(self, samples: Samples) -> bytes:
        """Encodes samples; returns the bytes that are ready."""
        ...

    def close(self) -> bytes: ...


class Stream:
    """A stream in one format. The first piece sets the rate and channels of the others."""

    def __init__(self, name: str) -> None:
        """`name`: one of `FORMATS`."""
        self.format = FORMATS[name]
        self.rate = 0
        self.channels = 0
        self.seconds = 0.0
        """Seconds of audio so far."""
        self._writer: _Writer | None = None

    async def feed(self, data: bytes) -> bytes:
        """The bytes that are ready after this piece, possibly none. Slow formats are encoded off the event loop.

        Raises InvalidInput if the format can't hold the audio, BadSound if the piece is not audio, or has another rate
        or number of channels.
        """
        if self.format.slow or len(data) > 2 * _THREAD_SAMPLES:
            return await asyncio.to_thread(self.write, data)
        return self.write(data)

    async def finish(self) -> bytes:
        """The last bytes."""
        return await asyncio.to_thread(self.close) if self.format.slow else self.close()

    def write(self, data: bytes) -> bytes:
        """As `feed`, on the calling thread."""
        sound = read(data)
        if self._writer is None:
            self._begin(sound)
        elif (sound.rate, sound.channels) != (self.rate, self.channels):
            raise BadSound("the model changed the rate or the channels of its sound on the way")
        self.seconds += sound.seconds
        return cast(_Writer, self._writer).write(sound.samples)

    def close(self) -> bytes:
        return self._writer.close() if self._writer is not None else b""

    def _begin(self, sound: Sound) -> None:
        if not _holds(self.format, sound):
            others = ", ".join(f"`{one.name}`" for one in FORMATS.values() if _holds(one, sound))
            raise InvalidInput(
                f"this model's sound has {sound.rate} samples a second and {sound.channels} channels, which "
                f"`{self.format.name}` can't hold; ask for one of {others}"
            )
        self.rate, self.channels = sound.rate, sound.channels
        self._writer = _WRITERS[self.format.name](sound.rate, sound.channels)


def _holds(form: Format, sound: Sound) -> bool:
    return (not form.rates or sound.rate in form.rates) and sound.channels <= form.channels


def encoded(pieces: Iterable[bytes], name: str) -> bytes:
    """All pieces encoded as one file in one of `FORMATS`; a WAV states its length. Raises as `Stream.feed`."""
    sounds = [read(piece) for piece in pieces]
    if len({(sound.rate, sound.channels) for sound in sounds}) > 1:
        raise BadSound("the model changed the rate or the channels of its sound on the way")
    if not sounds:
        return b""
    whole = written(Sound(sounds[0].rate, np.concatenate([sound.samples for sound in sounds])))
    if name == "wav":
        return whole
    stream = Stream(name)
    return stream.write(whole) + stream.close()


class _Pcm:
    def __init__(self, head: bytes) -> None:
        self._head = head

    def write(self, samples: Samples) -> bytes:
        head, self._head = self._head, b""
        return head + pcm(samples)

    def close(self) -> bytes:
        return b""


def _wav_head(rate: int, channels: int) -> bytes:
    width = 2 * channels
    numbers = ((16, 4), (1, 2), (channels, 2), (rate, 4), (rate * width, 4), (width, 2), (16, 2))
    form = b"".join(number.to_bytes(size, "little") for number, size in numbers)
    unknown = _UNKNOWN.to_bytes(4, "little")
    return b"RIFF" + unknown + b"WAVEfmt " + form + b"data" + unknown


class _Tail(io.RawIOBase):
    """A file that libsndfile writes to; it keeps only bytes that were not taken yet. Corrections of bytes that were
    taken, which libsndfile makes on close, are dropped."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._taken = 0
        self._at = 0

    def take(self) -> bytes:
        found = bytes(self._kept)
        self._taken += len(found)
        self._kept.clear()
        return found

    def write(self, data: Any, /) -> int:
        piece = bytes(data)
        start = self._at - self._taken
        self._at += len(piece)
        if start >= 0:
            self._kept[start : start + len(piece)] = piece
        return len(piece)

    def read(self, size: int = -1, /) -> bytes:
        raise io.UnsupportedOperation("it is written only")

    def readinto(self, buffer: Any, /) -> int:
        raise io.UnsupportedOperation("it is written only")

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._at = (0, self._at, self._taken + len(self._kept))[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True


class _Encoded:
    """Encodes with libsndfile."""

    def __init__(self, rate: int, channels: int, kind: str, subtype: str, **settings: Any) -> None:
        self._tail = _Tail()
        self._file: Any = _soundfile().SoundFile(
            self._tail, "w", rate, channels, format=kind, subtype=subtype, **settings
        )

    def write(self, samples: Samples) -> bytes:
        self._file.write(samples)
        return self._tail.take()

    def close(self) -> bytes:
        self._file.close()
        return self._tail.take()


class _Flac(_Encoded):
    def __init__(self, rate: int, channels: int) -> None:
        # Levels below 0.375 have blocks of 1152 samples, higher ones of 4096, which would delay a sixth of a second.
        super().__init__(rate, channels, "FLAC", "PCM_16", compression_level=0.25)


class _Mp3(_Encoded):
    """MP3 with a constant bitrate, from which players estimate the length that the header lacks."""

    def __init__(self, rate: int, channels: int) -> None:
        super().__init__(rate, channels, "MP3", "MPEG_LAYER_III", compression_level=0.4, bitrate_mode="CONSTANT")
        self._head = b""
        self._skipped = False

    def write(self, samples: Samples) -> bytes:
        return self._without_info(super().write(samples))

    def close(self) -> bytes:
        return self._without_info(super().close())

    def _without_info(self, data: bytes) -> bytes:
        """Removes LAME's info frame: it is filled in only at the end, and would play as silence while empty."""
        if self._skipped:
            return data
        self._head += data
        if len(self._head) < 4 or len(self._head) < _frame_bytes(self._head):
            return b""
        self._skipped = True
        head, self._head = self._head, b""
        return head[_frame_bytes(head) :]


_MPEG1_KBPS = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_MPEG2_KBPS = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_MPEG1_RATES = (44100, 48000, 32000)


def _frame_bytes(frame: bytes) -> int:
    """Length of an MPEG layer III frame according to its header."""
    version = frame[1] >> 3 & 3
    # 3: MPEG 1; 2: MPEG 2, with half the rates; 0: MPEG 2.5, with a quarter.
    kbps = (_MPEG1_KBPS if version == 3 else _MPEG2_KBPS)[frame[2] >> 4]
    rate = _MPEG1_RATES[frame[2] >> 2 & 3] >> {3: 0, 2: 1, 0: 2}[version]
    return (144 if version == 3 else 72) * kbps * 1000 // rate + (frame[2] >> 1 & 1)


class _Opus(_Encoded):
    def __init__(self, rate: int, channels: int) -> None:
        super().__init__(rate, channels, "OGG", "OPUS")
        # By default a page gathers a second of audio; the Python wrapper doesn't expose this setting of libsndfile.
        library = _soundfile()
        value = library._ffi.new("double *", _PAGE_MS)
        library._snd.sf_command(self._file._file, _OGG_PAGE_LATENCY_MS, value, library._ffi.sizeof("double"))


_WRITERS: dict[str, Callable[[int, int], _Writer]] = {
    "wav": lambda rate, channels: _Pcm(_wav_head(rate, channels)),
    "pcm": lambda _rate, _channels: _Pcm(b""),
    "flac": _Flac,
    "mp3": _Mp3,
    "opus": _Opus,
}
