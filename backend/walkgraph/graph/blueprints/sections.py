"""A selection of a Walk's items as one place in one list, so that a single item can stand there instead."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from walkgraph.errors import InvalidInput
from walkgraph.graph.document import Choose, Fork, Graph, Item, Loop, Map, Walk
from walkgraph.graph.structure import Entry, segments, structure

Place = tuple[str, ...]
_LISTS = ("body", "parallel", "sequence", "otherwise")


@dataclass(frozen=True)
class Section:
    """Some items of one list of a body."""

    parent: Place
    """The list: `("body", "0", "body")`."""
    before: tuple[int, ...]
    """The positions in the list of the items that stay before them."""
    chosen: tuple[int, ...]
    after: tuple[int, ...]
    items: tuple[Item, ...]
    """The items that are chosen."""
    loops: tuple[str, ...]
    """The loops around the list, outermost first."""

    def holds(self, pointer: str) -> bool:
        """True if a place of the Walk is in the section."""
        place = segments(pointer)
        depth = len(self.parent)
        return place[:depth] == self.parent and len(place) > depth and int(place[depth]) in self.chosen


def section(graph: Graph, walk: str, pointers: Iterable[str]) -> Section:
    """The section that these items are. Raises InvalidInput where they are no place of one item."""
    found = graph.walks[walk]
    places = [_normal(found, segments(pointer)) for pointer in pointers]
    if not places:
        raise InvalidInput("nothing is selected; select nodes of the Walk")
    parent = _common_list(found, places)
    items = _items_at(found, parent)
    depth = len(parent)
    chosen = sorted({int(place[depth]) for place in places})
    if chosen[-1] >= len(items):
        raise InvalidInput("the selection names an item that isn't there; select again")
    facts = structure(found, walk)
    for index in chosen:
        here = (*parent, str(index))
        for entry in facts.entries:
            at = _place(entry)
            if entry.name and at[: depth + 1] == here and not any(at[: len(place)] == place for place in places):
                raise InvalidInput(f"`{entry.name}` is in the same frame; select it too, or only nodes of one frame")
    above = _loops_above(found, parent)
    loops = next((one.loops[:above] for one in facts.entries if _place(one)[:depth] == parent), ())
    before, after = _sides(graph, walk, parent, chosen, len(items))
    return Section(parent, before, tuple(chosen), after, tuple(items[i] for i in chosen), loops)


def replaced(walk: Walk, at: Section, item: Item) -> tuple[Item, ...]:
    """The Walk's body with one item in the place of the section."""
    return _replaced(walk.body, at.parent[1:], at, item)


def _replaced(items: tuple[Item, ...], path: Place, at: Section, item: Item) -> tuple[Item, ...]:
    if not path:
        return (*(items[i] for i in at.before), item, *(items[i] for i in at.after))
    index, key, rest = int(path[0]), path[1], path[2:]
    outer = items[index]
    if key == "cases" and isinstance(outer, Choose):
        cases = {**outer.cases, rest[0]: _replaced(outer.cases[rest[0]], rest[1:], at, item)}
        changed = outer.model_copy(update={"cases": cases})
    else:
        changed = outer.model_copy(update={key: _replaced(getattr(outer, key), rest, at, item)})
    return (*items[:index], changed, *items[index + 1 :])


def _common_list(walk: Walk, places: list[Place]) -> Place:
    """The innermost list that holds all of the items."""
    common = places[0][:-1]
    for place in places:
        while place[: len(common)] != common:
            common = common[:-1]
    while common:
        try:
            _items_at(walk, common)
        except (LookupError, ValueError, AttributeError):
            common = common[:-1]
        else:
            return common
    raise InvalidInput("the selection names no items of the Walk; select again")


def _items_at(walk: Walk, place: Place) -> tuple[Item, ...]:
    if place[:1] != ("body",):
        raise LookupError(place)
    items, path = walk.body, list(place[1:])
    while path:
        item, key = items[int(path.pop(0))], path.pop(0)
        if key == "cases" and isinstance(item, Choose):
            items = item.cases[path.pop(0)]
        elif key in _LISTS:
            items = getattr(item, key)
        else:
            raise LookupError(key)
    return items


def _normal(walk: Walk, place: Place) -> Place:
    """A place with the word that the short form of a sequence leaves out."""
    found: list[str] = []
    for part in place:
        if part.isdigit() and found and found[-1].isdigit() and found[-2:-1] != ["cases"]:
            found.append("sequence")
        found.append(part)
    return tuple(found)


def _loops_above(walk: Walk, parent: Place) -> int:
    """The number of loops around a list."""
    count, items, path = 0, walk.body, list(parent[1:])
    while path:
        item, key = items[int(path.pop(0))], path.pop(0)
        count += isinstance(item, Loop | Map)
        items = item.cases[path.pop(0)] if key == "cases" and isinstance(item, Choose) else getattr(item, key)
    return count


def _place(entry: Entry) -> Place:
    return segments(entry.pointer)


def _sides(
    graph: Graph, walk: str, parent: Place, chosen: list[int], count: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The items that stay before the section and those that stay after it. Those between its items may move only past
    items that they share nothing with."""
    first, last = chosen[0], chosen[-1]
    before, after = list(range(first)), list(range(last + 1, count))
    between = [i for i in range(first, last) if i not in chosen]
    if not between:
        return tuple(before), tuple(after)
    if parent[-1] == "parallel":
        return (*before, *between), tuple(after)
    linked = _links(graph, walk, parent)
    moved: list[int] = []
    for one in between:
        if not any((one, other) in linked for other in (*(c for c in chosen if c < one), *moved)):
            before.append(one)
        elif not any((one, other) in linked for other in chosen if other > one):
            moved.append(one)
        else:
            raise InvalidInput("what is between the selected nodes depends on them; select it too")
    return tuple(before), (*moved, *after)


def _links(graph: Graph, walk: str, parent: Place) -> set[tuple[int, int]]:
    """Pairs of items of a list that exchange values or share a state, in both orders."""
    facts, depth = structure(graph.walks[walk], walk), len(parent)

    def index(entry: Entry | None) -> int | None:
        place = _place(entry) if entry is not None else ()
        return int(place[depth]) if place[:depth] == parent else None

    pairs = {(index(route.source.entry), index(route.target.entry)) for route in facts.taken}
    keepers: dict[str, set[int]] = {}
    for entry in facts.entries:
        at = index(entry)
        for state in _states(graph.nodes, entry) if at is not None else ():
            keepers.setdefault(state, set()).add(at)  # type: ignore[arg-type]
    pairs |= {(a, b) for group in keepers.values() for a in group for b in group}
    found = {(a, b) for a, b in pairs if a is not None and b is not None and a != b}
    return found | {(b, a) for a, b in found}


def _states(nodes: Mapping[str, object], entry: Entry) -> Iterable[str]:
    if isinstance(entry.item, Fork):
        return (entry.item.fork, entry.item.into)
    states: Mapping[str, str] = getattr(nodes.get(entry.node), "states", {})
    return states.values()
