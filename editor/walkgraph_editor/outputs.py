"""A run's outputs as they come: pictures in place, texts growing, sounds in a row, and where the time went."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

import streamlit as st

from walkgraph.client import Event

PREVIEW = "preview"


def noted(events: Iterable[Event], log: list[Event]) -> Iterator[Event]:
    """The same events, kept in `log` as they pass."""
    for event in events:
        log.append(event)
        yield event


def show(events: Iterable[Event]) -> dict[str, Any]:
    """Draw every event until the run ends; returns the last event's data, with the seed."""
    slots: dict[str, Any] = {}
    texts: dict[str, str] = {}
    seed: int | None = None
    status = st.status("Running…", state="running")
    picture = st.empty()
    for event in events:
        if event.name == "accepted":
            seed = event.data["seed"]
        elif event.name == "output":
            _output(event.data, picture, slots, texts)
        else:
            failed = event.name == "error"
            words = (
                f"Failed after {event.data['seconds']:.2f} s" if failed else f"Done in {event.data['seconds']:.2f} s"
            )
            status.update(label=f"{words} · seed {seed}", state="error" if failed else "complete")
            return {**event.data, "seed": seed}
    status.update(label="The service ended before the run did", state="error")
    return {}


def _output(data: dict[str, Any], picture: Any, slots: dict[str, Any], texts: dict[str, str]) -> None:
    name, value = data["name"], data["value"]
    if value["type"] == "text":
        texts[name] = texts.get(name, "") + value["text"]
        slots.setdefault(name, st.empty()).text_area(name.capitalize(), texts[name], disabled=True, height="content")
    elif value["type"] == "image":
        note = f"preview, step {data['iteration'][0] + 1}" if name == PREVIEW and data["iteration"] else name
        # A border, for pictures on white.
        picture.container(border=True, width="content").image(base64.b64decode(value["data"]), note, width=384)
    elif value["type"] == "audio":
        st.audio(base64.b64decode(value["data"]), format=value["mime"])
    elif value["type"] == "video":
        st.video(base64.b64decode(value["data"]), format=value["mime"])
    else:
        slots.setdefault(name, st.empty()).json({name: value}, expanded=False)


def timings(data: dict[str, Any]) -> None:
    """Where the run's time went: a bar a node."""
    times = sorted(data.get("times", ()), key=lambda row: -row["busy"])
    if not times:
        return
    st.caption(f"Where the time went · {data['queued'] * 1000:.0f} ms queued")
    most = max(row["busy"] for row in times) * 1000
    st.dataframe(
        [
            {
                "node": row["node"],
                "rank": row["rank"],
                "calls": row["calls"],
                "busy": round(row["busy"] * 1000, 2),
                "queued": round(row["queued"] * 1000, 2),
            }
            for row in times
        ],
        column_config={
            "busy": st.column_config.ProgressColumn("busy, ms", format="%.1f", min_value=0.0, max_value=max(most, 0.1)),
            "queued": st.column_config.NumberColumn("queued, ms", format="%.1f"),
        },
        hide_index=True,
        width="stretch",
    )
