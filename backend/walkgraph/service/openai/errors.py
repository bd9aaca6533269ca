"""What OpenAPI says of refusals below OpenAI's routes."""

from typing import Any

import msgspec

from walkgraph.service.http import dialects
from walkgraph.service.http.documenting import answer, schema_of


class Wrong(msgspec.Struct, frozen=True):
    message: str
    """What is wrong, and what to do."""
    type: str
    param: str | None
    """Of the request: `messages[0].content`."""
    code: str | None


class Answer(msgspec.Struct, frozen=True):
    """As `dialects.openai_error` writes it."""

    error: Wrong


_SCHEMA = {dialects.JSON: schema_of(Answer)}
ANSWERS: dict[int | str, dict[str, Any]] = {
    "4XX": answer("What of the request is wrong, and what to do.", _SCHEMA),
    "5XX": answer("Why it could not be served; `x-should-retry` says where trying again can't help.", _SCHEMA),
}
"""For `responses` of a router."""
