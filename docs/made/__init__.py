"""The parts of the documentation that are made from the code: a page says `<!-- made: NAME WORDS -->` where one goes.

Nothing is written beside the pages: a marker is replaced while a page is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from made import code, figures, service

PARTS: dict[str, Callable[..., str]] = {
    "settings": service.settings,
    "limits": service.limits,
    "errors": service.errors,
    "scopes": service.scopes,
    "routes": service.routes,
    "sockets": service.sockets,
    "schemas": service.schemas,
    "verbs": code.verbs,
    "calls": code.calls,
    "components": code.components,
    "graph-schema": code.graph_schema,
    "checks": code.checks,
    "graphs": code.graphs,
    "picture-nodes": code.picture_nodes,
    "figures": figures.rows,
    "sums": figures.sums,
}
MARKER = re.compile(r"^<!-- made: ([a-z-]+)((?: [^ \n]+)*?) -->$", re.MULTILINE)


def filled(text: str) -> str:
    """The page with its markers replaced. Raises KeyError for one that names nothing."""
    return MARKER.sub(lambda found: PARTS[found[1]](*found[2].split()), text)


def setup(app: Any) -> dict[str, bool]:
    """As Sphinx calls an extension."""

    def read(_app: object, _page: str, source: list[str]) -> None:
        source[0] = filled(source[0])

    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
