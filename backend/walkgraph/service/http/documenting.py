"""OpenAPI descriptions of answers without a pydantic model: problems, and answers with an encoder of their own."""

from typing import Any, cast

import msgspec
from pydantic import BaseModel

from walkgraph.errors import ErrorCode, ErrorInfo
from walkgraph.service.http import dialects, problems


class Problem(msgspec.Struct, frozen=True):
    """An RFC 9457 document as `problems.problem` writes it."""

    type: str
    title: str
    status: int
    code: ErrorCode | str
    detail: str
    """A sentence that says what is wrong and what to do."""
    retryable: bool
    errors: list[problems.Fault]
    error: ErrorInfo | msgspec.UnsetType = msgspec.UNSET
    """The error of a failed run."""


def answer(description: str, content: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """An OpenAPI response. `content` maps content types to JSON Schemas."""
    return {"description": description, "content": {kind: {"schema": schema} for kind, schema in content.items()}}


def schema_of(kind: Any) -> dict[str, Any]:
    """JSON Schema of a msgspec type without references. The type must not contain itself."""
    (schema,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    return _inlined(schema, parts)


def schema_of_model(kind: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema of a pydantic model without references. The model must not contain itself."""
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
    """Descriptions of the 4XX and 5XX answers. `unserved` describes the latter."""
    content = {media_type: schema_of(kind)}
    return {"4XX": answer("Says what is wrong, and what to do.", content), "5XX": answer(unserved, content)}


PROBLEMS = refusals(
    problems.MEDIA_TYPE, Problem, "Says why the request was not served; `retryable` says whether trying again can help."
)
"""Every route can answer these."""


class KserveError(msgspec.Struct, frozen=True):
    """KServe's error body, written by `dialects.write` below `/v2`."""

    error: str
    """A sentence that says what is wrong and what to do."""


KSERVE_PROBLEMS = refusals(dialects.JSON, KserveError, "Says why the request could not be served.")
