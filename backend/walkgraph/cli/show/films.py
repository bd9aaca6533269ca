"""Write a sequence of pictures as one animated file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pybase64

FILM = "film"
"""The output whose pictures form a film."""
_FORMATS = {".png": "PNG", ".apng": "PNG", ".gif": "GIF", ".webp": "WEBP"}
_FRAME_MS, _END_MS = 120, 1200


def is_film(name: str, values: Sequence[dict[str, Any]], path: Path) -> bool:
    """True if the values form a film and the path's suffix names an animated format."""
    return name == FILM and len(values) > 1 and path.suffix.lower() in _FORMATS


def write_film(values: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the film; `values` are pictures of one size, base64 in `data`. The last one stays for a while before the
    loop restarts."""
    from PIL import Image

    frames = [Image.open(io.BytesIO(pybase64.b64decode(value["data"]))).convert("RGB") for value in values]
    stays = [_FRAME_MS] * (len(frames) - 1) + [_END_MS]
    more = {"save_all": True, "append_images": frames[1:], "duration": stays, "loop": 0}
    frames[0].save(path, format=_FORMATS[path.suffix.lower()], **more)
