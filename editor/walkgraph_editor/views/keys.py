"""API keys and the audit log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from walkgraph.client import Client, ClientError, ProblemError, Unreachable
from walkgraph.client.shown import AuditEntry, Key, KeyMade, Scope
from walkgraph_editor import session
from walkgraph_editor.markdown import as_text

SCOPES: dict[Scope, str] = {
    "infer": "run tasks and see its own runs",
    "read": "see everything: graphs, deployments, all runs, metrics",
    "deploy": "change graphs and deployments, cancel any run",
    "admin": "everything, including keys and the audit log below",
}
DAY = 86_400.0
EXPIRES = {"never": None, "in a day": DAY, "in a week": 7 * DAY, "in 30 days": 30 * DAY, "in a year": 365 * DAY}
SINCE = {"all time": None, "a day": DAY, "a week": 7 * DAY, "30 days": 30 * DAY}
KINDS = ("deployment", "graph", "placement", "key", "studio", "request")
"""Prefixes of the actions in the audit log."""
OUTCOMES = ("done", "begun", "refused", "failed")
OTHERS = {"token": "the service's token", "studio": "the studio", "service": "the service itself"}
"""Callers other than keys."""
PAGE = 50
MOST_ENTRIES = 1000
FORBIDDEN = 403
_MADE = "_made_key"
_SHOWN = "_audit_shown"


def page() -> None:
    st.title("Keys", anchor=False)
    st.caption(
        "Give each program its own key, with the scopes it needs and its own limits. You can revoke each key by "
        "itself. The service's token has every scope."
    )
    try:
        client = session.client()
        every = client.keys(former=True)
        _keys(client, every)
        st.divider()
        _audit(client, every)
    except Unreachable as error:
        st.error(as_text(str(error)), icon=":material/cloud_off:")
    except ProblemError as error:
        _refused(error)


def _refused(error: ProblemError) -> None:
    if error.status != FORBIDDEN:
        st.error(as_text(str(error)))
        return
    st.info(
        "This page needs the scope `admin`, because it makes keys and shows the audit log. The studio is using a key "
        "without that scope; someone with the service's token can start the studio with the token instead.",
        icon=":material/lock:",
    )


# ── keys ────────────────────────────────────────────────────────────────────────────────────────


def _keys(client: Client, every: Sequence[Key]) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("New key", icon=":material/add:", type="primary"):
            _new(client)
        former = any(not key["valid"] for key in every) and st.toggle(
            "Show revoked and expired keys", key="former_keys"
        )
    _secret()
    listed = [key for key in every if former or key["valid"]]
    if not listed:
        st.info("There are no keys. Create one for each program that calls this service.", icon=":material/key:")
        return
    event = st.dataframe(
        [_row(key, former=former) for key in listed],
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key=f"keys.{former}",
        placeholder="never",
        column_config={
            "scopes": st.column_config.ListColumn("scopes"),
            "last used": st.column_config.DatetimeColumn("last used", format="distance"),
            "expires": st.column_config.DatetimeColumn("expires", format="distance"),
        },
    )
    chosen = event["selection"]["rows"]
    if not chosen or chosen[0] >= len(listed):
        st.caption("Select a row to revoke its key.")
        return
    _one(client, listed[chosen[0]])


def _row(key: Key, *, former: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": key["name"],
        "id": key["id"],
        "scopes": key["scopes"],
        "limits": limits_of(key),
        "runs now": key["running"],
        "last used": _when(key["used_at"]),
        "expires": _when(key["expires_at"]),
    }
    return {**row, "state": state_of(key, time.time())} if former else row


def limits_of(key: Key) -> str:
    """The limits of a key as text."""
    rate, runs = key["requests_per_minute"], key["concurrent"]
    told = [f"{rate} requests per minute"] if rate is not None else []
    told += [f"{runs} {'run' if runs == 1 else 'runs'} at once"] if runs is not None else []
    return ", ".join(told) or "none"


def state_of(key: Key, now: float) -> str:
    if key["revoked_at"] is not None:
        return "revoked"
    return "expired" if key["expires_at"] is not None and key["expires_at"] <= now else "valid"


def _when(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)


def _one(client: Client, key: Key) -> None:
    if not key["valid"]:
        st.caption(f"`{key['name']}` is no longer valid.")
        return
    with st.popover(f"Revoke {as_text(key['name'])}", icon=":material/block:"):
        running = key["running"]
        ends = f" {running} {'run' if running == 1 else 'runs'} may be cancelled." if running else ""
        st.write(f"Programs that use `{key['name']}` are refused at once, and their open connections are closed.{ends}")
        if st.button("Revoke this key", key=f"revoke.{key['id']}", type="primary"):
            try:
                client.revoke_key(key["id"])
            except ClientError as error:
                st.error(as_text(str(error)))
                return
            if st.session_state.get(_MADE, {}).get("id") == key["id"]:
                del st.session_state[_MADE]
            st.rerun()


@st.dialog("New key")
def _new(client: Client) -> None:
    with st.form("new_key", border=False, enter_to_submit=False):
        name = st.text_input(
            "Name",
            placeholder="robot",
            help="The program that uses the key; the audit log shows this name.",
            max_chars=64,
        )
        scopes = st.multiselect(
            "Scopes", list(SCOPES), default=["infer"], format_func=lambda scope: f"{scope}: {SCOPES[scope]}"
        )
        left, right = st.columns(2)
        rate = left.number_input("Requests per minute", 1, 1_000_000, value=None, placeholder="no limit")
        runs = right.number_input("Concurrent runs", 1, 10_000, value=None, placeholder="no limit")
        expires = st.selectbox("Expires", list(EXPIRES))
        if not st.form_submit_button("Create key", type="primary"):
            return
    if not name or not scopes:
        st.error("A key needs a name and at least one scope.")
        return
    try:
        made = client.add_key(
            name, scopes, requests_per_minute=rate, concurrent=runs, expires_in=EXPIRES[expires or "never"]
        )
    except ClientError as error:
        st.error(as_text(str(error)))
        return
    st.session_state[_MADE] = made
    st.rerun()


def _secret() -> None:
    """Show the key that was just made, until the person confirms that it is copied."""
    made: KeyMade | None = st.session_state.get(_MADE)
    if made is None:
        return
    with st.container(border=True):
        st.markdown(f"Copy the key **{made['name']}** now. It is shown only once; the service stores only its digest.")
        st.code(made["secret"], language=None)
        st.caption(
            "Programs send it as `Authorization: Bearer ...`. Walkgraph's own clients read it from `WALKGRAPH_TOKEN`."
        )
        if st.button("I have copied it", icon=":material/check:"):
            del st.session_state[_MADE]
            st.rerun()


# ── the audit log ────────────────────────────────────────────────────────────────────────────


def _audit(client: Client, keys: Sequence[Key]) -> None:
    st.subheader("Audit log", anchor=False)
    callers = {**OTHERS, **{key["id"]: key["name"] for key in keys}}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        who = st.selectbox(
            "Caller", list(callers), index=None, format_func=callers.__getitem__, placeholder="any", key="audit.who"
        )
        kind = st.selectbox("Action", KINDS, index=None, placeholder="any", key="audit.what")
        outcome = st.selectbox("Outcome", OUTCOMES, index=None, placeholder="any", key="audit.outcome")
        since = st.selectbox("Within", list(SINCE), key="audit.since")
    span = SINCE[since or "all time"]
    count = st.session_state.get(_SHOWN, PAGE)
    rows = client.audit(
        caller=who,
        action=kind,
        outcome=outcome,
        since=None if span is None else time.time() - span,
        limit=min(count + 1, MOST_ENTRIES),
    )
    if not rows:
        filtered = who or kind or outcome or span
        st.info(
            "No entry matches these filters."
            if filtered
            else "There are no entries yet. The log lists deployments, edits of graphs, new keys and refused requests.",
            icon=":material/history:",
        )
        return
    st.dataframe(
        [_entry(row, callers) for row in rows[:count]],
        hide_index=True,
        key="audit.rows",
        column_config={"when": st.column_config.DatetimeColumn("when", format="YYYY-MM-DD HH:mm:ss")},
    )
    if len(rows) > count and st.button("Show older entries", icon=":material/expand_more:"):
        st.session_state[_SHOWN] = count + 4 * PAGE
        st.rerun()


def _entry(row: AuditEntry, callers: dict[str, str]) -> dict[str, Any]:
    return {
        "when": _when(row["at"]),
        "caller": row["caller_name"] or callers.get(row["caller"], row["caller"]),
        "action": row["action"],
        "target": row["target"],
        "outcome": row["outcome"],
        "reason": row["reason"],
        "address": row["address"],
    }
