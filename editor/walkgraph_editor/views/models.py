"""The weights on the service's machine: what they are, what they lack, how to use them, and where to get others."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from walkgraph.client import Client, ClientError, ProblemError, Unreachable
from walkgraph.client.shown import Checkpoint, Offer, PublishedWeights
from walkgraph_editor import session
from walkgraph_editor.markdown import as_text
from walkgraph_editor.views.start import open_graph

SETTING = "WALKGRAPH_CHECKPOINT_ROOTS='[\"/models\"]' walkgraph up"


def page() -> None:
    st.title("Models", anchor=False)
    try:
        client = session.client()
        with st.spinner("Reading the headers of the weights"):
            found = client.checkpoints()
        _here(client, found["roots"], found["found"])
        st.subheader("Get others", anchor=False)
        st.caption(
            "Download a repository with the tool of the place where it is published, into the folder named here, under "
            "a checkpoint root. Then it appears above."
        )
        for offer in found["offered"]:
            _offer(offer)
    except Unreachable as error:
        st.error(as_text(str(error)), icon=":material/cloud_off:")
    except ProblemError as error:
        st.error(as_text(str(error)))


def _here(client: Client, roots: Sequence[str], found: Sequence[Checkpoint]) -> None:
    if not roots:
        st.info(
            "The service has no folder for weights. Start it with the one that holds yours:", icon=":material/folder:"
        )
        st.code(SETTING, language="bash")
        return
    st.caption(f"In {', '.join(as_text(root) for root in roots)}")
    if not found:
        st.info("There is nothing here yet. Put each model into a folder of its own.", icon=":material/folder_open:")
    for one in found:
        with st.container(border=True):
            _card(client, one)


def _card(client: Client, one: Checkpoint) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{as_text(one['folder'])}**")
        st.badge(as_text(one["title"]) or "unknown", color="blue" if one["title"] else "grey")
        _state(one)
    figures = [
        _count(one["parameters"]),
        _size(one["bytes"]),
        ", ".join(f"{as_text(kind)} ({count} tensors)" for kind, count in one["dtypes"].items()),
    ]
    st.caption("  ·  ".join(figure for figure in figures if figure) or "Nothing could be read.")
    for problem in one["problems"]:
        st.warning(as_text(problem), icon=":material/warning:")
    for remark in one["remarks"]:
        st.caption(as_text(remark))
    if one["graph"] and not one["fits"]:
        st.caption(f"It doesn't fit: {as_text('; '.join(one['unfit']))}")
    with st.container(horizontal=True):
        for name in one["graphs"]:
            if st.button(
                name, key=f"use.{one['folder']}.{name}", icon=":material/account_tree:", help="Open this graph"
            ):
                open_graph(name)
        if one["graph"] and one["graph"] not in one["graphs"]:
            pressed = st.button("Import", key=f"import.{one['folder']}", icon=":material/download:", type="primary")
            if pressed:
                _import(client, one)


def _state(one: Checkpoint) -> None:
    if one["problems"]:
        st.badge("incomplete", color="orange")
    elif not one["graph"]:
        st.badge("for other models", color="grey")
    elif one["fits"]:
        st.badge("fits this machine", color="green")
    else:
        st.badge("too large for this machine", color="grey")


def _import(client: Client, one: Checkpoint) -> None:
    """Show each step as it is done; existing documents are not replaced."""
    with st.status(f"Importing {as_text(one['folder'])}", expanded=True) as status:
        try:
            st.write("Comparing every tensor with the network, and planning for this machine")
            made = client.checkpoint_documents(one["folder"])
            name = made["graph"]["name"]
            st.write(f"Saving the graph `{name}`")
            client.put_document("graph", name, made["graph"])
            for number, placement in enumerate(made["placements"], 1):
                st.write(f"Saving placement {number} of {len(made['placements'])}: `{placement['name']}`")
                client.put_document("placement", placement["name"], placement)
        except ClientError as error:
            status.update(label="The import stopped", state="error")
            st.error(as_text(str(error)))
            return
        status.update(label=f"Imported as `{name}`", state="complete")
    open_graph(name)


def _offer(offer: Offer) -> None:
    with st.expander(f"{as_text(offer['title'])} · {len(offer['published'])}"):
        if offer["graph"]:
            st.caption(f"Served by the graph `{offer['graph']}`.")
        for one in offer["published"]:
            _published(one)


def _published(one: PublishedWeights) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{as_text(one['repository'])}**")
        st.badge(f"about {_size(one['bytes'])}", color="grey")
        if one["here"]:
            st.badge("here", color="green")
    st.caption(f"Into the folder `{one['folder']}`: {', '.join(f'`{name}`' for name in one['files'])}")
    if one["note"]:
        st.caption(as_text(one["note"]))


def _count(parameters: int) -> str:
    if parameters == 0:
        return ""
    return f"{parameters / 1e9:.2f} B parameters" if parameters >= 1e8 else f"{parameters / 1e6:.2f} M parameters"


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
