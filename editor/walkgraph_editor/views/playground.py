"""Try what is deployed; which deployment is in the address."""

from __future__ import annotations

import streamlit as st

from walkgraph.client import Unreachable
from walkgraph_editor import session
from walkgraph_editor.component import playground


def page() -> None:
    try:
        found = [row["id"] for row in session.client().deployments()]
    except Unreachable as error:
        st.error(str(error), icon=":material/cloud_off:")
        return
    if not found:
        st.subheader("Nothing is deployed yet", anchor=False)
        st.write("Open a graph and press **Deploy**, or start with one that runs here.")
        st.page_link(session.page("start"), label="See the graphs", icon=":material/home:")
        return
    wanted = st.query_params.get("deployment") or st.session_state.get("deployment")
    chosen: str = wanted if wanted is not None and wanted in found else found[0]
    st.session_state["deployment"] = chosen
    playground("playground", chosen)
