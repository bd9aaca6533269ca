"""Encoded pictures from clients, whose bytes may be anything."""

import io

from PIL import Image, ImageOps

from walkgraph.abi.calls import Call, CallFailed

FORMATS = ("PNG", "JPEG", "WEBP")
"""Decoders that may see a client's bytes."""
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
        return _on_white(ImageOps.exif_transpose(picture))
    except MemoryError:
        raise
    except Exception as error:  # as above
        raise _broken(call) from error


def _on_white(picture: Image.Image) -> Image.Image:
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    rgba = picture.convert("RGBA")
    white = Image.new("RGB", rgba.size, (255, 255, 255))
    white.paste(rgba, mask=rgba.getchannel("A"))
    return white


def _broken(call: Call) -> CallFailed:
    message = f"`{call.node}` reads whole {', '.join(FORMATS)} pictures, and this is not one; encode it again"
    return CallFailed(message, "image", code="invalid_input")
