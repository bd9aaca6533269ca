"""Read a result whose media and tensors come as parts of a form beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import msgspec

from walkgraph.client.events import PART_HEAD

ACCEPT = "multipart/mixed, application/json;q=0.5"
ACCEPT_EVENTS = "multipart/mixed, text/event-stream;q=0.5"
_RESULT = "result"


def read(answer: httpx.Response) -> tuple[dict[str, Any], list[memoryview]]:
    """(the result, the frames that it names). Raises ValueError for content that is neither a form nor JSON."""
    boundary = boundary_of(answer)
    if boundary is None:
        return answer.json(), []
    found = dict(_parts(answer.content, b"--" + boundary.encode()))
    result: dict[str, Any] = msgspec.json.decode(found.pop(_RESULT, b""))
    return result, [found[str(k)] for k in range(len(found))]


def boundary_of(answer: httpx.Response) -> str | None:
    """The boundary of an answer that is a form."""
    kind, _, boundary = answer.headers.get("content-type", "").partition("; boundary=")
    return boundary if kind == "multipart/mixed" else None


def _parts(content: bytes, delimiter: bytes) -> Iterator[tuple[str, memoryview]]:
    """(name, a view of its bytes) of each. A part is the delimiter, `\\r\\n`, headers with its length, an empty line,
    its bytes, `\\r\\n`. Ends where it isn't so."""
    view, begin = memoryview(content), 0
    while content.startswith(delimiter, begin):
        end = content.find(b"\r\n\r\n", begin)
        head = PART_HEAD.match(content, begin + len(delimiter), end + 4) if end >= 0 else None
        if head is None:
            return
        begin = head.end() + int(head["length"])
        if len(content) < begin + 2:
            return
        yield head["name"].decode(), view[head.end() : begin]
        begin += 2
