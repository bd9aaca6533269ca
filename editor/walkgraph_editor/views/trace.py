"""The trace of one deployment, named in the address."""

from __future__ import annotations

from walkgraph_editor.component import trace
from walkgraph_editor.views.playground import chosen_deployment


def page() -> None:
    chosen = chosen_deployment()
    if chosen is not None:
        trace("trace", chosen)
