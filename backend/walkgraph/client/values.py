"""The values of runs in Python: texts, pictures, sounds, tensors.

NumPy and Pillow are imported where they are needed, not before.
"""

from __future__ import annotations

import io
import wave
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pybase64

from walkgraph.media_types import suffix_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

_END_MS = 1200

Bytes: TypeAlias = "bytes | memoryview"


class Text(str):
    """A text; the texts of one result are joined."""

    __slots__ = ()


@dataclass(frozen=True)
class Turn:
    """A turn of a conversation: `Turn("user", ["What is this?", Picture(...)])`."""

    role: str
    """`system`, `user`, `assistant` or `tool`."""
    content: Any
    """A text, a part, or a list of parts: texts, paths, pictures, sounds."""
    tool_calls: Sequence[Mapping[str, Any]] = ()
    """The calls of an assistant's turn, as in OpenAI's API."""
    tool_call_id: str | None = None
    """The call that a tool's turn answers."""


@dataclass(frozen=True)
class Binary:
    """Bytes of some kind without a type of its own."""

    data: bytes
    mime: str

    def save(self, path: str | Path) -> Path:
        """Write the bytes unchanged; a path without a suffix gets the one for their type."""
        found = Path(path)
        if not found.suffix:
            found = found.with_suffix(suffix_of(self.mime))
        found.write_bytes(self.data)
        return found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mime}, {len(self.data)} bytes)"


@dataclass(frozen=True, repr=False)
class Picture(Binary):
    """An encoded picture; notebooks show it."""

    @classmethod
    def of(cls, pixels: Any) -> Picture:
        """A PNG of a Pillow image, or of an array of uint8: [height, width] or [height, width, 3 or 4]."""
        image: Any = pixels
        if not callable(getattr(pixels, "save", None)):
            image = _drawn(pixels)
        buffer = io.BytesIO()
        # Only runs of one byte are searched. The default takes three to six times as long, for a camera's picture of
        # 224 by 224 up to 15 ms, and saves at most a tenth of the bytes.
        image.save(buffer, format="PNG", compress_type=zlib.Z_RLE)
        return cls(buffer.getvalue(), "image/png")

    @classmethod
    def film(cls, pictures: Sequence[Picture], seconds: float = 0.12) -> Picture:
        """One animated PNG from pictures of one size; each shows for `seconds`, the last one longer."""
        frames = [picture.image().convert("RGB") for picture in pictures]
        stays = [round(seconds * 1000)] * (len(frames) - 1) + [_END_MS]
        buffer = io.BytesIO()
        frames[0].save(
            buffer, format="PNG", save_all=True, append_images=frames[1:], duration=stays, loop=0, default_image=False
        )
        return cls(buffer.getvalue(), "image/png")

    def image(self) -> Image:
        """The picture as a Pillow image."""
        from PIL import Image

        return Image.open(io.BytesIO(self.data), formats=("PNG", "JPEG", "WEBP"))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, read from the head of the file."""
        return self.image().size

    def numpy(self) -> NDArray[np.uint8]:
        """The picture as uint8 [height, width, 3]."""
        import numpy as np

        return np.array(self.image().convert("RGB"))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, bytes]:
        return {self.mime: self.data}


@dataclass(frozen=True, repr=False)
class Sound(Binary):
    """An encoded sound; notebooks play it."""

    @classmethod
    def of(cls, samples: Any, rate: int) -> Sound:
        """A 16-bit WAV. `samples`: floats from -1 to 1, [count] or [count, channels]; `rate` in Hz."""
        import numpy as np

        found = np.asarray(samples, dtype=np.float32)
        if found.ndim not in (1, 2) or not np.isfinite(found).all():
            raise TypeError("samples are finite numbers, [count] or [count, channels]")
        buffer = io.BytesIO()
        with wave.open(buffer, "wb") as file:
            file.setnchannels(1 if found.ndim == 1 else found.shape[1])
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes(np.round(np.clip(found, -1, 1) * 32767).astype("<i2").tobytes())
        return cls(buffer.getvalue(), "audio/wav")

    @property
    def rate(self) -> int:
        """Samples per second."""
        return int(_sound_files().info(io.BytesIO(self.data)).samplerate)

    @property
    def seconds(self) -> float:
        return float(_sound_files().info(io.BytesIO(self.data)).duration)

    def samples(self) -> NDArray[np.float32]:
        """The samples as float32 from -1 to 1, [count, channels]."""
        return _sound_files().read(io.BytesIO(self.data), dtype="float32", always_2d=True)[0]

    def _repr_html_(self) -> str:
        return f'<audio controls src="data:{self.mime};base64,{pybase64.b64encode(self.data).decode()}"></audio>'


@dataclass(frozen=True, repr=False)
class Video(Binary):
    """An encoded video; notebooks play it."""

    def _repr_html_(self) -> str:
        return f'<video controls src="data:{self.mime};base64,{pybase64.b64encode(self.data).decode()}"></video>'


@dataclass(frozen=True, repr=False)
class File(Binary):
    """A file of another kind, such as a ZIP archive."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """Numbers of one shape; NumPy accepts it as an array."""

    dtype: str
    shape: tuple[int, ...]
    content: bytes | memoryview | Sequence[Any]
    """Little-endian bytes in C order, or nested lists where null stands for a number that isn't finite."""

    def numpy(self) -> NDArray[Any]:
        """The tensor as an array; bfloat16 becomes float32. An array of bytes that came in memory of their own shares
        it, as torch's tensors do."""
        import numpy as np

        if isinstance(self.content, bytes | memoryview):
            if self.dtype == "bfloat16":
                wide = np.frombuffer(self.content, dtype="<u2").astype(np.uint32) << 16
                return wide.view(np.float32).reshape(self.shape)
            found = np.frombuffer(self.content, dtype=np.dtype(self.dtype).newbyteorder("<"))
            return found.astype(self.dtype, copy=not found.flags.writeable).reshape(self.shape)
        numbers = cast(list[Any], self.content)
        if self.dtype.startswith(("float", "bfloat")):
            return np.array(numbers, dtype=np.float64).astype(_wide(self.dtype)).reshape(self.shape)
        return np.array(numbers, dtype=self.dtype).reshape(self.shape)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it with its own bytes: a view can't be."""
        content = bytes(self.content) if isinstance(self.content, memoryview) else self.content
        return Tensor, (self.dtype, self.shape, content)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        found = self.numpy()
        return found if dtype is None else found.astype(dtype)

    def tolist(self) -> Any:
        return self.numpy().tolist()

    def item(self) -> float:
        """The number of a tensor that has one. Raises ValueError otherwise."""
        return self.numpy().item()

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}, {list(self.shape)})"


