"""Keys of programs, and who changed what."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from walkgraph.client import Client, ClientError, ProblemError, Unreachable
from walkgraph.client.shown import AuditEntry, Key, KeyMade, Scope
from walkgraph_editor import session

SCOPES: dict[Scope, str] = {
    "infer": "run tasks, and see the runs of its own",
    "read": "see everything: graphs, deployments, every run, figures",
    "deploy": "change graphs and deployments, end any run",
    "admin": "everything, keys and the log below among it",
}
DAY = 86_400.0
EXPIRES = {"never": None, "in a day": DAY, "in a week": 7 * DAY, "in 30 days": 30 * DAY, "in a year": 365 * DAY}
SINCE = {"ever": None, "a day": DAY, "a week": 7 * DAY, "30 days": 30 * DAY}
KINDS = ("deployment", "graph", "placement", "key", "studio", "request")
"""What actions begin with."""
OUTCOMES = ("done", "begun", "refused", "failed")
OTHERS = {"token": "the service's token", "studio": "the studio", "service": "the service itself"}
"""Callers that are no keys."""
PAGE = 50
MOST_ENTRIES = 1000
FORBIDDEN = 403
_MADE = "_made_key"
_SHOWN = "_audit_shown"


def page() -> None:
    st.title("Keys", anchor=False)
    st.caption(
        "A key lets one program in: with the scopes it needs and limits of its own, and it can be revoked alone. "
        "The service's own token may do everything."
    )
    try:
        client = session.client()
        every = client.keys(former=True)
        _keys(client, every)
        st.divider()
        _audit(client, every)
    except Unreachable as error:
        st.error(str(error), icon=":material/cloud_off:")
    except ProblemError as error:
        _refused(error)


def _refused(error: ProblemError) -> None:
    if error.status != FORBIDDEN:
        st.error(str(error))
        return
    st.info(
        "This page needs the scope `admin`: it makes keys, and shows who changed what. The studio speaks to the "
        "service with a key that has it not; whoever has the service's token can start it with that one.",
        icon=":material/lock:",
    )


# ── keys ────────────────────────────────────────────────────────────────────────────────────────


def _keys(client: Client, every: Sequence[Key]) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("New key", icon=":material/add:", type="primary"):
            _new(client)
        former = any(not key["valid"] for key in every) and st.toggle("Show former ones", key="former_keys")
    _secret()
    listed = [key for key in every if former or key["valid"]]
    if not listed:
        st.info("There are no keys. Make one for each program that calls this service.", icon=":material/key:")
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
        st.caption("Choose a row to revoke that key.")
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
    """In words."""
    rate, runs = key["requests_per_minute"], key["concurrent"]
    told = [f"{rate} requests a minute"] if rate is not None else []
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
        st.caption(f"`{key['name']}` counts no more.")
        return
    with st.popover(f"Revoke {key['name']}", icon=":material/block:"):
        running = key["running"]
        ends = f" {running} {'run' if running == 1 else 'runs'} of it may end." if running else ""
        st.write(f"Programs that use `{key['name']}` are refused at once, and what they have open is closed.{ends}")
        if st.button("Yes, revoke it", key=f"revoke.{key['id']}", type="primary"):
            try:
                client.revoke_key(key["id"])
            except ClientError as error:
                st.error(str(error))
                return
            if st.session_state.get(_MADE, {}).get("id") == key["id"]:
                del st.session_state[_MADE]
            st.rerun()


@st.dialog("New key")
def _new(client: Client) -> None:
    with st.form("new_key", border=False, enter_to_submit=False):
        name = st.text_input("Name", placeholder="robot", help="Who uses it: it stands in the log.", max_chars=64)
        scopes = st.multiselect(
            "Scopes", list(SCOPES), default=["infer"], format_func=lambda scope: f"{scope}: {SCOPES[scope]}"
        )
        left, right = st.columns(2)
        rate = left.number_input("Requests a minute", 1, 1_000_000, value=None, placeholder="no limit")
        runs = right.number_input("Runs at once", 1, 10_000, value=None, placeholder="no limit")
        expires = st.selectbox("Expires", list(EXPIRES))
        if not st.form_submit_button("Make it", type="primary"):
            return
    if not name or not scopes:
        st.error("A key needs a name, and at least one scope.")
        return
    try:
        made = client.add_key(
            name, scopes, requests_per_minute=rate, concurrent=runs, expires_in=EXPIRES[expires or "never"]
        )
    except ClientError as error:
        st.error(str(error))
        return
    st.session_state[_MADE] = made
    st.rerun()


def _secret() -> None:
    """The key that was just made, until it is put away."""
    made: KeyMade | None = st.session_state.get(_MADE)
    if made is None:
        return
    with st.container(border=True):
        st.markdown(f"**{made['name']}**: copy it now. It is shown this once; the service keeps its digest alone.")
        st.code(made["secret"], language=None)
        st.caption("A program sends it as `Authorization: Bearer ...`; `WALKGRAPH_TOKEN` holds it for ours.")
        if st.button("I have it", icon=":material/check:"):
            del st.session_state[_MADE]
            st.rerun()


# ── who changed what ────────────────────────────────────────────────────────────────────────────


def _audit(client: Client, keys: Sequence[Key]) -> None:
    st.subheader("Who changed what", anchor=False)
    callers = {**OTHERS, **{key["id"]: key["name"] for key in keys}}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        who = st.selectbox(
            "Who", list(callers), index=None, format_func=callers.__getitem__, placeholder="anybody", key="audit.who"
        )
        kind = st.selectbox("What", KINDS, index=None, placeholder="anything", key="audit.what")
        outcome = st.selectbox("Outcome", OUTCOMES, index=None, placeholder="any", key="audit.outcome")
        since = st.selectbox("Within", list(SINCE), key="audit.since")
    span = SINCE[since or "ever"]
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
            "Nothing here fits these filters."
            if filtered
            else "Nothing was changed yet. Who deploys, edits a graph or makes a key stands here, and who was refused.",
            icon=":material/history:",
        )
        return
    st.dataframe(
        [_entry(row, callers) for row in rows[:count]],
        hide_index=True,
        key="audit.rows",
        column_config={"when": st.column_config.DatetimeColumn("when", format="YYYY-MM-DD HH:mm:ss")},
    )
    if len(rows) > count and st.button("Show older ones", icon=":material/expand_more:"):
        st.session_state[_SHOWN] = count + 4 * PAGE
        st.rerun()


def _entry(row: AuditEntry, callers: dict[str, str]) -> dict[str, Any]:
    return {
        "when": _when(row["at"]),
        "who": row["caller_name"] or callers.get(row["caller"], row["caller"]),
        "what": row["action"],
        "of": row["target"],
        "outcome": row["outcome"],
        "reason": row["reason"],
        "from": row["address"],
    }
