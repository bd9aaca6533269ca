"""Find runs by the names that people use: an id, its first characters, or `last`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walkgraph.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from walkgraph.client import Client

HELP = "Its id, the first characters of it, or `last`."
_ID_LENGTH = 32
_PREFIX = 4
"""The least number of characters that can name a run."""
_SEARCHED = 1000
"""The most runs searched for an id by its first characters."""


def run_named(client: Client, named: str, deployment: str | None = None) -> str:
    """The full id of a run; `deployment` limits the search. Raises NotFound, or InvalidInput if several match."""
    if len(named) == _ID_LENGTH:
        return named
    if named == "last":
        newest = client.runs(deployment, 1)
        if not newest:
            raise NotFound("there is no run yet; start one with `walkgraph run`")
        return newest[0]["id"]
    if len(named) < _PREFIX:
        raise InvalidInput(f"name a run by at least {_PREFIX} characters of its id, or by `last`")
    ids = [found["id"] for found in client.runs(deployment, _SEARCHED) if found["id"].startswith(named)]
    if not ids:
        raise NotFound(f"no run's id starts with `{named}`; `walkgraph trace --deployment D` lists those with a trace")
    if len(ids) > 1:
        raise InvalidInput(f"the ids of {len(ids)} runs start with `{named}`; give more characters")
    return ids[0]
