"""Output of the verbs: results on standard output, everything else on standard error. Only `trace --follow` on a
terminal moves the cursor."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, TextIO, cast


def as_json(value: Any) -> None:
    print(json_text(value))


def json_text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def line(text: str = "") -> None:
    print(clean(text), flush=True)


def note(text: str) -> None:
    """Print a remark for the person at the terminal, on standard error."""
    print(f"{clean(text)}\n", end="", file=sys.stderr, flush=True)  # as one piece, which arrives whole or not at all


def complain(text: str, details: Iterable[str] = ()) -> None:
    note(f"walkgraph: {text}")
    for detail in details:
        note(f"  {detail}")


def without_waiting() -> None:
    """From now on standard error loses what its reader leaves no room for: a service waits for nobody who reads its
    log."""
    # Imported late: only the service needs it.
    from walkgraph.logs import NeverWaiting

    sys.stderr = cast("TextIO", NeverWaiting(sys.stderr))


def hand_over(text: str) -> None:
    """Print a text that must arrive, without waiting for its reader: a thread writes what a pipe has no room for."""
    try:
        file = sys.stdout.fileno()
    except (OSError, ValueError):  # it is no file of the system's
        print(text, flush=True)
        return
    sys.stdout.flush()
    data = f"{text}\n".encode(errors="backslashreplace")
    if len(data) <= select.PIPE_BUF and select.select([], [file], [], 0)[1]:
        _write(file, data)
    else:
        # Not by `print`: a thread that is stuck in it at the end of the process holds the lock of standard output.
        threading.Thread(target=_write, args=(file, data), daemon=True).start()


def _write(file: int, data: bytes) -> None:
    with suppress(OSError):  # nobody will read it
        while data:
            data = data[os.write(file, data) :]


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
