"""The frontend as a Streamlit component: the editor, the playground or trace of a deployment, or the settings.

The document is kept by the browser and the control service. Only its name and its state pass through here.
"""

from __future__ import annotations

import functools
from typing import Any, Literal, TypedDict, cast

from streamlit.components.v2 import component

Tab = Literal["graph", "tasks", "placement", "deploy", "play", "trace"]
TABS: tuple[Tab, ...] = ("graph", "tasks", "placement", "deploy", "play", "trace")


class DocumentState(TypedDict):
    """The state of the open graph, as the component last reported it."""

    name: str
    rev: int
    """Number of edits since it was opened in this browser; every undo and redo adds one."""
    etag: str | None
    """Version of the stored draft."""
    dirty: bool
    """True if there are edits that the service does not have yet."""
    errors: int
    warnings: int


def graph_editor(
    key: str, graph: str, *, tab: str | None = None, load: int = 0, report: bool = True
) -> DocumentState | None:
    """Show the editor with the stored graph of that name on the whole page, and return the state it last reported.

    `tab` opens first; an unknown one is ignored. A greater `load` makes the editor look for a newer version at once.
    With `report` the page's script runs again whenever the state changes; without it the state stays None.
    """
    tab = tab if tab in TABS else None
    data = {"v": 1, "mode": "edit", "graph": graph, "tab": tab, "load": load, "report": report}
    return cast(DocumentState | None, _mount(key, data).doc)


def playground(key: str, deployment: str) -> None:
    """Show the playground of a deployment."""
    _mount(key, {"v": 1, "mode": "play", "deployment": deployment, "load": 0})


def trace(key: str, deployment: str) -> None:
    """Show the trace of a deployment, live and by run."""
    _mount(key, {"v": 1, "mode": "trace", "deployment": deployment, "load": 0})


def settings(key: str) -> None:
    """Show the settings of this browser and of the service."""
    _mount(key, {"v": 1, "mode": "settings", "load": 0})


def _mount(key: str, data: dict[str, Any]) -> Any:
    return _component()(key=key, data=data, on_doc_change=_noted)


def _noted() -> None:
    """Does nothing: Streamlit keeps the state only if there is a callback."""


@functools.cache
def _component() -> Any:
    """Raises StreamlitAPIException if the package has no bundle."""
    return component("walkgraph-editor.editor", js="index-*.js")
