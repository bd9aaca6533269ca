"""`walkgraph token`: print the token of this home."""

from __future__ import annotations

import sys

from walkgraph.cli import output
from walkgraph.cli.options import Json


def command(as_json: Json = False) -> None:
    """Print the token of this home. Anyone who has it may do everything."""
    from walkgraph.errors import NotFound
    from walkgraph.settings import Settings, read_token

    settings = Settings()
    token = read_token(settings)
    if token is None:
        raise NotFound(f"there is no token in `{settings.home}` yet; the first `walkgraph up` makes one")
    if as_json:
        output.as_json({"token": token})
        return
    output.line(token)
    if sys.stdout.isatty():
        output.note("as a header: `Authorization: Bearer TOKEN`; `walkgraph keys` makes keys with fewer permissions")
