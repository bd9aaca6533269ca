"""`python -m tests.safety.report [FILE]`: the table of `docs/reliability.md` from what a long run measured."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.safety.rows import ROWS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "safety.json"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- rows -->\n", "<!-- end of rows -->\n"


def about(row: str) -> dict[str, str]:
    """The tests that were run, when, and on which commit and machine."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "command": f"./dev safety {row}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "machine": f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }


def page(text: str, found: dict[str, Any]) -> str:
    """`text` with its table made anew."""
    head, rest = text.split(BEGIN)
    return head + BEGIN + table(found) + END + rest.split(END)[1]


def table(found: dict[str, Any], names: Iterable[str] = ROWS) -> str:
    """A line for each row; one without results says so."""
    lines = ["| | What happens | Budget | Measured | Tests | When |", "|---|---|---|---|---|---|"]
    for name in names:
        row, measured = ROWS[name], found.get(name)
        if measured is None:
            lines.append(f"| {name} | {row.promise} | {row.budget} | | not run at full scale yet | |")
            continue
        figures = "<br>".join(shown(one) for one in merged(measured["figures"]))
        when = f"{measured['about']['date'][:10]} `{measured['about']['commit'][:9]}`"
        lines.append(f"| {name} | {row.promise} | {row.budget} | {figures} | {verdict(measured['tests'])} | {when} |")
    machines = sorted({found[name]["about"]["machine"] for name in names if name in found})
    return "\n".join([*lines, "", *(f"Measured on {machine}." for machine in machines)]) + "\n"


def merged(figures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One figure of each name: the worst, a missed one before all others."""
    found: dict[str, dict[str, Any]] = {}
    for one in figures:
        known = found.get(one["name"])
        if known is None or _badness(one) > _badness(known):
            found[one["name"]] = one
    return list(found.values())


def _badness(figure: dict[str, Any]) -> tuple[bool, float]:
    return not figure["within"], -figure["value"] if figure["bar"].startswith("≥") else figure["value"]


def shown(figure: dict[str, Any]) -> str:
    value = figure["value"]
    number = f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"
    missed = "" if figure["within"] else f" (bar {figure['bar']}: **missed**)"
    return f"{figure['name']}: {number} {figure['unit']}".strip() + missed


def verdict(tests: list[dict[str, Any]]) -> str:
    failed = [one for one in tests if not one["passed"]]
    if not tests:
        return "none"
    return f"{len(tests)} pass" if not failed else f"{len(tests) - len(failed)} pass, **{len(failed)} fail**"


def main() -> int:
    """Print the rows named (all by default), and write the page. 1 where one isn't green."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    names = sys.argv[1:] or list(ROWS)
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    bad = [name for name in names if name not in found or not green(found[name])]
    sys.stdout.write(table(found, names) + (f"not green: {', '.join(bad)}\n" if bad else "all green\n"))
    return 1 if bad else 0


def green(measured: dict[str, Any]) -> bool:
    """True if a row has tests, all pass, and every figure is within its limit."""
    tests, figures = measured["tests"], measured["figures"]
    return bool(tests) and all(one["passed"] for one in tests) and all(one["within"] for one in figures)


if __name__ == "__main__":
    sys.exit(main())
