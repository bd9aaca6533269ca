"""The editor of one graph, named in the address; without one the start page."""

from __future__ import annotations

import streamlit as st

from walkgraph.client import Unreachable
from walkgraph_editor import session
from walkgraph_editor.component import graph_editor
from walkgraph_editor.markdown import as_text
from walkgraph_editor.views import start


def page() -> None:
    name = st.query_params.get("graph") or st.session_state.get("graph")
    try:
        names = [row["name"] for row in session.client().graphs()]
    except Unreachable as error:
        st.error(as_text(str(error)), icon=":material/cloud_off:")
        return
    if name is None or name not in names:
        if name:
            st.warning(f"There is no graph `{name}`.", icon=":material/search_off:")
        start.page()
        return
    st.session_state["graph"] = st.query_params["graph"] = name
    # A report would run this script again, which can undo a click on another page's link that came just before.
    graph_editor("editor", name, tab=st.query_params.get("tab"), report=False)
