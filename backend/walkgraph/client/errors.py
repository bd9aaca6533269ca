"""What can go wrong on this side of the wire, and what the service said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import Any, cast


class ClientError(Exception):
    """Something came back that is no answer, or nothing did."""


class Unreachable(ClientError):
    """There is no service to speak with."""


class Lost(Unreachable):
    """The connection broke before the answer was there: what was asked for may have been done."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong in what was sent."""

    pointer: str
    """JSON pointer into it."""
    code: str
    message: str


class ProblemError(ClientError):
    """The service said no, and why."""

    def __init__(self, status: int, content: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self.detail = str(content.get("detail", "the service refused the request"))
        """The service's sentence alone; `str()` of the error has the faults below it."""
        super().__init__(self.detail)
        self.status = status
        self.code = str(content.get("code", "internal_error"))
        self.retryable = bool(content.get("retryable", False))
        self.faults = tuple(
            Fault(str(e.get("pointer", "")), str(e.get("code", "")), str(e.get("message", "")))
            for e in content.get("errors", ())
        )
        self.content = dict(content)
        known = headers or {}
        self.request_id = known.get("x-request-id")
        """What the service calls the request, for its log."""
        self.retry_after = _seconds(known.get("retry-after"))
        """Seconds after which another try can help, where the service said so."""
        self.hopeless = known.get("x-should-retry") == "false"
        """The service says that another try can't help."""

    def __str__(self) -> str:
        faults = [f"  {fault.pointer or '/'}: {fault.message}" for fault in self.faults if fault.message != self.detail]
        detail = self.detail.removesuffix("; see `errors`") if faults else self.detail
        return "\n".join([f"{detail}:" if faults else detail, *faults])


class RunError(ProblemError):
    """A run was begun and failed, or was cancelled: `code` says which."""

    def __init__(self, status: int, content: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, content, headers)
        self.info: dict[str, Any] = dict(cast(Mapping[str, Any], content.get("error", {})))
        """With `node`, `walk`, `iteration` and `rank` of the call that failed, where one did."""
        node: Any = self.info.get("node")
        self.node: str | None = node


def of_run(info: Mapping[str, Any], faults: Any = ()) -> ProblemError:
    """For an error that was told as an event: of a run, or of a request that none was begun for."""
    content = {
        "detail": info.get("message", "the run failed"),
        "code": info.get("code"),
        "retryable": info.get("retryable", False),
        "errors": faults,
        "error": info,
    }
    return (ProblemError if faults else RunError)(200, content)


def refused(status: int, content: Any, headers: Mapping[str, str]) -> ProblemError:
    """For an answer that is none of the good ones."""
    fields = cast(dict[str, Any], content) if isinstance(content, dict) else {}
    kind = RunError if isinstance(fields.get("error"), dict) else ProblemError
    return kind(status, fields, headers)


def _seconds(text: str | None) -> float | None:
    """Of `Retry-After`: a number, or a date."""
    if text is None:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time())
    except ValueError:
        return None
