"""The start page: the graphs to try, and how to create or import one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import streamlit as st

from walkgraph.client import Client, ClientError, ProblemError, Unreachable
from walkgraph.client.shown import Deployment, GalleryEntry
from walkgraph_editor import imports, session
from walkgraph_editor.markdown import as_text

COLUMNS = 3
NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_\-]{0,63}$")
ICONS = {
    "text": ":material/notes:",
    "image": ":material/image:",
    "audio": ":material/graphic_eq:",
    "video": ":material/movie:",
    "actions": ":material/precision_manufacturing:",
    "state": ":material/tune:",
}
PICTURES = Path(__file__).parents[1] / "assets" / "gallery"
"""Results of the bundled graphs: `GRAPH.png`, made by `tests/golden/gallery_pictures.py`."""
EXAMPLE = "example"
"""The tag of bundled examples."""
LESSON = "synthetic_"
"""Names of bundled lessons begin so."""
ROUTES = {
    "chat.completions": "chat",
    "images.generations": "images",
    "images.edits": "edits",
    "audio.speech": "speech",
}
"""Short names of OpenAI's routes."""


def page() -> None:
    try:
        client = session.client()
        shown = client.gallery()
        running = {found["graph"]: found for found in client.deployments() if not found["scratch"]}
        routes = session.routes(client) if running else {}
    except Unreachable as error:
        st.error(as_text(str(error)), icon=":material/cloud_off:")
        return
    st.title("Draw a model. Watch it walk.", anchor=False)
    st.caption("Start from one of these graphs, or draw your own.")
    taken = {entry["name"] for entry in shown}
    _own(client, taken)
    shown.sort(key=lambda entry: (entry["name"] not in running, not entry["starter"], _is_lesson(entry)))
    for title, caption, entries in _sections(shown):
        if title and entries:
            st.subheader(title, anchor=False)
            st.caption(caption)
        _cards(client, entries, running, routes, taken)


def _sections(shown: list[GalleryEntry]) -> list[tuple[str, str, list[GalleryEntry]]]:
    """Title, what is in it, and the graphs; the first section has neither."""
    examples = [entry for entry in shown if entry["bundled"] and EXAMPLE in entry["tags"]]
    lessons = [entry for entry in shown if entry["bundled"] and _is_lesson(entry) and entry["name"].startswith(LESSON)]
    graphs = [entry for entry in shown if entry not in examples and entry not in lessons]
    return [
        ("", "", graphs),
        ("Examples", "Each shows one thing to do with a graph. Deploy one, and press *Run*.", examples),
        ("Lessons", "Graphs of numbers, without models, to learn the rules with.", lessons),
    ]


def _cards(
    client: Client,
    shown: list[GalleryEntry],
    running: dict[str, Deployment],
    routes: dict[str, list[str]],
    taken: set[str],
) -> None:
    columns = st.columns(COLUMNS, gap="medium")
    for index, entry in enumerate(shown):
        with columns[index % COLUMNS], st.container(border=True):
            found = running.get(entry["name"])
            _card(client, entry, found, taken)
            if found:
                _reached(client, found, routes.get(found["id"], []))


def _is_lesson(entry: GalleryEntry) -> bool:
    """True if the graph has no model, only numbers to learn the rules with."""
    return not entry["modalities_in"]


def _own(client: Client, taken: set[str]) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        # A form submits the text in its field; without one, the field is only read after it loses the focus.
        with st.popover("New graph", icon=":material/add:", type="primary"), st.form("new_graph", border=False):
            name = st.text_input("Name", placeholder="my_model", key="new_name")
            if st.form_submit_button("Create graph"):
                _create(client, name, taken)
        with st.popover("Open a file", icon=":material/upload_file:"):
            dropped = st.file_uploader(
                "A graph or placement as JSON, or a picture or sound that was saved in the playground",
                type=["json", "png", "wav"],
                max_upload_size=imports.MAX_BYTES // 2**20,
            )
            if dropped is not None and st.button("Import"):
                _import(client, dropped.getvalue(), taken)


def _create(client: Client, name: str, taken: set[str]) -> None:
    if not NAME.match(name):
        st.error("A name starts with a letter and has at most 64 letters, digits, `_` and `-`.")
    elif name in taken:
        st.error(f"A graph `{name}` already exists; choose another name.")
    elif _save(client, "graph", name, {"format": "walkgraph/graph@1", "name": name}):
        open_graph(name)


