"""The library: graphs and placements with their tags and versions, and the deployments."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from walkgraph.client import Client, ClientError, Unreachable
from walkgraph.client.shown import Document
from walkgraph_editor import session
from walkgraph_editor.markdown import as_text
from walkgraph_editor.views.start import open_graph

KINDS = {"Graphs": "graph", "Placements": "placement"}


def page() -> None:
    try:
        client = session.client()
        with st.container(horizontal=True, vertical_alignment="center"):
            shown = st.segmented_control(
                "Show", [*KINDS, "Deployments"], default="Graphs", required=True, label_visibility="collapsed"
            )
            wanted = st.text_input(
                "Filter", placeholder="Filter by name, tag or description", width=320, label_visibility="collapsed"
            )
        if shown == "Deployments":
            _deployments(client)
        else:
            _documents(client, KINDS[shown or "Graphs"], wanted.lower())
    except Unreachable as error:
        st.error(as_text(str(error)), icon=":material/cloud_off:")


def _documents(client: Client, kind: Any, wanted: str) -> None:
    rows = client.graphs() if kind == "graph" else client.placements()
    rows = [row for row in rows if wanted in " ".join([row["name"], row["description"], *row["tags"]]).lower()]
    if not rows:
        st.info("Nothing here matches the filter.", icon=":material/search_off:")
        return
    table = [
        {
            "name": row["name"],
            "tags": row["tags"],
            "changed": datetime.fromtimestamp(row["updated_at"], UTC),
            "shipped": row["bundled"],
            "description": row["description"],
        }
        for row in rows
    ]
    event = st.dataframe(
        table,
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key=f"library.{kind}",
        column_config={
            "tags": st.column_config.ListColumn("tags"),
            "changed": st.column_config.DatetimeColumn("changed", format="distance"),
            "shipped": st.column_config.CheckboxColumn("shipped", help="Part of Walkgraph"),
            "description": st.column_config.TextColumn("description", width="large"),
        },
    )
    chosen = event["selection"]["rows"]
    if not chosen or chosen[0] >= len(rows):
        st.caption("Select a row to open, tag, export or delete it.")
        return
    _document(client, kind, rows[chosen[0]])


def _document(client: Client, kind: Any, row: Document) -> None:
    name = row["name"]
    document, _ = client.document(kind, name)
    st.subheader(name, anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if kind == "graph" and st.button("Open", type="primary", icon=":material/account_tree:"):
            open_graph(name)
        st.download_button(
            "Export",
            json.dumps(document, indent=2, ensure_ascii=False),
            file_name=f"{name}.{kind}.json",
            mime="application/json",
            icon=":material/download:",
        )
        with st.popover("Restore the original" if row["bundled"] else "Delete", icon=":material/delete:"):
            st.write(
                "This deletes your draft and keeps the versions."
                if row["bundled"]
                else f"This deletes `{name}` and keeps its versions."
            )
            if st.button("Confirm", key=f"delete.{kind}.{name}"):
                _tell(lambda: client.delete_document(kind, name))
    tags = st.multiselect(
        "Tags", sorted(row["tags"]), default=row["tags"], accept_new_options=True, key=f"tags.{kind}.{name}"
    )
    if sorted(tags) != sorted(row["tags"]):
        _tell(lambda: client.tag_document(kind, name, tags))
    versions = client.versions(kind, name)
    if versions:
        st.caption("Versions, newest first. Open the editor to compare and restore them.")
        kept = [
            {"version": v["id"], "saved": datetime.fromtimestamp(v["created_at"], UTC), "note": v["note"]}
            for v in versions
        ]
        st.dataframe(kept, hide_index=True, column_config={"saved": st.column_config.DatetimeColumn(format="distance")})


def _deployments(client: Client) -> None:
    found = client.deployments()
    if not found:
        st.info("Nothing is deployed. Open a graph and press Deploy.", icon=":material/bolt:")
        return
    for deployment in found:
        with st.container(border=True, horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{deployment['id']}**")
            if deployment["scratch"]:
                st.badge("scratch of a page", color="grey")
            st.badge(deployment["state"], color="green" if deployment["state"] == "ready" else "orange")
            for rank in deployment["ranks"]:
                st.badge(f"rank {rank['rank']} · {rank['device']} · {rank['state']}", color="grey")
            if st.button("Open", key=f"open.{deployment['id']}", icon=":material/account_tree:"):
                open_graph(deployment["graph"])
            if st.button("Undeploy", key=f"undeploy.{deployment['id']}", icon=":material/stop_circle:"):
                _tell(lambda id_=deployment["id"]: client.undeploy(id_))
        if deployment["reason"]:
            st.warning(as_text(deployment["reason"]))


def _tell(change: Any) -> None:
    try:
        change()
    except ClientError as error:
        st.error(as_text(str(error)))
        return
    st.rerun()
