"""Try a deployment: its tasks as forms, its outputs as they come, its graph as a drawing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal

import streamlit as st

from walkgraph.client import Client, ClientError, Event, ProblemError, Unreachable
from walkgraph_editor import dot, form, outputs, session

Colour = Literal["green", "orange", "blue", "red", "grey"]
BADGES: dict[str, Colour] = {"ready": "green", "degraded": "orange", "starting": "blue", "failed": "red", "lost": "red"}


def page() -> None:
    try:
        client = session.client()
        deployments = client.deployments()
    except Unreachable as error:
        st.error(str(error), icon=":material/cloud_off:")
        return
    if not deployments:
        _deploy_something(client)
        return
    found = _chosen(deployments)
    if not found["tasks"] or found["state"] not in ("ready", "degraded"):
        _wait(client, found)
        return
    left, right = st.columns([5, 6], gap="large")
    task = _task(left, client, found)
    with left:
        given = form.draw(task, f"{found['id']}.{task['name']}")
        pressed = st.button("Run", type="primary", icon=":material/play_arrow:", width="stretch")
    with right:
        _result(client, found["id"], task, given, pressed=pressed)
    _graph(client, found)


def _deploy_something(client: Client) -> None:
    st.subheader("Nothing is deployed yet")
    names = [row["name"] for row in client.graphs()]
    name = st.selectbox("Graph", names, index=names.index("shapes") if "shapes" in names else 0)
    if st.button("Deploy", type="primary", icon=":material/rocket_launch:"):
        try:
            client.deploy(name)
        except ClientError as error:
            _complain(error)
            return
        st.rerun()


def _chosen(deployments: list[dict[str, Any]]) -> dict[str, Any]:
    by_id = {found["id"]: found for found in deployments}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        id_ = st.selectbox("Deployment", list(by_id), width=320, key="deployment")
        found = by_id[id_]
        st.badge(found["state"], color=BADGES.get(found["state"], "grey"))
        for rank in found["ranks"]:
            st.badge(
                f"rank {rank['rank']} · {rank['device']} · {rank['state']}", color=BADGES.get(rank["state"], "grey")
            )
    if found["reason"]:
        st.warning(found["reason"])
    return found


@st.fragment(run_every=1.0)
def _wait(client: Client, found: dict[str, Any]) -> None:
    """Progress until it is ready; then the page is drawn anew."""
    try:
        now = client.deployment(found["id"])
    except ClientError as error:
        _complain(error)
        return
    if now["state"] != found["state"]:
        st.rerun()
    for rank in now["ranks"]:
        st.progress(rank["fraction"], f"rank {rank['rank']} · {rank['state']} {rank['phase']}")
    if now["state"] == "starting" and not now["ranks"]:
        st.info("Starting…", icon=":material/hourglass_empty:")


def _task(left: Any, client: Client, found: dict[str, Any]) -> dict[str, Any]:
    tasks = {task["name"]: task for task in client.tasks(found["id"])}
    with left:
        name = st.segmented_control(
            "Task",
            list(tasks),
            default=next(iter(tasks)),
            required=True,
            format_func=lambda key: tasks[key]["label"] or form.label(key),
            key=f"{found['id']}.task",
        )
    return tasks[name or next(iter(tasks))]


def _result(client: Client, deployment: str, task: dict[str, Any], given: dict[str, Any], *, pressed: bool) -> None:
    """The run that was asked for, or the last one of this task again."""
    log: dict[str, list[Event]] = st.session_state.setdefault("_log", {})
    key = f"{deployment}.{task['name']}"
    try:
        if pressed:
            body = form.request(task, given)
            log[key] = []
            _draw(outputs.noted(client.stream(deployment, task["name"], body), log[key]))
        elif key in log:
            _draw(log[key])
        else:
            st.caption("Outputs appear here.")
    except form.Incomplete as error:
        st.warning(str(error), icon=":material/edit:")
    except ClientError as error:
        _complain(error)
    _snippet(client, deployment, task)


def _draw(events: Iterable[Event]) -> None:
    data = outputs.show(events)
    if data.get("error"):
        where = f" (node `{data['error']['node']}`)" if data["error"].get("node") else ""
        st.error(data["error"]["message"] + where, icon=":material/error:")
    outputs.timings(data)


def _snippet(client: Client, deployment: str, task: dict[str, Any]) -> None:
    inputs = {name: "…" for name, declared in task["inputs"].items() if not declared["optional"]}
    body = json.dumps({"inputs": inputs, "params": {"seed": 7}})
    with st.expander("Call it from your code", icon=":material/code:"):
        st.code(
            f"curl {client.url}/v1/tasks/{deployment}/{task['name']} \\\n"
            '  -H "Authorization: Bearer $WALKGRAPH_TOKEN" \\\n'
            "  -H 'Content-Type: application/json' \\\n"
            f"  -d '{body}'",
            language="bash",
        )
        st.code(f"walkgraph run {deployment} {task['name']} --inputs", language="bash")


def _graph(client: Client, found: dict[str, Any]) -> None:
    st.divider()
    document = client.deployed_graph(found["id"])
    labels = {"": "All Walks"} | {name: _walk_label(name, walk) for name, walk in document.get("walks", {}).items()}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.subheader(f"Graph · {found['graph']}")
        walk = st.selectbox("Walk", list(labels), format_func=labels.__getitem__, width=360, key=f"{found['id']}.walk")
    st.graphviz_chart(dot.draw(document, walk or None), width="stretch")


def _walk_label(name: str, walk: dict[str, Any]) -> str:
    return f"{walk['label']} ({name})" if walk.get("label") else name


def _complain(error: ClientError) -> None:
    faults = error.faults if isinstance(error, ProblemError) else ()
    st.error(str(error), icon=":material/error:")
    for fault in faults:
        st.caption(f"`{fault.pointer or '/'}` {fault.message}")
