"""Reads documents from dropped files: JSON, or a picture or sound with its graph inside."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

from PIL import Image, UnidentifiedImageError

KEYWORD = "walkgraph"
"""Keyword of the text chunk in a PNG."""
CHUNK = b"wgph"
"""Name of the chunk in a WAV."""
MAX_BYTES = 64 * 1024 * 1024


class Unreadable(ValueError):
    """The file contains no document; the message says why."""


def document(data: bytes) -> tuple[str, dict[str, Any]]:
    """(`graph` or `placement`, the document). Raises Unreadable."""
    if data[:4] == b"RIFF":
        text = next((body for name, body in _chunks(data) if name == CHUNK), None)
        found = None if text is None else text.decode("utf-8", "replace")
    elif data[:4] == b"\x89PNG":
        found = _png_text(data)
    else:
        found = data.decode("utf-8", "replace")
    if found is None:
        raise Unreadable("this file contains no graph; use a file that was saved in the playground, or a JSON document")
    try:
        value = json.loads(found)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"this file is not valid JSON: {error}") from None
    kind = str(value.get("format", "")) if isinstance(value, dict) else ""
    for name in ("graph", "placement"):
        if kind.startswith(f"walkgraph/{name}@"):
            return name, value
    raise Unreadable('this JSON is not a Walkgraph document, which starts with {"format": "walkgraph/graph@1", ...}')


def _png_text(data: bytes) -> str | None:
    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
            picture.load()
            found = picture.info.get(KEYWORD)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise Unreadable(f"this picture can't be read: {error}") from None
    return found if isinstance(found, str) else None


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The chunks of a RIFF file: name, content; sizes are little-endian, contents are padded to even lengths."""
    at = 12
    while at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        yield data[at : at + 4], data[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
