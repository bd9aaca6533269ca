"""Pictures and sound at the border: encoded bytes outside, tensors inside. Clients may send any bytes."""

import struct
import zlib
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.architectures import sounds
from walkgraph.architectures.pictures import MAX_SIDE, decode, levels_of
from walkgraph.checkpoints.pictures import PictureRules
from walkgraph.layers.pictures.patches import bilinear, normalise, to_levels, to_picture

_UP, _RGB = 2, 2
"""In PNG files: the filter type of a row, and the colour type RGB."""
_FULL = 1 << 15
_HEAD = struct.Struct("<4sI4s4sIHHIIHH4sI")
"""Header of a WAV file with one format chunk (PCM, one channel, 16 bits) and one chunk of samples."""


class PictureIn(Operator):
    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"pixels": _pixels(call)} for call in calls]


class PictureResize(Operator):
    """Gives the same result as decoding at the first size and resizing again, by rounding to whole levels in
    between."""

    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        pictures = [Image.fromarray(to_levels(call.inputs["pixels"]).cpu().numpy()) for call in calls]
        return [{"pixels": _fit(picture, call)} for picture, call in zip(pictures, calls, strict=True)]


class PictureOut(Operator):
    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"image": _png(call.inputs["pixels"])} for call in calls]


class AudioIn(Operator):
    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def quick(self, call: Call) -> bool:
        return sounds.is_short(call, "audio")

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"waveform": wave} for wave in map(_heard, calls)]


class AudioOut(Operator):
    """Encodes 16-bit PCM. A waveform without samples gives no file, as a piece of a stream may settle none."""

    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [
            {"audio": _wav(call.inputs["waveform"], int(call.params["sample_rate"]))}
            if call.inputs["waveform"].numel()
            else {}
            for call in calls
        ]


def _heard(call: Call) -> Tensor:
    wave = sounds.decode(call, "audio")
    if wave is None:
        raise CallFailed(f"the file at `{call.node}` has no sound that can be read", "audio", code="invalid_input")
    return wave


def _pixels(call: Call) -> Tensor:
    """The picture at `image`, by the call's parameters: float32 `[3, h, w]` in [-1, 1]."""

    def stays(width: int, height: int) -> bool:
        return (not call.params["crop"] or width == height) and _size(call, width, height) == (width, height)

    levels = levels_of(call, stays)
    return _fit(decode(call), call) if levels is None else normalise(torch.from_numpy(levels))


def _size(call: Call, width: int, height: int) -> tuple[int, int]:
    """Width and height by the call's parameters."""
    rules = ("size", "min_side", "max_side", "stride", "max_pixels")
    return _target((width, height), *(int(call.params[name]) for name in rules))


def _fit(picture: Image.Image, call: Call) -> Tensor:
    """Resize a picture by the call's parameters to float32 `[3, h, w]` in [-1, 1]."""
    if call.params["crop"]:
        picture = _middle(picture)
    size = _size(call, *picture.size)
    if picture.size == size:
        return normalise(torch.from_numpy(np.array(picture)))
    if call.params["resample"] == "bilinear":
        width, height = size
        return normalise(bilinear(torch.from_numpy(np.array(picture)), height, width))
    return normalise(torch.from_numpy(np.array(picture.resize(size, Image.Resampling.BICUBIC))))


def _middle(picture: Image.Image) -> Image.Image:
    """The largest centred square; an odd remainder is larger on the right or at the bottom."""
    width, height = picture.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return picture.crop((left, top, left + side, top + side))


def _target(size: tuple[int, int], square: int, least: int, most: int, stride: int, pixels: int) -> tuple[int, int]:
    """Width and height after the resize; bounds are rounded to the stride, inward."""
    if square:
        return square, square
    if not least and not most and stride == 1 and max(size) <= MAX_SIDE and size[0] * size[1] <= pixels:
        return size
    top = max((most or MAX_SIDE) // stride, 1) * stride
    bottom = min(max(-(-least // stride), 1) * stride, top)
    return PictureRules(min_side=bottom, max_side=top, stride=stride, max_pixels=pixels).target(*size)


def _png(pixels: Tensor) -> bytes:
    """pixels `[3, h, w]` in [-1, 1], clamped."""
    # Each row is stored as its difference to the row above, and only runs of one byte are searched: a photograph's
    # grain of 1024 by 1024 takes 22 ms and 3 % more bytes than a library's default, which takes 140 ms; a smooth
    # picture takes an eighth of that.
    rows = to_picture(pixels).cpu().numpy()
    height, width, _ = rows.shape
    rows = rows.reshape(height, -1)
    filtered = np.empty((height, 1 + rows.shape[1]), np.uint8)
    filtered[:, 0] = _UP
    filtered[:1, 1:] = rows[:1]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    deflate = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_RLE)
    packed = deflate.compress(filtered.data) + deflate.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, _RGB, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", packed) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk of a PNG file."""
    return b"".join((struct.pack(">I", len(data)), kind, data, struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))))


def _wav(waveform: Tensor, rate: int) -> bytes:
    """waveform `[n]` in [-1, 1], clamped."""
    # A second's sound comes in many pieces: a header and the samples are far faster than a library's file.
    sound = waveform.float().mul(_FULL).floor_().clamp_(-_FULL, _FULL - 1).to(torch.int16)
    samples = sound.cpu().numpy().astype("<i2", copy=False).tobytes()
    return (
        _HEAD.pack(b"RIFF", 36 + len(samples), b"WAVE", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16, b"data", len(samples))
        + samples
    )