def _import(client: Client, data: bytes, taken: set[str]) -> None:
    try:
        kind, document = imports.document(data)
    except imports.Unreadable as error:
        st.error(as_text(str(error)), icon=":material/broken_image:")
        return
    wanted = str(document.get("name", ""))
    name = free_name(wanted if NAME.match(wanted) else "imported", taken if kind == "graph" else set())
    if _save(client, kind, name, {**document, "name": name}) and kind == "graph":
        open_graph(name)
    st.success(f"Saved the {kind} `{name}`.")


def _save(client: Client, kind: Any, name: str, document: dict[str, Any]) -> bool:
    try:
        client.put_document(kind, name, document)
    except ProblemError as error:
        st.error(as_text(str(error)))
        return False
    return True


def _card(client: Client, entry: GalleryEntry, deployment: Deployment | None, taken: set[str]) -> None:
    name = entry["name"]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{name}**", width="stretch")
        _state(entry, deployment)
    picture = PICTURES / f"{name}.png"
    if entry["bundled"] and picture.is_file():
        st.image(picture, width="stretch")
    st.caption(as_text(entry["description"] or "No description."))
    flow = " ".join(ICONS.get(modality, ":material/data_object:") for modality in entry["modalities_in"])
    to = " ".join(ICONS.get(modality, ":material/data_object:") for modality in entry["modalities_out"])
    st.caption(f"{flow} → {to}  ·  {', '.join(as_text(task['label'] or task['name']) for task in entry['tasks'])}")
    with st.container(horizontal=True, gap="xsmall"):
        if st.button("Open", key=f"open.{name}", icon=":material/account_tree:"):
            open_graph(name)
        if st.button("Open as copy", key=f"copy.{name}", icon=":material/content_copy:", help="A graph of your own"):
            _copy(client, name, taken)
        if deployment and st.button("Try it", key=f"try.{name}", icon=":material/play_arrow:", type="primary"):
            st.switch_page(session.page("playground"), query_params={"deployment": deployment["id"]})
        elif not deployment and entry["deployable"] and st.button("Deploy", key=f"go.{name}", icon=":material/bolt:"):
            _deploy(client, name)


def _reached(client: Client, deployment: Deployment, routes: list[str]) -> None:
    """Show the address of the tasks to copy, and which OpenAI routes work."""
    st.code(f"{session.origin(client)}/v1/tasks/{deployment['id']}", language=None, wrap_lines=True)
    if routes:
        st.caption(f"Also over the OpenAI API: {', '.join(ROUTES.get(route, route) for route in routes)}")


def _state(entry: GalleryEntry, deployment: Deployment | None) -> None:
    if deployment:
        st.badge(deployment["state"], color="green" if deployment["state"] == "ready" else "orange")
    elif entry["deployable"]:
        st.badge("runs here", color="blue")
    else:
        why = as_text(entry["why"] or "It can't be deployed on this machine.")
        st.badge("needs a GPU" if entry["needs_gpu"] else "doesn't run here", color="grey", help=why)
    if entry["lacks"]:
        st.badge("needs a server", color="orange", help=as_text(entry["lacks"]))
    if entry["random"]:
        st.badge("random weights", color="orange", help="Its results mean nothing until it has weights: see Models.")


def _copy(client: Client, name: str, taken: set[str]) -> None:
    """Store the graph under a name of its own, and open it."""
    document, _ = client.document("graph", name)
    chosen = free_name(f"{name[:55]}_copy", taken)
    if _save(client, "graph", chosen, {**document, "name": chosen}):
        open_graph(chosen)


def _deploy(client: Client, name: str) -> None:
    try:
        found = client.deploy(name)
    except ClientError as error:
        st.error(as_text(str(error)))
        return
    st.switch_page(session.page("playground"), query_params={"deployment": found["id"]})


def open_graph(name: str) -> None:
    st.switch_page(session.page("editor"), query_params={"graph": name})


def free_name(wanted: str, taken: set[str]) -> str:
    """`wanted`, with the lowest number appended that makes it unique if it is taken."""
    names = (wanted, *(f"{wanted[:60]}_{number}" for number in range(2, 1000)))
    return next(name for name in names if name not in taken)
