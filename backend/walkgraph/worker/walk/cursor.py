"""Moves a use from one iteration to the next: where it stands in between, and where it goes."""

from collections.abc import Sequence
from typing import Final, NamedTuple

Vector = tuple[int, ...]
WAIT: Final = (-1,)
"""Stands for a vector while the next iteration depends on an `until` that isn't known yet."""


class Cursor(NamedTuple):
    """The position of a use between two iterations."""

    prefix: Vector
    entering: bool
    """True if the iterations under the prefix are still to come; False if they are over."""
    ended: int
    """Length of the shortest prefix of the old vector under which all calls are over."""


class Next(NamedTuple):
    to: Vector | None
    """None: there is no further iteration."""
    empties: Sequence[Vector]
    """Prefixes that the cursor passed without a call: a loop had no iterations, or only empty inner loops."""
    cursor: Cursor
    untaken: tuple[Vector, ...]
    """Prefixes that the cursor passed because another branch is taken there."""


def following(at: Vector) -> Vector:
    """The next iteration of the innermost loop."""
    return (*at[:-1], at[-1] + 1)


def indices(names: Sequence[str], at: Vector) -> dict[str, int]:
    """The values of `@loop.NAME` and `@loop.index`."""
    found = dict(zip(names, at, strict=False))
    if names and at:
        found["index"] = at[min(len(names), len(at)) - 1]
    return found
