"""Shared by benchmarks: rooflines, medians, tables, and a results file that says what was measured where."""

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
READ, COPY = 3.9e12, 4.3e12
"""Bytes a second of one H200: what plain reads of weights reach, and what a copy does."""

Row = Mapping[str, Any]


def spread(values: Sequence[float], scale: float = 1.0) -> dict[str, float]:
    """Median, 5th and 95th percentile (linear), in units of 1 / `scale`; empty for no values."""
    if not values:
        return {}
    at = sorted(values)
    return {"median": scale * statistics.median(at), "p5": scale * _at(at, 0.05), "p95": scale * _at(at, 0.95)}


def _at(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def fitted(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """a and b of y = a + b * x, least squares of the relative error: long ones don't drown short ones."""
    weights = [1 / y**2 for _, y in points]
    total = sum(weights)
    x0 = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    y0 = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    above = sum(w * (x - x0) * (y - y0) for w, (x, y) in zip(weights, points, strict=True))
    slope = above / sum(w * (x - x0) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    return y0 - slope * x0, slope


def roofline(nbytes: float) -> dict[str, float]:
    """Milliseconds that moving so many bytes takes."""
    return {"floor at 3.9": 1e3 * nbytes / READ, "floor at 4.3": 1e3 * nbytes / COPY}


class Budget:
    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self.left_out: list[str] = []

    def allows(self, what: str) -> bool:
        """True while there is time left; the report lists what was skipped."""
        if time.monotonic() < self._end:
            return True
        self.left_out.append(what)
        return False


def show(title: str, rows: Iterable[Row]) -> None:
    """A table, its columns those of the rows, in the order of their first appearance."""
    rows = list(rows)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [columns, *([_cell(row.get(name)) for name in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    print(f"\n{title}")
    for line in cells:
        print("  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)).rstrip(), flush=True)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def about(device: str) -> dict[str, Any]:
    git = shutil.which("git")
    head = [git, "-C", str(ROOT), "rev-parse", "HEAD"] if git else ["true"]
    commit = subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip()
    processor = next((s for s in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in s), "")
    return {
        "command": " ".join(["python", *sys.argv]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit or "unknown: not a checkout",
        "machine": f"{os.cpu_count()} cores, {processor.partition(':')[2].strip()}, Python {platform.python_version()}",
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu",
        "torch": torch.__version__,
    }


def write(out: Path | None, device: str, report: Mapping[str, Any]) -> None:
    """The report as JSON, floats rounded, with what it was measured on; nowhere where `out` is None."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"about": about(device), **_rounded(report)}, indent=1) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value
