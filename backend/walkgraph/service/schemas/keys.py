"""Bodies of requests about keys."""

from typing import Annotated

from pydantic import Field

from walkgraph.service.schemas.resources import Given
from walkgraph.wire.answers.keys import Scope

MAX_SECONDS = 10 * 365 * 86_400


class KeyRequest(Given):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@\-]{0,63}$")]
    """A name for people, unique among valid keys."""
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=8)]
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """null: unlimited. A sixth of it may come at once."""
    concurrent: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Concurrent runs; null: unlimited."""
    expires_in: Annotated[float, Field(ge=1, le=MAX_SECONDS)] | None = None
    """Seconds; null: the key is valid until it is revoked."""
