"""Maps errors to answers: status and message, in our own sentences. `dialects` writes them.

The text of a foreign exception never leaves the service.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, cast

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ExceptionHandler

from walkgraph.errors import Conflict, ErrorCode, ErrorInfo, InvalidInput, NotFound, Refused, RunFailed, WalkgraphError
from walkgraph.service.access.rates import RateLimited
from walkgraph.service.http import dialects
from walkgraph.service.http.body import BadForm, BadJson, BodyTooLarge, SlowBody
from walkgraph.service.http.dialects import Fault
from walkgraph.store.queries import PreconditionFailed
from walkgraph.store.session import StoreFull, StoreLost

MEDIA_TYPE = dialects.PROBLEM_JSON

_log = structlog.get_logger("walkgraph.service")


class Unprocessable(InvalidInput):
    """A request with several faults."""

    def __init__(self, message: str, faults: Iterable[Fault]) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


class Unavailable(WalkgraphError):
    """The deployment exists but does not serve: it is loading, draining, or failed."""

    def __init__(self, message: str, code: ErrorCode = "overloaded", *, retryable: bool = True) -> None:
        super().__init__(message)
        self.code, self.retryable = code, retryable


class Expired(Conflict):
    """A run waited for a person, who answers too late."""

    code = "expired"


_STATUSES: tuple[tuple[type[WalkgraphError], int], ...] = (
    (BadForm, 400),
    (BadJson, 400),
    (BodyTooLarge, 413),
    (SlowBody, 408),
    (NotFound, 404),
    (PreconditionFailed, 412),
    (Expired, 410),
    (Conflict, 409),
    (Refused, 409),
    (InvalidInput, 422),
    (StoreFull, 507),
    (StoreLost, 507),
    (RateLimited, 429),
    (WalkgraphError, 503),
)

_RUN_STATUSES: dict[ErrorCode, int] = {
    "invalid_input": 422,
    "not_found": 404,
    "conflict": 409,
    "refused": 409,
    "overloaded": 503,
    "rate_limited": 429,
    "cancelled": 409,
    "not_approved": 409,
    "expired": 410,
    "deadline_exceeded": 504,
    "worker_lost": 503,
    "out_of_memory": 503,
    # A retry gives the same result: the request or the weights must change.
    "numeric_error": 422,
    "no_call": 422,
    "storage_lost": 507,
    "shutting_down": 503,
}


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    path: str = "",
    faults: Iterable[Fault] = (),
    retryable: bool = False,
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Response:
    """A problem as the answer to a request for `path`."""
    said = dialects.Said(
        status=status,
        code=code,
        detail=detail,
        faults=tuple(faults),
        retryable=retryable,
        headers=headers or {},
        more=more or {},
    )
    return _response(path, said)


def of_run(info: ErrorInfo, path: str = "") -> Response:
    """The answer for a run that failed."""
    return _response(path, said_of_run(info))


def of_error(error: WalkgraphError, path: str = "") -> Response:
    return _response(path, said_of(error))


def said_of_run(info: ErrorInfo) -> dialects.Said:
    return dialects.Said(
        status=_RUN_STATUSES.get(info.code, 500),
        code=info.code,
        detail=info.message,
        retryable=info.retryable,
        more={"error": info},
    )


def said_of(error: WalkgraphError) -> dialects.Said:
    if isinstance(error, RunFailed):
        return said_of_run(error.error)
    status = _status_of(type(error))
    faults: tuple[Fault, ...] = ()
    if isinstance(error, Unprocessable):
        faults = error.faults
    elif isinstance(error, InvalidInput) and error.pointer:
        faults = (Fault(error.pointer, error.code, str(error)),)
    headers = {"Retry-After": str(error.retry_after)} if isinstance(error, RateLimited) else {}
    return dialects.Said(
        status=status,
        code=error.code,
        detail=str(error),
        faults=faults,
        retryable=error.retryable,
        headers=headers,
    )


@cache
def _status_of(kind: type[WalkgraphError]) -> int:
    return next(status for known, status in _STATUSES if issubclass(kind, known))


def _response(path: str, said: dialects.Said) -> Response:
    written = dialects.write(path, said)
    return Response(written.body, written.status, written.headers, written.media_type)


def install(app: FastAPI) -> None:
    """Installs the handlers that turn every exception into an answer."""
    handlers: dict[type[Exception], ExceptionHandler] = {
        WalkgraphError: _typed,
        RequestValidationError: _invalid,
        HTTPException: _http,
        Exception: _unexpected,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


async def _typed(request: Request, error: Exception) -> Response:
    return of_error(cast(WalkgraphError, error), request.scope["path"])


async def _invalid(request: Request, error: Exception) -> Response:
    error = cast(RequestValidationError, error)
    faults = validation_faults((_without_tags(found, error.body) for found in error.errors()), skip=1)
    detail = "some fields of the request are wrong"
    return problem(422, "invalid_input", detail, path=request.scope["path"], faults=faults)


def _without_tags(found: Mapping[str, Any], body: Any) -> Mapping[str, Any]:
    """Removes the names of union members from a location: pydantic adds them, but the document has no such keys."""
    where, *steps = found["loc"]
    if where != "body":
        return found
    kept: list[Any] = [where]
    at = body
    for i, step in enumerate(steps):
        inside = isinstance(at, dict) or (isinstance(at, list) and isinstance(step, int))
        if isinstance(at, dict) and step not in at and (i < len(steps) - 1 or found["type"] != "missing"):
            continue
        if inside:
            kept.append(step)
            at = _child(at, step)
    return {**found, "loc": tuple(kept)}


def _child(value: Any, step: Any) -> Any:
    try:
        return value[step]
    except (KeyError, IndexError):
        return None


_OPENAI = ("models", "chat/completions", "images/generations", "images/edits", "audio/speech", "realtime")


async def _http(request: Request, error: Exception) -> Response:
    error = cast(HTTPException, error)
    details = {404: _nothing(request.scope["path"]), 405: "this path has no such method"}
    codes = {404: "not_found"}
    status = error.status_code
    detail = details.get(status, "the request could not be served")
    code = codes.get(status, "invalid_input")
    return problem(status, code, detail, path=request.scope["path"], headers=error.headers)


def _nothing(path: str) -> str:
    detail = "there is nothing under this path"
    if dialects.dialect_of(path) != "openai":
        return detail
    if not path.startswith("/v1/"):
        return f"{detail}: the address of OpenAI's clients ends with `/v1` here"
    return f"{detail}; of OpenAI's there are {', '.join(f'`/v1/{route}`' for route in _OPENAI)}"


async def _unexpected(request: Request, error: Exception) -> Response:
    path = request.scope["path"]
    # Starlette raises it again, and the server logs the traceback.
    _log.error("unexpected error", path=path, error=type(error).__name__)
    return problem(500, "internal_error", "the service failed on this request; its log says more", path=path)


# ── sentences for what pydantic finds ───────────────────────────────────────────────────────────

_SENTENCES = {
    "missing": "this field is required",
    "extra_forbidden": "this key is unknown; remove it",
    "string_type": "this must be a string",
    "int_type": "this must be an integer",
    "int_parsing": "this must be an integer",
    "int_from_float": "this must be an integer",
    "float_type": "this must be a number",
    "float_parsing": "this must be a number",
    "bool_type": "this must be true or false",
    "bool_parsing": "this must be true or false",
    "dict_type": "this must be an object",
    "list_type": "this must be a list",
    "model_attributes_type": "this must be an object",
    "model_type": "this must be an object",
    "string_pattern_mismatch": "this string has characters that are not allowed",
    "literal_error": "this is not one of the allowed values",
    "union_tag_invalid": "its `type` is not one of the allowed ones",
    "union_tag_not_found": "it must have a `type`",
}
_BOUNDS = {
    "greater_than": ("gt", "this must be more than"),
    "greater_than_equal": ("ge", "this must be at least"),
    "less_than": ("lt", "this must be less than"),
    "less_than_equal": ("le", "this must be at most"),
    "string_too_short": ("min_length", "this string is too short; fewest characters:"),
    "string_too_long": ("max_length", "this string is too long; most characters:"),
    "too_short": ("min_length", "this list is too short; fewest entries:"),
    "too_long": ("max_length", "this list is too long; most entries:"),
}


def validation_faults(errors: Iterable[Mapping[str, Any]], skip: int = 0) -> list[Fault]:
    """Pydantic's errors in our words. The first `skip` parts of each location are not part of the document."""
    return [_fault(error, skip) for error in errors]


def _fault(error: Mapping[str, Any], skip: int) -> Fault:
    kind = str(error["type"])
    context: Mapping[str, Any] = error.get("ctx", {})
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        sentence = f"{words} {context.get(key)}"
    else:
        sentence = _SENTENCES.get(kind, "this has the wrong form")
    return Fault(pointer(error["loc"][skip:]), kind, sentence)


def pointer(path: Iterable[object]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
