"""What OpenAPI says of refusals below OpenAI's routes."""

import msgspec

from walkgraph.service.http import dialects
from walkgraph.service.http.documenting import refusals


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


ANSWERS = refusals(
    dialects.JSON, Answer, "Why it could not be served; `x-should-retry` says where trying again can't help."
)
"""For `responses` of a router."""
