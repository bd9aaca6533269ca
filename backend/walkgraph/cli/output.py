"""Output of the verbs: results on standard output, everything else on standard error. Only `trace --follow` on a
terminal moves the cursor."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any


def as_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def line(text: str = "") -> None:
    print(clean(text), flush=True)


def note(text: str) -> None:
    """Print a remark for the person at the terminal, on standard error."""
    print(clean(text), file=sys.stderr, flush=True)


def complain(text: str, details: Iterable[str] = ()) -> None:
    note(f"walkgraph: {text}")
    for detail in details:
        note(f"  {detail}")


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[int] = ()) -> None:
    """Columns as wide as they need; those in `right` hold numbers and align right."""
    cells = [[clean(str(cell)) for cell in row] for row in rows]
    widths = [max(len(column[i]) for column in [list(headers), *cells]) for i in range(len(headers))]
    for row in [list(headers), *cells]:
        parts = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(parts).rstrip())


@contextmanager
def on_stderr() -> Iterator[None]:
    """Send what is printed inside to standard error."""
    with redirect_stdout(sys.stderr):
        yield


def problems(found: Iterable[Any]) -> None:
    """Problems of a check or a plan, one per line."""
    for problem in found:
        fields = problem if isinstance(problem, dict) else vars(problem)
        line(f"{fields['severity']:<8} {fields['pointer'] or '/'}  {fields['code']}: {fields['message']}")


def size(count: float) -> str:
    """A number of bytes in a readable unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def clean(text: str) -> str:
    """The text with control characters escaped, except line ends and tabs."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)
