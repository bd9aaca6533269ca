"""From one iteration of a use to its next: where the use stands in between, and where that leads."""

from collections.abc import Sequence
from typing import Final, NamedTuple

Vector = tuple[int, ...]
WAIT: Final = (-1,)
"""In place of a vector: the next iteration depends on an `until` that isn't known yet."""


class Cursor(NamedTuple):
    """Where a use stands between two iterations."""

    prefix: Vector
    entering: bool
    """The use's iterations under the prefix are to come; otherwise they are over."""
    ended: int
    """Length of the shortest prefix of the old vector under which all calls are over."""


class Next(NamedTuple):
    to: Vector | None
    """None: there is no further iteration."""
    empties: list[Vector]
    """Prefixes that the cursor passed and under which there was no call: a loop had no iteration, or only empty loops
    inside."""
    cursor: Cursor


def following(at: Vector) -> Vector:
    """The next iteration of the innermost loop."""
    return (*at[:-1], at[-1] + 1)


def indices(names: Sequence[str], at: Vector) -> dict[str, int]:
    """What `@loop.NAME` and `@loop.index` stand for."""
    found = dict(zip(names, at, strict=False))
    if names and at:
        found["index"] = at[min(len(names), len(at)) - 1]
    return found
