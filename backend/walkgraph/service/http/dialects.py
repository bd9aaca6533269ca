"""Writes an error in the form that clients of the requested path expect.

    /v1/models, /v1/chat ...        OpenAI's `{"error": {"message", "type", "param", "code"}}`
    /v2 ...                         KServe's `{"error": "..."}`
    elsewhere                       RFC 9457

`problems` decides the message and the status; this module only writes them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

Dialect = Literal["native", "openai", "kserve"]

PROBLEM_JSON = "application/problem+json"
JSON = "application/json"
RETRY_SECONDS = 1
SHOULD_RETRY = "x-should-retry"

_NATIVE = frozenset({"tasks", "sessions", "runs", "limits"})
"""Walkgraph's own routes below `/v1`; all others there follow OpenAI's API."""
_WITHOUT_V1 = ("/models", "/chat/", "/images/", "/audio/", "/completions", "/embeddings", "/responses", "/realtime")
"""Paths that OpenAI's clients request when their base address lacks `/v1`: they understand only their own dialect."""
_TOLD_FAULTS = 4

TITLES: dict[int, str] = {
    400: "The request could not be read",
    401: "A token is needed",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    406: "No acceptable content type",
    408: "The request took too long",
    409: "Conflict with the current state",
    412: "Changed by somebody else",
    413: "Too large",
    415: "The content type must be application/json",
    421: "Unknown host name",
    422: "The request is invalid",
    429: "Too many requests",
    431: "The headers are too large",
    500: "The service failed",
    503: "Not available now",
    504: "The run took too long",
    507: "Storage unavailable",
}

_OPENAI_CODES = {
    "missing": "missing_required_parameter",
    "extra_forbidden": "unknown_parameter",
    "unknown_key": "unknown_parameter",
    "invalid_input": "invalid_value",
    "bad_value": "invalid_value",
    "bad_part": "invalid_value",
    "bad_inputs": "invalid_value",
    "too_long": "invalid_value",
    "too_short": "invalid_value",
    "string_too_long": "invalid_value",
    "string_too_short": "invalid_value",
    "string_pattern_mismatch": "invalid_value",
    "literal_error": "invalid_value",
    "union_tag_invalid": "invalid_value",
    "union_tag_not_found": "invalid_value",
    "greater_than": "invalid_value",
    "greater_than_equal": "invalid_value",
    "less_than": "invalid_value",
    "less_than_equal": "invalid_value",
    "finite_number": "invalid_value",
    "value_error": "invalid_value",
}
"""OpenAI's code for a fault's code. A wrong type becomes `invalid_type`; other codes stay as they are."""
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CLIENTS_FAULT = {409: 400, 422: 400}
"""OpenAI and KServe answer 400 if the client must change its request; their clients retry a 409."""


class Fault(msgspec.Struct, frozen=True):
    """One mistake in the caller's document."""

    pointer: str
    """JSON pointer into the body that was sent."""
    code: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Said:
    """An error before it is written in a dialect."""

    status: int
    code: str
    detail: str
    faults: Sequence[Fault] = ()
    retryable: bool = False
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further members of an RFC 9457 document."""


@dataclass(frozen=True)
class Written:
    status: int
    body: bytes
    media_type: str
    headers: dict[str, str]


def dialect_of(path: str) -> Dialect:
    if path.startswith("/v1/"):
        return "native" if path[4:].partition("/")[0] in _NATIVE else "openai"
    if path == "/v2" or path.startswith("/v2/"):
        return "kserve"
    return "openai" if path.startswith(_WITHOUT_V1) else "native"


def write(path: str, said: Said) -> Written:
    """The error as the answer to a request for `path`."""
    headers = dict(said.headers)
    if said.retryable and said.status in (429, 503):
        headers.setdefault("Retry-After", str(RETRY_SECONDS))
    elif not said.retryable:
        headers.setdefault(SHOULD_RETRY, "false")
    match dialect_of(path):
        case "openai":
            status = _status(said)
            return Written(status, msgspec.json.encode(openai_error(said)), JSON, headers)
        case "kserve":
            return Written(_status(said), msgspec.json.encode({"error": sentence(said)}), JSON, headers)
        case "native":
            return Written(said.status, msgspec.json.encode(_problem(said)), PROBLEM_JSON, headers)


def openai_error(said: Said) -> dict[str, Any]:
    """OpenAI's error body. It also ends a stream that fails."""
    first = said.faults[0] if said.faults else None
    param = parameter(first.pointer) if first else ""
    code = _openai_code(first.code) if first else said.code
    if code == "not_found" and param == "model":
        code = "model_not_found"
    kind = "server_error" if said.status >= 500 else _OPENAI_TYPES.get(said.status, "invalid_request_error")
    return {"error": {"message": sentence(said), "type": kind, "param": param or None, "code": code}}


def sentence(said: Said) -> str:
    """The whole error in one text, for dialects without a list of faults."""
    if not said.faults:
        return said.detail
    told = [_told(fault, said.detail) for fault in said.faults[:_TOLD_FAULTS]]
    left = len(said.faults) - len(told)
    return "; ".join(told) + (f"; and {left} more" if left > 0 else "")


def parameter(pointer: str) -> str:
    """OpenAI's name for a JSON pointer: `/messages/0/content` becomes `messages[0].content`."""
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    return re.sub(r"(?:^|\.)(\d+)(?=\.|$)", r"[\1]", ".".join(steps))


def _openai_code(code: str) -> str:
    wrong_type = code.endswith(("_type", "_parsing"))
    return "invalid_type" if wrong_type else _OPENAI_CODES.get(code, code)


def _told(fault: Fault, detail: str) -> str:
    """The fault's message with its parameter, unless the message already names it or is the whole error."""
    param = parameter(fault.pointer)
    named = not param or fault.message == detail or f"`{param}`" in fault.message
    return fault.message if named else f"`{param}`: {fault.message}"


def _status(said: Said) -> int:
    # A cancelled run is not the client's mistake.
    return said.status if said.code == "cancelled" else _CLIENTS_FAULT.get(said.status, said.status)


def _problem(said: Said) -> dict[str, Any]:
    return {
        "type": f"urn:walkgraph:problem:{said.code.replace('_', '-')}",
        "title": TITLES.get(said.status, TITLES[500]),
        "status": said.status,
        "code": said.code,
        "detail": said.detail,
        "retryable": said.retryable,
        "errors": list(said.faults),
        **said.more,
    }
