"""Pictures of clients, decoded without copies, next to a plain twin that makes one at each stage."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from walkgraph.abi.calls import Call
from walkgraph.architectures.pictures import decode

_LEVELS = np.random.default_rng(5).integers(0, 255, (37, 52, 4), dtype=np.uint8)
_MODES = ("RGB", "L", "RGBA", "LA", "P", "1", "CMYK", "I;16")


def encoded(mode: str, form: str, orientation: int = 1, **options: Any) -> bytes:
    picture = Image.fromarray(_LEVELS, "RGBA").convert("RGB" if mode in ("CMYK", "I;16") else mode)
    picture = picture.convert("L").convert("I;16") if mode == "I;16" else picture.convert(mode)
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    picture.save(buffer, form, exif=exif, **options)
    return buffer.getvalue()


def plain(data: bytes) -> np.ndarray[Any, Any]:
    """Upright and on white, by copies."""
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if not upright.has_transparency_data:
        return np.array(upright.convert("RGB"))
    rgba = upright.convert("RGBA")
    white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
    white.paste(rgba, mask=rgba.getchannel("A"))
    return np.array(white.convert("RGB"))


def decoded(data: bytes) -> np.ndarray[Any, Any]:
    picture = decode(Call("r", "see", "w", 0, 0, (), {"image": data}, {}, {}, 0))
    assert picture.mode == "RGB"
    return np.array(picture)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_every_orientation_gives_the_bits_of_the_plain_way(form: str, orientation: int) -> None:
    data = encoded("RGB", form, orientation)
    found = decoded(data)
    assert np.array_equal(found, plain(data))
    assert found.shape == ((37, 52, 3) if orientation < 5 else (52, 37, 3))


@pytest.mark.parametrize("mode", _MODES)
def test_every_mode_of_a_png_gives_the_bits_of_the_plain_way(mode: str) -> None:
    data = encoded("RGB" if mode == "CMYK" else mode, "PNG", 6)
    assert np.array_equal(decoded(data), plain(data))


@pytest.mark.parametrize("options", [{"subsampling": 0}, {"subsampling": 2}, {"progressive": True}], ids=str)
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_every_kind_of_jpeg_gives_the_bits_of_the_plain_way(mode: str, options: dict[str, Any]) -> None:
    data = encoded(mode, "JPEG", 3, **options)
    assert np.array_equal(decoded(data), plain(data))
