"""The studio as an ASGI application, for the control service to mount at `/studio`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import streamlit as st

from walkgraph.settings import Settings
from walkgraph_editor.page import Pages

SCRIPT = Path(__file__).with_name("app.py")


class Studio:
    def __init__(self, settings: Settings) -> None:
        self._streamlit = st.App(SCRIPT)
        self._pages = Pages(self._streamlit, settings)

    @property
    def app(self) -> Any:
        return self._pages

    def lifespan(self) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """The application that mounts this one must enter it before the first request."""
        return self._streamlit.lifespan()


def studio(settings: Settings) -> Studio:
    return Studio(settings)
