"""Chooses the runs to suspend for one that lacks pages; nothing else suspends a run. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from walkgraph.conductor.runs.page_budget import Demand


class Holder(NamedTuple):
    """A running run."""

    run: str
    priority: int
    started: float
    order: int
    """Order of arrival; breaks ties."""
    pages: Demand
    """Pages that its suspension frees."""
    calls: bool = False
    """It waits for a task that it has called."""


def to_suspend(lacking: Demand, priority: int, holders: Sequence[Holder]) -> list[str]:
    """The fewest runs that free the lacking pages, of those that wait for tasks and those of strictly lower priority:
    the former first, then the lowest priority, then the last started. Empty if all of them together would not
    suffice."""
    lower = [
        one
        for one in holders
        if (one.calls or one.priority < priority) and any(one.pages[pool] > 0 for pool in lacking)
    ]
    chosen: list[Holder] = []
    for one in sorted(lower, key=lambda one: (not one.calls, one.priority, -one.started, -one.order)):
        if _enough(lacking, chosen):
            break
        chosen.append(one)
    if not _enough(lacking, chosen):
        return []
    for one in reversed(chosen):
        rest = [other for other in chosen if other is not one]
        if _enough(lacking, rest):
            chosen = rest
    return [one.run for one in chosen]


def _enough(lacking: Demand, chosen: Sequence[Holder]) -> bool:
    return all(sum(one.pages[pool] for one in chosen) >= pages for pool, pages in lacking.items())
