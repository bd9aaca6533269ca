"""The contents of pictures: vocabulary, frozen form, and seeded sampler. No pixels and no sentences here."""

import random
import zlib
from collections.abc import Iterator
from typing import NamedTuple

SHAPES = ("circle", "square", "triangle", "star")
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange")
SIZES = ("small", "large")
BACKGROUNDS = ("white", "black", "grey")
PLACES = ("top left", "top", "top right", "left", "center", "right", "bottom left", "bottom", "bottom right")
"""The 3x3 cells, row-major: cell = 3 * row + column."""
RELATIONS = ("left of", "right of", "above", "below")
MOST_ITEMS = 2

_HELD_OUT_OF = 20
"""One scene in this many is reserved for evaluation and never drawn in training."""


class Item(NamedTuple):
    """Indices into the vocabularies above."""

    shape: int
    colour: int
    size: int
    cell: int


class Scene(NamedTuple):
    background: int
    items: tuple[Item, ...]
    """At most two, ordered by cell; a cell holds at most one."""


class Wanted(NamedTuple):
    """An item as a sentence describes it; None where the sentence leaves it open."""

    shape: int
    colour: int | None = None
    size: int | None = None
    cell: int | None = None

    def allows(self, item: Item) -> bool:
        return all(want is None or want == have for want, have in zip(self, item, strict=True))


class Request(NamedTuple):
    """The requirements of a sentence on a picture."""

    background: int | None
    items: tuple[Wanted, ...]
    relation: int | None = None
    """Index into `RELATIONS`: position of the first item relative to the second."""

    def allows(self, scene: Scene) -> bool:
        if self.background not in (None, scene.background) or len(self.items) != len(scene.items):
            return False
        orders = [scene.items, scene.items[::-1]]
        return any(
            all(want.allows(item) for want, item in zip(self.items, order, strict=True))
            and (self.relation is None or related(order[0], order[1], self.relation))
            for order in orders
        )


def generator(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 (drawings, not secrets)


def scene(background: int, items: tuple[Item, ...]) -> Scene:
    return Scene(background, tuple(sorted(items, key=lambda item: item.cell)))


def related(first: Item, second: Item, relation: int) -> bool:
    """True if the items have this relation. Left and right need one row, above and below one column."""
    (row, column), (other_row, other_column) = divmod(first.cell, 3), divmod(second.cell, 3)
    if relation < 2:
        return row == other_row and (column < other_column) == (relation == 0) and column != other_column
    return column == other_column and (row < other_row) == (relation == 2) and row != other_row


def relation_between(first: Item, second: Item) -> int | None:
    return next((r for r in range(len(RELATIONS)) if related(first, second, r)), None)


def free_cells(items: tuple[Item, ...]) -> list[int]:
    taken = {item.cell for item in items}
    return [cell for cell in range(len(PLACES)) if cell not in taken]


def held_out(drawn: Scene) -> bool:
    """True if this scene is reserved for evaluation, by a stable hash of its content."""
    return zlib.crc32(repr((drawn.background, [tuple(i) for i in drawn.items])).encode()) % _HELD_OUT_OF == 0


def draw_item(rng: random.Random, cell: int) -> Item:
    return Item(rng.randrange(len(SHAPES)), rng.randrange(len(COLOURS)), rng.randrange(len(SIZES)), cell)


def draw_scene(rng: random.Random) -> Scene:
    """Draw a scene: 2 % empty, 30 % with one item, the rest with two; half of the pairs share a row or a column."""
    background, kind = rng.randrange(len(BACKGROUNDS)), rng.random()
    if kind < 0.02:
        return Scene(background, ())
    first = draw_item(rng, rng.randrange(len(PLACES)))
    if kind < 0.32:
        return Scene(background, (first,))
    others = free_cells((first,))
    if rng.random() < 0.5:
        row, column = divmod(first.cell, 3)
        others = [cell for cell in others if (cell // 3 == row) != (cell % 3 == column)]
    return scene(background, (first, draw_item(rng, rng.choice(others))))


def draw_scenes(seed: int, *, reserved: bool) -> Iterator[Scene]:
    """Endless scenes, either the reserved ones for evaluation or those for training."""
    rng = generator(seed)
    while True:
        drawn = draw_scene(rng)
        if held_out(drawn) == reserved:
            yield drawn
