"""The tables of a benchmark, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]
HEADERS = (
    "LOAD", "DONE", "ERRORS", "REQ/S", "TTFT p50", "p95", "p99", "ITL p50", "p99", "E2E p50", "p95", "p99",
    "CLIENT CPU",
)  # fmt: skip
TOKENS = ("LOAD", "LOOP", "ITERATIONS", "A SECOND")


def main(rows: Rows) -> list[tuple[str, ...]]:
    return [
        (
            one["level"],
            f"{one['completed']}",
            f"{one['requests'] - one['completed']}",
            f"{one['throughput']:.2f}",
            *(took(one["ttft"].get(p)) for p in ("p50", "p95", "p99")),
            *(took(one["itl"].get(p)) for p in ("p50", "p99")),
            *(took(one["e2e"].get(p)) for p in ("p50", "p95", "p99")),
            f"{one['client_cpu']:.0%}",
        )
        for one in rows
    ]


def tokens(rows: Rows) -> list[tuple[str, ...]]:
    """Rows for the input tokens read, and for each loop that ends by itself."""
    found: list[tuple[str, ...]] = []
    for one in rows:
        counted = one["tokens"]
        if counted["read"]:
            name = f"tokens read ({counted['found']} found in caches)"
            found.append((one["level"], name, str(counted["read"]), f"{counted['read_per_second']:.1f}"))
        for loop, counts in counted["loops"].items():
            found.append((one["level"], loop, str(counts["iterations"]), f"{counts['per_second']:.1f}"))
    return found


def goodput(rows: Rows) -> list[tuple[str, ...]]:
    return [
        (one["level"], str(one["good"]["requests"]), f"{one['good']['share']:.0%}", f"{one['good']['per_second']:.2f}")
        for one in rows
        if "good" in one
    ]


def took(seconds: float | None) -> str:
    """A duration in the unit that reads best."""
    if seconds is None:
        return "-"
    if seconds < 0.0995:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
