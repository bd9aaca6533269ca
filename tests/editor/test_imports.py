"""Documents out of dropped files."""

from __future__ import annotations

import io
import json
import struct
import zlib

import pytest
from PIL import Image, PngImagePlugin

from walkgraph_editor import imports

GRAPH = {"format": "walkgraph/graph@1", "name": "g", "description": "é"}


def png(**texts: str) -> bytes:
    info = PngImagePlugin.PngInfo()
    for key, text in texts.items():
        info.add_itxt(key, text)
    data = io.BytesIO()
    Image.new("RGB", (2, 2)).save(data, "PNG", pnginfo=info)
    return data.getvalue()


def wav(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"".join(name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for name, data in chunks)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def test_json_says_its_kind() -> None:
    placement = {"format": "walkgraph/placement@1", "name": "p", "groups": [], "ranks": []}
    assert imports.document(json.dumps(GRAPH).encode()) == ("graph", GRAPH)
    assert imports.document(json.dumps(placement).encode()) == ("placement", placement)


def test_a_picture_and_a_sound_carry_their_graph() -> None:
    text = json.dumps(GRAPH, ensure_ascii=False)
    assert imports.document(png(Title="x", walkgraph=text)) == ("graph", GRAPH)
    sound = wav((b"fmt ", b"\0" * 15), (imports.CHUNK, text.encode()), (b"data", b"\0\0"))
    assert imports.document(sound) == ("graph", GRAPH)


def huge_png() -> bytes:
    """1,600 million pixels, of which the first byte is there."""
    head = b"IHDR" + (40_000).to_bytes(4, "big") * 2 + bytes((8, 2, 0, 0, 0))
    chunks = (
        (len(chunk) - 4).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big") for chunk in (head, b"IDATx")
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (png(), "contains no graph"),
        (wav((b"data", b"\0\0")), "contains no graph"),
        (b"\x89PNG\r\n\x1a\n broken", "can't be read"),
        (b"{", "not valid JSON"),
        (b"[1]", "not a Walkgraph document"),
        (b'{"format": "other"}', "not a Walkgraph document"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (wav()[:11], "contains no graph"),
        (b"[" * 200_000, "not valid JSON"),
        (b'{"a":' * 200_000, "not valid JSON"),
        (huge_png(), "can't be read"),
    ],
    ids=range(11),
)
def test_what_holds_no_document_is_refused_with_the_reason(data: bytes, word: str) -> None:
    with pytest.raises(imports.Unreadable, match=word):
        imports.document(data)
