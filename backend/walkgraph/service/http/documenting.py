"""What the OpenAPI document says of answers that no pydantic model makes: problems, and what has its own encoder."""

from typing import Any, cast

import msgspec
from pydantic import BaseModel

from walkgraph.errors import ErrorCode, ErrorInfo
from walkgraph.service.http import dialects, problems


class Problem(msgspec.Struct, frozen=True):
    """As `problems.problem` writes it."""

    type: str
    title: str
    status: int
    code: ErrorCode | str
    detail: str
    """What is wrong, and what to do."""
    retryable: bool
    errors: list[problems.Fault]
    error: ErrorInfo | msgspec.UnsetType = msgspec.UNSET
    """Of a run that failed."""


def answer(description: str, content: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A response; `content`: its JSON Schema by content type."""
    return {"description": description, "content": {kind: {"schema": schema} for kind, schema in content.items()}}


def schema_of(kind: Any) -> dict[str, Any]:
    """JSON Schema of a msgspec type that does not hold itself, without references."""
    (schema,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    return _inlined(schema, parts)


def schema_of_model(kind: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema of a pydantic model that does not hold itself, without references."""
    schema = kind.model_json_schema(ref_template="{model}")
    return _inlined(schema, schema.pop("$defs", {}))


def _inlined(value: Any, parts: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_inlined(entry, parts) for entry in cast(list[Any], value)]
    if not isinstance(value, dict):
        return value
    named = cast(dict[str, Any], value)
    if "$ref" in named:
        return _inlined(parts[named["$ref"]], parts)
    return {key: _inlined(entry, parts) for key, entry in named.items()}


def refusals(media_type: str, kind: Any, unserved: str) -> dict[int | str, dict[str, Any]]:
    """`unserved`: what an answer of the class 5XX says."""
    content = {media_type: schema_of(kind)}
    return {"4XX": answer("What of the request is wrong, and what to do.", content), "5XX": answer(unserved, content)}


PROBLEMS = refusals(
    problems.MEDIA_TYPE, Problem, "Why it could not be served; `retryable` says whether trying again can help."
)
"""Of every route."""


class KserveError(msgspec.Struct, frozen=True):
    """As `dialects.write` writes it below `/v2`."""

    error: str
    """What is wrong, and what to do."""


KSERVE_PROBLEMS = refusals(dialects.JSON, KserveError, "Why it could not be served.")
