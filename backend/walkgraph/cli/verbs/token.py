"""`walkgraph token`: the secret that clients show."""

from __future__ import annotations

import sys

from walkgraph.cli import output
from walkgraph.cli.options import Json


def command(as_json: Json = False) -> None:
    """Print the token of this home: it lets whoever has it do everything."""
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
        output.note("as a header: `Authorization: Bearer TOKEN`; keys that may do less are made by `walkgraph keys`")
