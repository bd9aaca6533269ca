"""The way to the control service, once a browser session; and the studio's pages by name."""

from __future__ import annotations

from typing import Any

import streamlit as st

from walkgraph.client import Client
from walkgraph.settings import Settings

_KEY = "_client"
_PAGES = "_pages"


def client() -> Client:
    """Raises Unreachable where no service runs in this home."""
    found = st.session_state.get(_KEY)
    if found is None:
        found = st.session_state[_KEY] = Client.local(Settings())
    return found


def page(name: str) -> Any:
    """A page of the navigation, to switch to."""
    return st.session_state[_PAGES][name]


def set_pages(pages: dict[str, Any]) -> None:
    st.session_state[_PAGES] = pages
