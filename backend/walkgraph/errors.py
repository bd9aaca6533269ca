"""Typed errors, from the request to the worker and back.

    WalkgraphError
    ├── InvalidInput        the caller's document, parameter or media; HTTP 4xx
    │   ├── NotFound
    │   ├── Conflict
    │   └── Refused         valid, but it can't be served here (does not fit, unavailable, unsupported)
    ├── Overloaded          queue full or no room now; retry later
    └── RunFailed           a run that was admitted and ended with an `ErrorInfo`
    GroupBroken             ends a process, and not only a run

`ErrorInfo` is the form an error takes on the wire, in the store and at the client.
"""

import re
from typing import Literal

import msgspec

ErrorCode = Literal[
    "invalid_input",
    "not_found",
    "conflict",
    "refused",
    "overloaded",
    "rate_limited",
    "cancelled",
    "not_approved",
    "expired",
    "deadline_exceeded",
    "worker_lost",
    "stalled",
    "out_of_memory",
    "numeric_error",
    "node_error",
    "no_call",
    "stream_error",
    "storage_lost",
    "shutting_down",
    "internal_error",
]


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An error: what went wrong, where, and whether a retry may help."""

    code: ErrorCode
    message: str
    """Our own sentence that says what to do; never the text of a foreign exception, except for one that a plug-in's
    function raised: its first characters, without secrets."""
    node: str | None = None
    use: str | None = None
    """The node's use in its Walk."""
    port: str | None = None
    walk: str | None = None
    iteration: tuple[int, ...] = ()
    """Loop indices of the failed call, outermost first."""
    rank: int | None = None
    retryable: bool = False
    given: dict[str, str] = {}
    """Inputs of the call by port or slot, as kinds and sizes only: `float32 [1, 256]`; at most 16."""


_MOST_CHARACTERS = 4000
_CODE = re.compile(r"(code=|bearer[ .]|\bwg_[0-9a-f]{8}_)[\w\-.%]+", re.IGNORECASE)


class WalkgraphError(Exception):
    code: ErrorCode = "internal_error"
    retryable = False

    def __init__(self, message: str = "") -> None:
        super().__init__(sendable(message))

    def info(self) -> ErrorInfo:
        return ErrorInfo(code=self.code, message=str(self), retryable=self.retryable)


class InvalidInput(WalkgraphError):
    code = "invalid_input"

    def __init__(self, message: str, pointer: str = "") -> None:
        super().__init__(message)
        self.pointer = pointer
        """JSON pointer into the caller's document."""


class NotFound(InvalidInput):
    code = "not_found"


class Conflict(InvalidInput):
    code = "conflict"


class Refused(InvalidInput):
    code = "refused"


class Overloaded(WalkgraphError):
    code = "overloaded"
    retryable = True


class RunFailed(WalkgraphError):
    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(error.message)
        self.error = error

    def info(self) -> ErrorInfo:
        return self.error


def sendable(message: str) -> str:
    """The message as it can be sent: names in it may come from files or clients and be long, or have halves of
    characters, which no encoding has."""
    if len(message) > _MOST_CHARACTERS:
        message = f"{message[:_MOST_CHARACTERS]}..."
    return message if message.isascii() else message.encode(errors="replace").decode()


def without_codes(text: str) -> str:
    """The text without credentials recognizable by their form: codes, bearer tokens, keys."""
    return _CODE.sub(r"\1***", text)


class GroupBroken(BaseException):
    """A process can't go on because another one that shares its rank's work is lost, or has done something else.

    Not an `Exception`, so that whatever ends a single run lets it through: it ends the process.
    """
