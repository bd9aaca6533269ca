"""The sentences of the shapes world: the exact caption, prompts that leave things open, and edits.

The grammar is written out in this folder's README.md.
"""

import random
from typing import NamedTuple

from walkgraph.starters.shapes.scenes import (
    BACKGROUNDS,
    COLOURS,
    PLACES,
    RELATIONS,
    SHAPES,
    SIZES,
    Item,
    Request,
    Scene,
    Wanted,
    draw_item,
    free_cells,
    relation_between,
    scene,
)

_OPENINGS = ("", "", "", "draw ", "show ", "a picture of ")
_RECOLOUR = ("make the {} {}", "change the {} to {}", "turn the {} {}")
_MOVE = ("move the {} to the {}", "put the {} at the {}")
_REMOVE = ("remove the {}", "delete the {}")
_BACKGROUND = ("make the background {}", "change the background to {}")
EDITS = ("recolour", "move", "remove", "add", "background")


class Prompt(NamedTuple):
    text: str
    request: Request


class Edit(NamedTuple):
    kind: str
    text: str
    before: Scene
    after: Scene
    moved: tuple[int | None, ...]
    """For every item of `after`, its unmoved counterpart in `before`; None if it was placed there."""
    wanted: Request
    """The content required of the picture afterwards."""


def caption(shown: Scene) -> str:
    """The one exact caption of a scene: complete, with items in reading order."""
    background = f"on a {BACKGROUNDS[shown.background]} background"
    if not shown.items:
        return f"nothing {background}"
    return " and ".join(f"{noun(Wanted(*i))} {place(i.cell)}" for i in shown.items) + f" {background}"


def noun(item: Wanted, article: bool = True) -> str:
    """ "a small red circle", or without the article "small red circle"."""
    size = [] if item.size is None else [SIZES[item.size]]
    colour = [] if item.colour is None else [COLOURS[item.colour]]
    words = [*size, *colour, SHAPES[item.shape]]
    start = ["an" if words[0] == "orange" else "a"] if article else []
    return " ".join([*start, *words])


def place(cell: int) -> str:
    return f"in the {PLACES[cell]}" if PLACES[cell] == "center" else f"at the {PLACES[cell]}"


def prompt(rng: random.Random, shown: Scene) -> Prompt:
    """A sentence that this scene satisfies; one time in four it is the caption."""
    if rng.random() < 0.25:
        request = Request(shown.background, tuple(Wanted(*item) for item in shown.items))
        return Prompt(caption(shown) + _stop(rng), request)
    background = shown.background if rng.random() < 0.6 or not shown.items else None
    items = list(shown.items)
    rng.shuffle(items)
    relation = relation_between(items[0], items[1]) if len(items) == 2 and rng.random() < 0.7 else None
    wanted = tuple(_forget(rng, item, keep_place=relation is None) for item in items)
    body = _body(rng, wanted, relation)
    if background is not None:
        body += _background(rng, background)
    return Prompt(rng.choice(_OPENINGS) + body + _stop(rng), Request(background, wanted, relation))


def edit(rng: random.Random, before: Scene, kind: str | None = None) -> Edit | None:
    """An instruction and the resulting scene; None if this kind of edit is impossible here."""
    kind = kind or rng.choices(EDITS, (3, 3, 2, 3, 1))[0]
    if kind == "background":
        other = rng.choice([b for b in range(len(BACKGROUNDS)) if b != before.background])
        text = rng.choice(_BACKGROUND).format(BACKGROUNDS[other])
        return _edit(rng, kind, text, before, before._replace(background=other))
    if kind == "add":
        return _add(rng, before)
    if not before.items:
        return None
    item = rng.choice(before.items)
    rest = tuple(other for other in before.items if other != item)
    reference = _reference(rng, item, rest)
    if reference is None:
        return None
    if kind == "remove":
        return _edit(rng, kind, rng.choice(_REMOVE).format(reference), before, scene(before.background, rest))
    if kind == "recolour":
        colour = rng.choice([c for c in range(len(COLOURS)) if c != item.colour])
        text = rng.choice(_RECOLOUR).format(reference, COLOURS[colour])
        return _edit(rng, kind, text, before, scene(before.background, (*rest, item._replace(colour=colour))))
    cell = rng.choice(free_cells(before.items))
    text = rng.choice(_MOVE).format(reference, PLACES[cell])
    return _edit(rng, kind, text, before, scene(before.background, (*rest, item._replace(cell=cell))))


def _add(rng: random.Random, before: Scene) -> Edit | None:
    if len(before.items) == 2:
        return None
    item = draw_item(rng, rng.choice(free_cells(before.items)))
    wanted = Wanted(*item)._replace(size=item.size if rng.random() < 0.7 else None)
    text = f"{rng.choice(('add', 'add', 'draw'))} {noun(wanted)} {place(item.cell)}"
    after = scene(before.background, (*before.items, item))
    asked = tuple(wanted if i == item else Wanted(*i) for i in after.items)
    return _edit(rng, "add", text, before, after)._replace(wanted=Request(before.background, asked))


def _edit(rng: random.Random, kind: str, text: str, before: Scene, after: Scene) -> Edit:
    cells = {item.cell: index for index, item in enumerate(before.items)}
    moved = tuple(cells.get(item.cell) for item in after.items)
    wanted = Request(after.background, tuple(Wanted(*item) for item in after.items))
    return Edit(kind, text + _stop(rng), before, after, moved, wanted)


def _forget(rng: random.Random, item: Item, *, keep_place: bool) -> Wanted:
    return Wanted(
        item.shape,
        item.colour if rng.random() < 0.92 else None,
        item.size if rng.random() < 0.5 else None,
        item.cell if keep_place and rng.random() < 0.7 else None,
    )


def _body(rng: random.Random, items: tuple[Wanted, ...], relation: int | None) -> str:
    if not items:
        return "nothing"
    if relation is not None:
        words = RELATIONS[relation]
        between = f"to the {words}" if words.endswith("of") and rng.random() < 0.3 else words
        return f"{noun(items[0])} {between} {noun(items[1])}"
    return " and ".join(noun(i) if i.cell is None else f"{noun(i)} {place(i.cell)}" for i in items)


def _background(rng: random.Random, background: int) -> str:
    name = BACKGROUNDS[background]
    return rng.choice((f" on a {name} background", f" on a {name} background", f" on {name}"))


def _stop(rng: random.Random) -> str:
    return "." if rng.random() < 0.1 else ""


def _reference(rng: random.Random, item: Item, rest: tuple[Item, ...]) -> str | None:
    """A noun phrase that means only this item; None for twins."""
    names = [
        Wanted(item.shape),
        Wanted(item.shape, item.colour),
        Wanted(item.shape, item.colour),
        Wanted(item.shape, None, item.size),
        Wanted(item.shape, item.colour, item.size),
    ]
    clear = [name for name in names if not any(name.allows(other) for other in rest)]
    return noun(rng.choice(clear), article=False) if clear else None
