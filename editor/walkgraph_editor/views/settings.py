"""The settings: theme, density, keys, and those of the service."""

from __future__ import annotations

from walkgraph_editor.component import settings


def page() -> None:
    settings("settings")
