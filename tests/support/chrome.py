"""Finds faults that a reader of Chrome's trace format would reject."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

Event = dict[str, Any]


def faults(events: list[Event]) -> list[str]:
    """Returns the faults that a reader of the file would reject."""
    found: list[str] = []
    threads: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    for place, slices in threads.items():
        found += _overlaps(place, slices)
    ends: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            ends[event["id"]].append(event)
            if not any(_holds(one, event["ts"]) for one in threads[event["pid"], event["tid"]]):
                found.append(f"flow {event['id']} ({event['ph']}) is bound to no slice")
    for id_, pair in ends.items():
        if [event["ph"] for event in pair] != ["s", "f"] or pair[0]["ts"] > pair[1]["ts"]:
            found.append(f"flow {id_} has no two ends in order")
        if len({(event["name"], event["cat"]) for event in pair}) != 1:
            found.append(f"flow {id_} is of two kinds")
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    return found + [f"thread {place} has no name" for place in threads.keys() - named]


def _overlaps(place: tuple[int, int], slices: list[Event]) -> list[str]:
    """A stack of what is open, as the file's readers keep it: of those that start at once, the first written is around
    the others."""
    found: list[str] = []
    stack: list[Event] = []
    for event in sorted(slices, key=lambda event: event["ts"]):
        while stack and _end(stack[-1]) <= event["ts"] and not _same_instant(stack[-1], event):
            stack.pop()
        if event["dur"] < 0 or (stack and _end(event) > _end(stack[-1])):
            found.append(f"{event['name']} at {event['ts']} sticks out on {place}")
        stack.append(event)
    return found


def _same_instant(outer: Event, inner: Event) -> bool:
    return outer["ts"] == inner["ts"] and inner["dur"] == 0 == outer["dur"]


def _end(event: Event) -> int:
    return event["ts"] + event["dur"]


def _holds(event: Event, at: int) -> bool:
    return event["ts"] <= at <= _end(event)
