"""The way to the control service, once a browser session."""

from __future__ import annotations

import streamlit as st

from walkgraph.client import Client
from walkgraph.settings import Settings

_KEY = "_client"


def client() -> Client:
    """Raises Unreachable where no service runs in this home."""
    found = st.session_state.get(_KEY)
    if found is None:
        found = st.session_state[_KEY] = Client.local(Settings())
    return found
