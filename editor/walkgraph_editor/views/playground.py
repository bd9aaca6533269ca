"""The playground of one deployment, named in the address."""

from __future__ import annotations

import streamlit as st

from walkgraph.client import Unreachable
from walkgraph_editor import session
from walkgraph_editor.component import playground
from walkgraph_editor.markdown import as_text


def page() -> None:
    chosen = chosen_deployment()
    if chosen is not None:
        playground("playground", chosen)


def chosen_deployment() -> str | None:
    """The deployment in the address, else the last one shown, else the first; no page's scratch deployment. Without
    deployments the page says so, and this returns None."""
    try:
        found = [row["id"] for row in session.client().deployments() if not row["scratch"]]
    except Unreachable as error:
        st.error(as_text(str(error)), icon=":material/cloud_off:")
        return None
    if not found:
        st.subheader("Nothing is deployed yet", anchor=False)
        st.write("Open a graph and press **Deploy**, or deploy one of the graphs on the start page.")
        st.page_link(session.page("start"), label="Go to the start page", icon=":material/home:")
        return None
    wanted = st.query_params.get("deployment") or st.session_state.get("deployment")
    chosen: str = wanted if wanted is not None and wanted in found else found[0]
    st.session_state["deployment"] = chosen
    return chosen