Value: TypeAlias = (
    "Text | Picture | Sound | Video | Binary | Tensor | float | int | bool | list[Value] | dict[str, Value] | None"
)

_KINDS: dict[str, Callable[[bytes, str], Binary]] = {
    "image": Picture,
    "audio": Sound,
    "video": Video,
    "bytes": File,
}


def read(value: Mapping[str, Any], frames: Sequence[Bytes] = ()) -> Value:
    """Read a value in the service's format `{"type": ..., ...}`; None for a value that stayed on its rank."""
    kind: str = value.get("type", "")
    if "text" in value:
        return Text(value["text"])
    if "dtype" in value:
        return _tensor(value, frames)
    if "mime" in value:
        return _KINDS.get(kind, Binary)(bytes(_content(value, frames, "data")), value["mime"])
    if "value" in value:
        found: float | bool = value["value"]
        return found
    items = value.get("items")
    if isinstance(items, dict):
        return {key: read(item, frames) for key, item in cast(dict[str, Any], items).items()}
    if isinstance(items, list):
        return [read(item, frames) for item in cast(list[Any], items)]
    return None


def joined(values: Iterable[Value]) -> list[Value]:
    """The values under one name in order, with consecutive texts joined, and sound in WAV pieces joined to one file."""
    found: list[Value] = []
    for value in values:
        last = found[-1] if found else None
        if isinstance(value, Text) and isinstance(last, Text):
            found[-1] = Text(last + value)
            continue
        whole = _one_sound(last, value) if isinstance(last, Sound) and isinstance(value, Sound) else None
        if whole is None:
            found.append(value)
        else:
            found[-1] = whole
    return found


def _content(value: Mapping[str, Any], frames: Sequence[Bytes], key: str) -> Bytes:
    """Bytes of a value from its frame, or from base64 under `key`."""
    if "frame" in value:
        number: int = value["frame"]
        return frames[number]
    return pybase64.b64decode(value[key])


def _tensor(value: Mapping[str, Any], frames: Sequence[Bytes]) -> Tensor | None:
    shape: tuple[int, ...] = tuple(value["shape"])
    if "frame" in value or "base64" in value:
        return Tensor(value["dtype"], shape, _content(value, frames, "base64"))
    return Tensor(value["dtype"], shape, value["data"]) if "data" in value else None


def _one_sound(first: Sound, second: Sound) -> Sound | None:
    """Join two sounds; None unless both are PCM of one rate, width and channel count."""
    if first.mime != second.mime or first.mime != "audio/wav":
        return None
    buffer = io.BytesIO()
    try:
        with wave.open(io.BytesIO(first.data)) as a, wave.open(io.BytesIO(second.data)) as b:
            if a.getparams()[:3] != b.getparams()[:3]:
                return None
            with wave.open(buffer, "wb") as file:
                file.setnchannels(a.getnchannels())
                file.setsampwidth(a.getsampwidth())
                file.setframerate(a.getframerate())
                file.writeframes(a.readframes(a.getnframes()) + b.readframes(b.getnframes()))
    except (wave.Error, EOFError):
        return None
    return Sound(buffer.getvalue(), "audio/wav")


def _sound_files() -> Any:
    """The soundfile library, which has no type stubs."""
    import soundfile  # pyright: ignore[reportMissingTypeStubs]

    return soundfile


def _drawn(pixels: Any) -> Image:
    import numpy as np
    from PIL import Image

    found = np.asarray(pixels)
    if found.dtype != np.uint8 or not (found.ndim == 2 or (found.ndim == 3 and found.shape[2] in (3, 4))):
        raise TypeError(
            f"a picture is an array of uint8, [height, width] or [height, width, 3 or 4], not {found.dtype} "
            f"{list(found.shape)}"
        )
    return Image.fromarray(found)


def _wide(dtype: str) -> str:
    return "float32" if dtype == "bfloat16" else dtype
