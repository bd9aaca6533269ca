"""Try what is deployed; which deployment is in the address."""

from __future__ import annotations

import streamlit as st

from walkgraph.client import Unreachable
from walkgraph_editor import session
from walkgraph_editor.component import playground


def page() -> None:
    chosen = chosen_deployment()
    if chosen is not None:
        playground("playground", chosen)


def chosen_deployment() -> str | None:
    """That of the address, else the last one, else the first; None where there is none, and the page says so."""
    try:
        found = [row["id"] for row in session.client().deployments()]
    except Unreachable as error:
        st.error(str(error), icon=":material/cloud_off:")
        return None
    if not found:
        st.subheader("Nothing is deployed yet", anchor=False)
        st.write("Open a graph and press **Deploy**, or start with one that runs here.")
        st.page_link(session.page("start"), label="See the graphs", icon=":material/home:")
        return None
    wanted = st.query_params.get("deployment") or st.session_state.get("deployment")
    chosen: str = wanted if wanted is not None and wanted in found else found[0]
    st.session_state["deployment"] = chosen
    return chosen
