"""Chunks of a stream, computed from its whole list of values: the naive twin of policies and streams."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class NaiveChunk(NamedTuple):
    values: tuple[Any, ...]
    """The context's values come first."""
    context: int
    first: bool = False
    last: bool = False
    absent: bool = False


def naive_chunks(policy: str, settings: Mapping[str, int], values: Sequence[Any], absent: int = 0) -> list[NaiveChunk]:
    """Full chunks, then a `last` one with the rest, if any. `absent`: number of absent chunks that follow."""
    first = settings.get("first")
    match policy:
        case "fixed":
            step, opening, window = settings["size"], first or settings["size"], None
        case "sliding":
            step, opening, window = settings["stride"], first or settings["window"], settings["window"]
        case "left_context":
            step, opening, window = settings["chunk"], first or settings["chunk"], None
        case _:
            return [NaiveChunk(tuple(values), 0, first=True, last=True)]
    stops = [*range(opening, len(values) + 1, step), len(values)]
    found: list[NaiveChunk] = []
    for start, stop in zip([0, *stops], stops, strict=False):
        before = settings.get("context", 0) if window is None else window - (stop - start)
        begin = max(0, start - before)
        found.append(
            NaiveChunk(tuple(values[begin:stop]), start - begin, first=not found, last=len(found) == len(stops) - 1)
        )
    return found + [NaiveChunk((), 0, absent=True)] * absent
