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


def about() -> dict[str, str]:
    """What was run, when, on which commit and machine."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "command": "./dev safety",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "machine": f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }


def page(text: str, found: dict[str, Any]) -> str:
    """`text` with its table made anew."""
    head, rest = text.split(BEGIN)
    return head + BEGIN + table(found) + END + rest.split(END)[1]


def table(found: dict[str, Any], names: Iterable[str] = ROWS) -> str:
    told = found["about"]
    lines = [
        f"Measured {told['date'][:10]} by `{told['command']}` at commit `{told['commit'][:12]}`: {told['machine']}.",
        "",
        "| | What happens | Budget | Measured | Tests |",
        "|---|---|---|---|---|",
    ]
    for name in names:
        row, measured = ROWS[name], found["rows"][name]
        figures = "<br>".join(shown(one) for one in measured["figures"])
        lines.append(f"| {name} | {row.promise} | {row.budget} | {figures} | {verdict(measured['tests'])} |")
    return "\n".join(lines) + "\n"


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
    """1 where a test failed or a figure missed its bar."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    found = json.loads(path.read_text(encoding="utf-8"))
    whole = path.resolve() == RESULTS
    names = [name for name, measured in found["rows"].items() if whole or measured["tests"]]
    sys.stdout.write(table(found, names))
    if whole:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    bad = [name for name in names if not green(found["rows"][name])]
    sys.stdout.write(f"not green: {', '.join(bad)}\n" if bad else "all green\n")
    return 1 if bad else 0


def green(measured: dict[str, Any]) -> bool:
    """Whether a row has tests, all pass, and every figure is within its bar."""
    tests, figures = measured["tests"], measured["figures"]
    return bool(tests) and all(one["passed"] for one in tests) and all(one["within"] for one in figures)


if __name__ == "__main__":
    sys.exit(main())
