"""Errors on this side of the wire, and refusals by the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import Any, cast


class ClientError(Exception):
    """The service answered with something unreadable, or not at all."""


class Unreachable(ClientError):
    """No service can be reached."""


class Lost(Unreachable):
    """The connection broke before the answer came; the call may still have been carried out."""


@dataclass(frozen=True)
class Fault:
    """One fault in the request that was sent."""

    pointer: str
    """JSON pointer into the request."""
    code: str
    message: str


class ProblemError(ClientError):
    """The service refused the call, with a reason."""

    def __init__(self, status: int, content: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self.detail = str(content.get("detail", "the service refused the request"))
        """The service's sentence alone; `str()` of the error adds the faults below it."""
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
        """The service's id for the request, as its log shows it."""
        self.retry_after = _seconds(known.get("retry-after"))
        """Seconds after which another try can succeed, if the service named them."""
        self.hopeless = known.get("x-should-retry") == "false"
        """The service says that another try can't succeed."""

    def __str__(self) -> str:
        faults = [f"  {fault.pointer or '/'}: {fault.message}" for fault in self.faults if fault.message != self.detail]
        detail = self.detail.removesuffix("; see `errors`") if faults else self.detail
        return "\n".join([f"{detail}:" if faults else detail, *faults])


class RunError(ProblemError):
    """A run began and then failed or was cancelled; `code` says which."""

    def __init__(self, status: int, content: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, content, headers)
        self.info: dict[str, Any] = dict(cast(Mapping[str, Any], content.get("error", {})))
        """Includes `node`, `walk`, `iteration` and `rank` of the failed call, if a call failed."""
        node: Any = self.info.get("node")
        self.node: str | None = node


def of_run(info: Mapping[str, Any], faults: Any = ()) -> ProblemError:
    """Build the error for an error event of a run, or of a request that started none."""
    content = {
        "detail": info.get("message", "the run failed"),
        "code": info.get("code"),
        "retryable": info.get("retryable", False),
        "errors": faults,
        "error": info,
    }
    return (ProblemError if faults else RunError)(200, content)


def refused(status: int, content: Any, headers: Mapping[str, str]) -> ProblemError:
    """Build the error for an unsuccessful answer."""
    fields = cast(dict[str, Any], content) if isinstance(content, dict) else {}
    kind = RunError if isinstance(fields.get("error"), dict) else ProblemError
    return kind(status, fields, headers)


def _seconds(text: str | None) -> float | None:
    """Seconds from `Retry-After`, which holds a number or a date."""
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
