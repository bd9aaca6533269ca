"""The binary extension of the Open Inference Protocol: a body of JSON, followed by the bytes of its tensors.

Inference-Header-Content-Length: 187        size of the JSON; `parameters.binary_data_size` is that of a tensor
"""

import re
import struct
from collections.abc import Sequence

from walkgraph.errors import InvalidInput
from walkgraph.service.http import limits

HEADER = "inference-header-content-length"
MEDIA_TYPE = "application/octet-stream"
PATHS = re.compile(r"/v2/models/[^/]+(?:/versions/[^/]+)?/infer", re.ASCII)
"""Paths on which a POST may have such a body."""


def takes(method: str, path: str, lengths: Sequence[str], types: Sequence[str]) -> bool:
    """True if a request may have such a body: it has the header with the length of its JSON, which a page of another
    origin can't send; or it has no content type, as NVIDIA's client sends JSON. Cookies aren't accepted on these
    paths."""
    if method != "POST" or PATHS.fullmatch(path) is None:
        return False
    if not types:
        return len(lengths) < 2
    return [kind.strip().lower() for kind in types] == [MEDIA_TYPE] and len(lengths) == 1


def split(raw: bytes, length: str | None) -> tuple[bytes, memoryview]:
    """(JSON, bytes of the tensors). Raises InvalidInput if the length is invalid."""
    if length is None:
        return raw, memoryview(b"")
    if not (length.isascii() and length.isdigit()) or len(length) > 12 or not 0 < int(length) <= len(raw):
        raise InvalidInput(f"`{HEADER}` must be the length of the JSON that the body begins with")
    return raw[: int(length)], memoryview(raw)[int(length) :]


def elements(data: bytes, pointer: str) -> list[bytes]:
    """Elements of a BYTES tensor: each is preceded by its length, 4 bytes little-endian."""
    found: list[bytes] = []
    at = 0
    while at < len(data):
        if len(found) == limits.PARTS:
            raise InvalidInput(f"a tensor of texts or media may have {limits.PARTS} elements", pointer)
        size = int.from_bytes(data[at : at + 4], "little")
        if at + 4 + size > len(data):
            raise InvalidInput("an element's length goes beyond the tensor's bytes", pointer)
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def joined(elements: Sequence[bytes]) -> bytes:
    """The reverse of `elements`."""
    return b"".join(piece for element in elements for piece in (struct.pack("<I", len(element)), element))
