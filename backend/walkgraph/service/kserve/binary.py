"""The binary extension of the Open Inference Protocol: a body that is JSON and then the bytes of its tensors.

Inference-Header-Content-Length: 187        of the JSON; each tensor says `parameters.binary_data_size`
"""

import re
import struct
from collections.abc import Sequence

from walkgraph.errors import InvalidInput
from walkgraph.service.http import limits

HEADER = "inference-header-content-length"
MEDIA_TYPE = "application/octet-stream"
PATHS = re.compile(r"/v2/models/[^/]+(?:/versions/[^/]+)?/infer", re.ASCII)
"""Where a POST may have such a body."""


def takes(method: str, path: str, lengths: Sequence[str], types: Sequence[str]) -> bool:
    """Whether a request has such a body: it says how long its JSON is, which no page of another origin can; or it says
    nothing of itself, as NVIDIA's client does of JSON. Cookies don't count below these paths."""
    if method != "POST" or PATHS.fullmatch(path) is None:
        return False
    if not types:
        return len(lengths) < 2
    return [kind.strip().lower() for kind in types] == [MEDIA_TYPE] and len(lengths) == 1


def split(raw: bytes, length: str | None) -> tuple[bytes, memoryview]:
    """(JSON, bytes of the tensors). Raises InvalidInput for a length that can't be."""
    if length is None:
        return raw, memoryview(b"")
    if not (length.isascii() and length.isdigit()) or len(length) > 12 or not 0 < int(length) <= len(raw):
        raise InvalidInput(f"`{HEADER}` must be the length of the JSON that the body begins with")
    return raw[: int(length)], memoryview(raw)[int(length) :]


def elements(data: bytes, pointer: str) -> list[bytes]:
    """Of a BYTES tensor: each with its length before it, 4 bytes little-endian."""
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
