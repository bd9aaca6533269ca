"""Runs as a person names them: by an id, by its first characters, as the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walkgraph.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from walkgraph.client import Client

HELP = "Its id, the first characters of it, or `last`."
_ID_LENGTH = 32
_PREFIX = 4
"""Characters that a run may be named by, at least."""
_SEARCHED = 1000
"""Runs that are looked through for one that was named by its first characters."""


def run_named(client: Client, named: str, deployment: str | None = None) -> str:
    """The whole id; `deployment`: of its runs only. Raises NotFound, InvalidInput where several are meant."""
    if len(named) == _ID_LENGTH:
        return named
    if named == "last":
        newest = client.runs(deployment, 1)
        if not newest:
            raise NotFound("there is no run yet; start one with `walkgraph run`")
        return newest[0]["id"]
    if len(named) < _PREFIX:
        raise InvalidInput(f"name a run by {_PREFIX} characters of its id at least, or by `last`")
    ids = [found["id"] for found in client.runs(deployment, _SEARCHED) if found["id"].startswith(named)]
    if not ids:
        raise NotFound(f"no run's id starts with `{named}`; `walkgraph trace --deployment D` lists those with a trace")
    if len(ids) > 1:
        raise InvalidInput(f"the ids of {len(ids)} runs start with `{named}`; give some more of it")
    return ids[0]
