"""In every process of a traced service: which of its functions ran in which phase, written as they first run.

The folder `TRACED_CALLS` has the phase, one byte in `phase`, and gets a file for each process. In phase 0 nothing is
written. Python imports this by its name when it starts, before anything else.
"""

from __future__ import annotations

import builtins
import mmap
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

TIMERS = frozenset({"tick", "_tick", "_tend"})
"""Calls from these depend on the clock, not on a request."""
PACKAGE = f"{os.sep}walkgraph{os.sep}"


def trace(folder: Path) -> None:
    with (folder / "phase").open("rb") as file:
        phase = mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ)
    calls = (folder / f"calls.{os.getpid()}").open("a", buffering=1)
    seen: dict[int, set[CodeType]] = {}

    def watch(frame: FrameType, event: str, arg: Any) -> None:
        if event != "call" or not phase[0]:
            return
        code, number = frame.f_code, phase[0]
        known = seen.setdefault(number, set())
        if code in known:
            return
        if PACKAGE not in code.co_filename:
            known.add(code)
        elif not timed(frame):
            known.add(code)
            calls.write(f"{number}\t{code.co_firstlineno}\t{code.co_filename}\n")

    threading.setprofile(watch)
    sys.setprofile(watch)
    builtins.__import__ = unwatched(builtins.__import__)


def unwatched(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Imports whose modules run without a watch, under which they would take several times as long."""

    def found(*args: Any, **kwargs: Any) -> Any:
        watch = sys.getprofile()
        sys.setprofile(None)
        try:
            return plain(*args, **kwargs)
        finally:
            sys.setprofile(watch)

    return found


def timed(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name in TIMERS:
            return True
        frame = frame.f_back
    return False


if "TRACED_CALLS" in os.environ:
    trace(Path(os.environ["TRACED_CALLS"]))
