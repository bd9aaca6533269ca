"""JPEG pictures that are decoded in one call without the interpreter lock, as those of a robot's cameras."""

from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import simplejpeg
from numpy.typing import NDArray

_START = b"\xff\xd8\xff"
_TELLING = (b"Exif\0\0", b"/xap/1.0/\0")
"""Parts of what may say that a picture has to be turned: Exif, and XMP."""
_PLAIN = ("YCbCr", "Gray")
_header = cast("Callable[[bytes], tuple[int, int, str, str]]", simplejpeg.decode_jpeg_header)
_decoded = cast("Callable[..., NDArray[np.uint8]]", simplejpeg.decode_jpeg)


class PlainJpeg(NamedTuple):
    """An encoded picture of the usual colours."""

    data: bytes
    width: int
    height: int

    @classmethod
    def of(cls, data: object) -> "PlainJpeg | None":
        """None for any other content."""
        if not isinstance(data, bytes) or not data.startswith(_START):
            return None
        try:
            height, width, colours, _ = _header(data)
        except ValueError:
            return None
        return cls(data, width, height) if colours in _PLAIN else None

    def levels(self) -> NDArray[np.uint8] | None:
        """uint8 `[height, width, 3]`, the same as Pillow's; None if it may have to be turned, or is damaged."""
        if any(one in self.data for one in _TELLING):
            return None
        try:
            return _decoded(self.data, colorspace="RGB")
        except ValueError:
            return None
