"""OpenAPI descriptions of errors on OpenAI's routes."""

import msgspec

from walkgraph.service.http import dialects
from walkgraph.service.http.documenting import refusals


class Wrong(msgspec.Struct, frozen=True):
    message: str
    """A sentence that says what is wrong and what to do."""
    type: str
    param: str | None
    """The request's field: `messages[0].content`."""
    code: str | None


class Answer(msgspec.Struct, frozen=True):
    """OpenAI's error body, written by `dialects.openai_error`."""

    error: Wrong


ANSWERS = refusals(
    dialects.JSON,
    Answer,
    "Says why the request was not served; `x-should-retry: false` means that a retry can't help.",
)
"""For the `responses` of a router."""
