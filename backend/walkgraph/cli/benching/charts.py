"""Charts of a benchmark as SVG. They need matplotlib (the extra `report`), which is imported only where installed."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]
_SIZE = (6.4, 3.4)
_SHADES = {"p50": "#2563eb", "p95": "#d97706", "p99": "#dc2626"}
_STYLE: Any = {
    # Text stays text in the SVG: smaller, searchable, in the page's font.
    "svg.fonttype": "none", "svg.hashsalt": "walkgraph", "font.family": "sans-serif", "font.size": 10,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#e5e7eb",
    "axes.axisbelow": True, "legend.frameon": False,
}  # fmt: skip


def charts(rows: Rows) -> list[tuple[str, str]]:
    """(title, SVG) of each chart."""
    made: list[tuple[str, str]] = [("Throughput", _throughput(rows))]
    if any(one["ttft"] for one in rows):
        made.append(("Time to first output", _percentiles(rows, "ttft")))
    if any(one["itl"] for one in rows):
        made.append(("Time between outputs", _percentiles(rows, "itl")))
    made.append(("Time to the end", _percentiles(rows, "e2e")))
    if any(len(one["distribution"]) > 1 for one in rows):
        made.append(("Requests finished within a time", _distributions(rows)))
    return made


def _throughput(rows: Rows) -> str:
    with mpl.rc_context(_STYLE):
        figure, axes = _axes(rows)
        places = list(range(len(rows)))
        axes.bar(places, [one["throughput"] for one in rows], width=0.55, color="#93c5fd", label="answered")
        if any("good" in one for one in rows):
            good = [one["good"]["per_second"] if "good" in one else 0.0 for one in rows]
            axes.bar(places, good, width=0.35, color="#2563eb", label="within the goals")
            axes.legend()
        axes.set_ylabel("requests per second")
        return _svg(figure)


def _percentiles(rows: Rows, name: str) -> str:
    with mpl.rc_context(_STYLE):
        figure, axes = _axes(rows)
        shown = [(place, one[name]) for place, one in enumerate(rows) if one[name]]
        unit, scale = ("s", 1.0) if max(values["p99"] for _, values in shown) >= 1 else ("ms", 1000.0)
        for share, colour in _SHADES.items():
            heights = [values[share] * scale for _, values in shown]
            axes.plot([place for place, _ in shown], heights, marker="o", color=colour, label=share)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(unit)
        axes.legend()
        return _svg(figure)


def _distributions(rows: Rows) -> str:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes: Axes = figure.add_subplot()
        colours = mpl.colormaps["viridis"]
        shown = [one for one in rows if len(one["distribution"]) > 1]
        for number, one in enumerate(shown):
            values = one["distribution"]
            shares = [100 * rank / (len(values) - 1) for rank in range(len(values))]
            axes.plot(values, shares, color=colours(0.85 * number / max(len(shown) - 1, 1)), label=one["level"])
        axes.set_xlim(left=0)
        axes.set_xlabel("seconds")
        axes.set_ylabel("% of requests")
        axes.legend(title="load")
        return _svg(figure)


def _axes(rows: Rows) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes: Axes = figure.add_subplot()
    axes.set_xticks(range(len(rows)), [one["level"] for one in rows])
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("requests arriving per second" if rows[0]["rate"] is not None else "clients at once")
    return figure, axes


def _svg(figure: Figure) -> str:
    """The figure as SVG for a page: without prologue, as wide as its container."""
    with io.StringIO() as stream:
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
        text = stream.getvalue()
    text = text[text.index("<svg") :]
    return re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
