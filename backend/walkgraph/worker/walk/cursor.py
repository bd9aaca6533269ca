"""From one iteration of a use to its next: how far it got, and where that is."""

from typing import Final, NamedTuple

Vector = tuple[int, ...]
WAIT: Final = (-1,)
"""In place of a vector: it depends on an `until` that isn't known yet."""


class Way(NamedTuple):
    """How far a use got on its way to its next iteration."""

    prefix: Vector
    entering: bool
    """The use's iterations under the prefix are to come; otherwise they are over."""
    ended: int
    """Length of the shortest prefix of the old vector under which all calls are over."""


class Next(NamedTuple):
    to: Vector | None
    """None: there is no further iteration."""
    empties: list[Vector]
    """Prefixes passed on the way under which there was no call: a loop turned out empty, or all that it held."""
    way: Way


def following(at: Vector) -> Vector:
    """The next iteration of the innermost loop."""
    return (*at[:-1], at[-1] + 1)
