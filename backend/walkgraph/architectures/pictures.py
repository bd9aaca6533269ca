"""Pictures from clients, encoded or as tensors, whose contents may be anything."""

import io
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed
from walkgraph.architectures.jpeg import PlainJpeg

FORMATS = ("PNG", "JPEG", "WEBP")
"""Pillow's decoders that may see a client's bytes."""
MAX_PIXELS = 64 * 10**6
MAX_SIDE = 8192


def decode(call: Call) -> Image.Image:
    """The picture at `image`: RGB, upright, alpha laid on white. Raises `CallFailed` for bytes that aren't a
    picture."""
    try:
        picture = Image.open(io.BytesIO(call.inputs["image"]), formats=FORMATS)
        pixels = picture.size[0] * picture.size[1]
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        pixels = MAX_PIXELS + 1
    except Exception as error:  # on broken bytes decoders raise all kinds of exceptions
        raise _broken(call) from error
    if pixels > MAX_PIXELS:
        message = f"`{call.node}` reads pictures of at most {MAX_PIXELS // 10**6} million pixels; send a smaller one"
        raise CallFailed(message, "image", code="invalid_input")
    try:
        ImageOps.exif_transpose(picture, in_place=True)
        return _on_white(picture)
    except MemoryError:
        raise
    except Exception as error:  # as above
        raise _broken(call) from error


def levels_of(call: Call, fits: Callable[[int, int], bool] = lambda width, height: True) -> NDArray[np.uint8] | None:
    """The picture at `image` as `decode` gives it, `[h, w, 3]`, if it is a JPEG that can be decoded at once and `fits`
    holds for its width and height; otherwise None, and `decode` says what it is."""
    jpeg = PlainJpeg.of(call.inputs["image"])
    if jpeg is None or jpeg.width * jpeg.height > MAX_PIXELS or not fits(jpeg.width, jpeg.height):
        return None
    return jpeg.levels()


def _on_white(picture: Image.Image) -> Image.Image:
    if not picture.has_transparency_data:
        # Converting a picture to the mode that it has would copy it.
        return picture if picture.mode == "RGB" else picture.convert("RGB")
    rgba = picture.convert("RGBA")
    white = Image.new("RGB", rgba.size, (255, 255, 255))
    white.paste(rgba, mask=rgba.getchannel("A"))
    return white


def _broken(call: Call) -> CallFailed:
    message = (
        f"`{call.node}` reads whole {', '.join(FORMATS)} pictures, and this is none or is damaged; encode it again"
    )
    return CallFailed(message, "image", code="invalid_input")


def pixels_of(call: Call, port: str) -> Tensor:
    """The picture at a port, float32 `[3, h, w]`. Raises `CallFailed` for a tensor that isn't one."""
    return _checked(call, port, call.inputs.get(port))


def all_pixels_of(call: Call, port: str, most: int) -> list[Tensor]:
    """The pictures of a list, 1 to `most` of them, each float32 `[3, h, w]` and all where the first one is. Raises
    `CallFailed` for anything else."""
    given = call.inputs.get(port)
    if not isinstance(given, Sequence) or isinstance(given, str | bytes) or not 1 <= len(given) <= most:
        raise CallFailed(f"`{call.node}` takes a list of 1 to {most:,} pictures", port, code="invalid_input")
    pictures = [_checked(call, port, one) for one in cast("Sequence[Any]", given)]
    return [picture.to(pictures[0].device) for picture in pictures]


def allow(call: Call, width: int, height: int, port: str | None = None) -> None:
    """Raise `CallFailed` if a call's result has more pixels than any picture may."""
    if width * height > MAX_PIXELS:
        raise CallFailed(
            f"`{call.node}` would make {width:,} by {height:,} pixels, and {MAX_PIXELS // 10**6} million is the most; "
            "make the pictures smaller first",
            port,
            code="invalid_input",
        )


def _checked(call: Call, port: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.dim() != 3 or value.shape[0] != 3 or not value.numel():
        message = f"`{call.node}` takes pictures as tensors of shape [3, height, width]"
        raise CallFailed(message, port, code="invalid_input")
    return value.float()
