"""Read a result whose media and tensors come as parts of a form beside it."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec

ACCEPT = "multipart/mixed, application/json;q=0.5"
_RESULT = "result"


def read(answer: httpx.Response) -> tuple[dict[str, Any], list[bytes]]:
    """(the result, the frames that it names). Raises ValueError for content that is neither a form nor JSON."""
    kind, _, boundary = answer.headers.get("content-type", "").partition("; boundary=")
    if kind != "multipart/mixed":
        return answer.json(), []
    found = dict(_parts(answer.content, b"--" + boundary.encode()))
    result: dict[str, Any] = msgspec.json.decode(found.pop(_RESULT, b""))
    return result, [found[str(k)] for k in range(len(found))]


def _parts(content: bytes, delimiter: bytes) -> list[tuple[str, bytes]]:
    """(name, bytes) of each. Between two delimiters stand `\\r\\n`, headers, an empty line, bytes, `\\r\\n`."""
    found: list[tuple[str, bytes]] = []
    begin = content.find(delimiter)
    while begin >= 0:
        begin += len(delimiter)
        end = content.find(b"\r\n" + delimiter, begin)
        head = content.find(b"\r\n\r\n", begin, end)
        if end < 0 or head < 0:
            break
        name = content[begin:head].partition(b'name="')[2].partition(b'"')[0]
        found.append((name.decode(), content[head + 4 : end]))
        begin = end + 2
    return found
