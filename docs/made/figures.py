"""Tables out of `benchmarks/results/`: each with the command that made it, the machine and the date."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from made.words import code, table

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


def rows(name: str, key: str, *columns: str) -> str:
    """The list `key` of one file; `columns`: what of each entry, all of them without any. `+` stands for a space."""
    found = _read(name)
    entries = found[key.replace("+", " ")]
    heads = [column.replace("+", " ") for column in columns] or list(entries[0])
    for head in heads:
        if not any(head in entry for entry in entries):
            raise KeyError(f"`{name}.json` has no `{head}` in `{key}`")
    return f"{table(heads, [[_shown(entry.get(head, '')) for head in heads] for entry in entries])}\n{_about(found)}"


def sums(name: str) -> str:
    """The figures of one file, a row for each."""
    found = _read(name)
    return f"{table(('', ''), [(key, _shown(value)) for key, value in found['figures'].items()])}\n{_about(found)}"


def _read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _about(found: dict[str, Any]) -> str:
    about = found["about"]
    machine = ", ".join(about[key] for key in ("device", "machine") if about.get(key) and about[key] != "cpu")
    return f"*{code(about['command'])}; {machine}; {about['date'][:10]}, commit {code(about['commit'][:12])}*\n"


def _shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
