"""One client of the control service per browser session, and the studio's pages by name."""

from __future__ import annotations

from typing import Any

import streamlit as st

from walkgraph.client import Client
from walkgraph.client.calls import get
from walkgraph.settings import Settings

_KEY = "_client"
_PAGES = "_pages"


def client() -> Client:
    """Raises Unreachable if no service runs in this home."""
    found = st.session_state.get(_KEY)
    if found is None:
        found = st.session_state[_KEY] = Client.local(Settings())
    return found


def routes(client: Client) -> dict[str, list[str]]:
    """The routes of OpenAI's that each deployment serves. Raises Unreachable."""
    listed: dict[str, Any] = client.send(get("/v1/models"))
    return {model["id"]: list(model["routes"]) for model in listed["data"]}


def origin(client: Client) -> str:
    """The service's address as the browser knows it, taken from the page's address; else the client's own."""
    scheme, _, rest = (st.context.url or "").partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if rest else client.url


def page(name: str) -> Any:
    """A page of the navigation, for switching to it."""
    return st.session_state[_PAGES][name]


def set_pages(pages: dict[str, Any]) -> None:
    st.session_state[_PAGES] = pages
