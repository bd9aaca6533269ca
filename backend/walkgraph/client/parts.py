"""Read a result whose media and tensors come as parts of a form beside it."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec

from walkgraph.client.errors import refused
from walkgraph.client.events import FormReader

ACCEPT = "multipart/mixed;early=1, application/json;q=0.5"
"""Frames may come before the result that names them, while the run goes on."""
ACCEPT_EVENTS = "multipart/mixed, text/event-stream;q=0.5"
_RESULT, _PROBLEM = "result", "problem"


class ResultReader:
    """Collects the parts of a result as they come, each in memory of its own."""

    def __init__(self, boundary: str) -> None:
        self._form = FormReader(boundary)
        self._parts: dict[str, memoryview] = {}

    def take(self, piece: bytes) -> None:
        """Raises ValueError for content that isn't such a form."""
        self._parts.update(self._form.take(piece))

    def whole(self) -> tuple[dict[str, Any], list[memoryview]]:
        """(the result, the frames that it names). Raises ProblemError if the run failed behind its first frames,
        ValueError or KeyError if something is missing."""
        if _PROBLEM in self._parts:
            problem: dict[str, Any] = msgspec.json.decode(self._parts[_PROBLEM])
            raise refused(problem["status"], problem, {})
        result: dict[str, Any] = msgspec.json.decode(self._parts.pop(_RESULT, b""))
        return result, [self._parts[str(k)] for k in range(len(self._parts))]


def reader(answer: httpx.Response) -> ResultReader | None:
    """The reader of an answer that is a form."""
    boundary = boundary_of(answer)
    return ResultReader(boundary) if boundary is not None else None


def read(answer: httpx.Response) -> tuple[dict[str, Any], list[memoryview]]:
    """The result of an answer that is JSON, without frames. Raises ValueError for other content."""
    return answer.json(), []


def boundary_of(answer: httpx.Response) -> str | None:
    """The boundary of an answer that is a form."""
    kind, _, boundary = answer.headers.get("content-type", "").partition("; boundary=")
    return boundary if kind == "multipart/mixed" else None
