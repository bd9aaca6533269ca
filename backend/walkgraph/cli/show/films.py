"""Pictures that follow each other as one file that moves."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FILM = "film"
"""The output whose pictures are a film."""
_FORMATS = {".png": "PNG", ".apng": "PNG", ".gif": "GIF", ".webp": "WEBP"}
_FRAME_MS, _END_MS = 120, 1200


def is_film(name: str, values: Sequence[dict[str, Any]], path: Path) -> bool:
    """Whether these are one film, and the path's suffix is that of a kind of file that moves."""
    return name == FILM and len(values) > 1 and path.suffix.lower() in _FORMATS


def write_film(values: Sequence[dict[str, Any]], path: Path) -> None:
    """`values`: pictures of one size, base64 in `data`. Its end stands for a while before it begins anew."""
    from PIL import Image

    frames = [Image.open(io.BytesIO(base64.b64decode(value["data"]))).convert("RGB") for value in values]
    stays = [_FRAME_MS] * (len(frames) - 1) + [_END_MS]
    more = {"save_all": True, "append_images": frames[1:], "duration": stays, "loop": 0}
    frames[0].save(path, format=_FORMATS[path.suffix.lower()], **more)
