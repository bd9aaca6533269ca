"""Draw a trace on a terminal as text: its phases, its nodes, and the work of each rank over time. Nothing here
prints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from walkgraph.telemetry.trace import FOLDED, Trace

SHADES = " ░▒▓█"
"""Shades by the busy share of a column's time."""
LEAST_WIDTH = 20
PHASES = {"queued": "q", "started": "s", "first_output": "o", "finished": "f"}
NODE_HEADERS = ("NODE", "RANK", "CALLS", "BUSY MS", "MS/CALL", "QUEUED MS", "BATCH", "SHARE")
NODE_RIGHT = (1, 2, 3, 4, 5, 6, 7)


def duration(seconds: float) -> str:
    """A duration with about three digits, in a fitting unit."""
    if seconds >= 60:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def heading(trace: Trace) -> list[str]:
    state = trace.state + (f" ({trace.error})" if trace.error else "")
    parts = [f"telemetry {trace.level}"]
    if trace.lost:
        parts.append(f"{trace.lost} events lost")
    if trace.cut:
        parts.append("its older part is not kept")
    parts += [f"times of host {clock.host}: +-{clock.error} us" for clock in trace.clocks]
    if trace.early:
        parts.append(f"{trace.early} values came before they were sent: clocks were set meanwhile")
    return [
        f"{trace.run}  {trace.task} on {trace.deployment}: {state}, {duration(trace.seconds)}",
        f"{phases(trace)}; {', '.join(parts)}",
    ]


def phases(trace: Trace) -> str:
    """The phases in words."""
    at = trace.phases
    if "started" not in at:
        return "not started"
    words = [f"queued {duration((at['started'] - at.get('queued', 0)) / 1e6)}"]
    if "first_output" in at:
        words.append(f"first output after {duration(at['first_output'] / 1e6)}")
    return ", ".join(words)


def called(trace: Trace) -> list[str]:
    """The tasks that the run called, with the runs that they were."""
    return [
        f"{one.use} called {one.task}: {one.run or 'no run'}{', failed' if one.failed else ''}, "
        f"{duration((one.answered - one.asked) / 1e6)}"
        for one in trace.called
    ]


def nodes(trace: Trace) -> list[tuple[Any, ...]]:
    """A row per lane, the busiest first: calls of a node, or iterations of a device loop."""
    blocks, rows = trace.blocks, defaultdict[int, list[int]](list)
    for row, lane in enumerate(blocks.lane):
        rows[lane].append(row)
    seconds = trace.seconds or 1.0
    found: list[tuple[int, tuple[Any, ...]]] = []
    for number, mine in rows.items():
        lane = trace.lanes[number]
        calls = sum(blocks.count[row] for row in mine)
        busy, queued = sum(blocks.busy[row] for row in mine), sum(blocks.queued[row] for row in mine)
        known = [row for row in mine if blocks.kind[row] != FOLDED]
        batch = f"{sum(blocks.batch[row] for row in known) / len(known):.1f}" if known else ""
        shown = f"{lane.name} ({', '.join(lane.nodes)})" if lane.loop else lane.name
        per_call = f"{busy / calls / 1e3:.2f}" if calls else ""
        cells = (f"{busy / 1e3:.1f}", per_call, f"{queued / 1e3:.1f}", batch, f"{busy / 1e6 / seconds:.0%}")
        found.append((busy, (shown, lane.rank, calls, *cells)))
    return [row for _, row in sorted(found, key=lambda entry: -entry[0])]


def timeline(trace: Trace, width: int) -> Iterator[str]:
    """A line per lane below its rank, about `width` columns wide."""
    end = max([round(trace.seconds * 1e6), *trace.blocks.finished, 1])
    labels = [f"  {lane.name}" for lane in trace.lanes]
    margin = max([len(label) for label in labels] + [len("phases")]) + 1
    columns = max(LEAST_WIDTH, width - margin - 2)
    scale = duration(end / 1e6)
    yield f"{'':{margin}} 0{scale:>{columns - 1}}"
    yield f"{'phases':{margin}}│{_marks(trace, end, columns)}│"
    blocks, by_lane = trace.blocks, defaultdict[int, list[tuple[int, int, int]]](list)
    for row, lane in enumerate(blocks.lane):
        by_lane[lane].append((blocks.started[row], blocks.finished[row], _busy(trace, row)))
    for rank in sorted({lane.rank for lane in trace.lanes}):
        device = f" {trace.devices[rank]}" if rank < len(trace.devices) else ""
        yield f"rank {rank}{device}"
        for number, lane in enumerate(trace.lanes):
            if lane.rank == rank:
                yield f"{labels[number]:{margin}}│{_shaded(by_lane[number], end, columns)}│"
    parts = ", ".join(f"{mark} {name.replace('_', ' ')}" for name, mark in PHASES.items() if name in trace.phases)
    if parts:
        yield f"{'':{margin}} {parts}"


def why(found: Mapping[str, Any]) -> list[str]:
    """The explanation in words, and the share of each kind."""
    seconds = found.get("seconds") or 1.0
    shares = sorted(found.get("shares", {}).items(), key=lambda share: -share[1])
    parts = ", ".join(f"{kind} {share / seconds:.0%}" for kind, share in shares if share > 0.005 * seconds)
    return [line for line in (found.get("says", ""), parts) if line]


def statistics(found: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Rows for `STATISTICS`."""

    def number(value: Any, form: str) -> str:
        return "" if value is None else format(value, form)

    return [
        (
            row["node"],
            row["rank"],
            row["calls"],
            *(number(row.get(key), ".2f") for key in ("p50", "p95", "p99", "queued_p50", "queued_p95")),
            number(row.get("batch_mean"), ".1f"),
            number(row.get("busy"), ".2f"),
            number(row.get("share"), ".0%"),
        )
        for row in found["nodes"]
    ]


STATISTICS = ("NODE", "RANK", "CALLS", "P50 MS", "P95", "P99", "QUEUED P50", "P95", "BATCH", "BUSY S", "CRITICAL")


def _busy(trace: Trace, row: int) -> int:
    """Busy time of a block; a folded block spans more time than its calls took."""
    blocks = trace.blocks
    span = max(0, blocks.finished[row] - blocks.started[row])
    return min(span, blocks.busy[row]) if blocks.kind[row] == FOLDED else span


def _shaded(spans: Sequence[tuple[int, int, int]], end: int, columns: int) -> str:
    """Shade each column by its busy share; any work at all is visible."""
    filled = [0.0] * columns
    for start, finish, busy in spans:
        density = busy / (finish - start) if finish > start else 1.0
        first, last = start * columns / end, max(finish * columns / end, start * columns / end + 1e-3)
        for column in range(int(first), min(columns, int(last) + 1)):
            inside = min(last, column + 1) - max(first, column)
            if inside > 0:
                filled[column] += inside * density
    top = len(SHADES) - 1
    return "".join(SHADES[0 if share == 0 else max(1, min(top, round(share * top)))] for share in filled)


def _marks(trace: Trace, end: int, columns: int) -> str:
    line = [" "] * columns
    for name, at in sorted(trace.phases.items(), key=lambda phase: phase[1]):
        line[min(columns - 1, max(0, at * columns // end))] = PHASES.get(name, "?")
    return "".join(line)
