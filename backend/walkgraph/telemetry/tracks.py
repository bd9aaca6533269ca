"""Spans side by side: assign lines so that spans on one line don't overlap."""

from collections.abc import Sequence


def spread(spans: Sequence[tuple[int, int]]) -> list[int]:
    """(start, end) of each span, ordered by start -> its line, counted from 0: the first one that is free by then.
    Spans on one line touch at most."""
    ends: list[int] = []
    found: list[int] = []
    for start, end in spans:
        line = next((i for i, free in enumerate(ends) if free <= start), len(ends))
        if line == len(ends):
            ends.append(end)
        else:
            ends[line] = end
        found.append(line)
    return found
