"""Show the progress of a starting deployment: bars on a terminal, otherwise a line per change."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

from walkgraph.cli import output

if TYPE_CHECKING:
    from rich.progress import TaskID

PHASES = {"load": "weights", "warm": "kernels and warm-up", "capture": "capture", "connect": "connections"}
"""Phase in the service's format -> words."""
_STATES = {
    "starting": "process",
    "loading": "weights",
    "warming": "kernels and warm-up",
    "lost": "lost, starting again",
}


class Shown(Protocol):
    """A place that shows the progress."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def take(self, found: Mapping[str, Any]) -> None:
        """Show a deployment as the service reports it."""
        ...


def shown() -> Shown:
    return Bars() if sys.stderr.isatty() else Lines()


def doing(rank: Mapping[str, Any]) -> str:
    """A rank's present activity, in words."""
    return PHASES.get(rank["phase"], _STATES.get(rank["state"], str(rank["state"])))


class Lines:
    """Progress as lines for files and pipes; nothing moves the cursor."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, str], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def take(self, found: Mapping[str, Any]) -> None:
        for rank in _ranks(found):
            key, tenth = (rank["rank"], doing(rank)), int(rank["fraction"] * 10)
            if self._told.get(key, -1) < tenth or key not in self._told:
                self._told[key] = tenth
                share = f" {rank['fraction']:.0%}" if rank["phase"] else ""
                output.note(f"rank {rank['rank']} {_device(rank)}{key[1]}{share}")


class Bars:
    """One bar per rank and phase; bars of finished phases stay full."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            console=Console(stderr=True, highlight=False),
        )
        self._tasks: dict[tuple[int, str], TaskID] = {}
        self._at: dict[int, str] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def take(self, found: Mapping[str, Any]) -> None:
        for rank in _ranks(found):
            number, at, before = rank["rank"], doing(rank), self._at.get(rank["rank"])
            if before is not None and before != at:
                self._over(number, before)
            self._at[number] = at
            if rank["state"] == "ready":
                continue
            self._advance(rank, number, at)

    def _advance(self, rank: Mapping[str, Any], number: int, at: str) -> None:
        if (number, at) not in self._tasks:
            name = output.clean(f"rank {number} {_device(rank)}{at}")
            # A phase without a known share only pulses.
            self._tasks[number, at] = self._progress.add_task(name, total=1.0 if rank["phase"] else None)
        if rank["phase"]:
            self._progress.update(self._tasks[number, at], total=1.0, completed=rank["fraction"])

    def _over(self, number: int, at: str) -> None:
        task = self._tasks.get((number, at))
        if task is not None:
            self._progress.update(task, total=1.0, completed=1.0)
            self._progress.stop_task(task)


def _ranks(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The ranks that are starting: those of the new version while a deployment is switched."""
    return (found.get("next") or found)["ranks"]


def _device(rank: Mapping[str, Any]) -> str:
    return f"{rank['device']}: " if rank.get("device") else ""
