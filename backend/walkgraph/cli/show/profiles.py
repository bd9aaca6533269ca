"""The profile of a request as text: its shares, what to do about the largest, and its way. Nothing here prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from walkgraph.client.shown import Profile

HEADERS = ("SHARE", "MS", "PERCENT", "WHAT IT IS")
MOMENTS = ("AT MS", "AFTER MS", "WHAT HAPPENED")


def shares(found: Profile) -> list[tuple[Any, ...]]:
    """Rows for `HEADERS`: the shares that the request has, the largest first."""
    mine = sorted((row for row in found["shares"] if row["seconds"]), key=lambda row: -row["seconds"])
    return [(row["share"], _ms(row["seconds"]), f"{row['part']:.1%}", row["means"]) for row in mine]


def advice(found: Profile) -> list[str]:
    """Says what to do about the largest share, and how far the figures can be trusted."""
    largest = next(row for row in found["shares"] if row["share"] == found["largest"])
    lines = [f"The largest share is {largest['share']}: {largest['advice']}."] if largest["seconds"] else []
    if not found["exact"]:
        lines.append("Work on ranks is estimated from sums: only telemetry of level `full` reports single calls.")
    return lines


def moments(found: Profile) -> list[tuple[Any, ...]]:
    """Rows for `MOMENTS`."""
    rows: list[tuple[Any, ...]] = []
    before = 0.0
    for moment in found["moments"]:
        rows.append((_ms(moment["at"]), _ms(moment["at"] - before), moment["what"]))
        before = moment["at"]
    return rows


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"
