"""The studio as an ASGI application, for the control service to mount at `/studio`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import streamlit as st

SCRIPT = Path(__file__).with_name("app.py")


class Studio:
    def __init__(self) -> None:
        self._app = st.App(SCRIPT)

    @property
    def app(self) -> Any:
        return self._app

    def lifespan(self) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """To be entered by the application that mounts this one, before its first request."""
        return self._app.lifespan()


def studio() -> Studio:
    return Studio()
