"""Types along an edge: how loops and streams change a shape, and which sizes have to be equal."""

from dataclasses import replace

from walkgraph.graph.ports import MEDIA, PortType, accepts
from walkgraph.graph.structure import Route

Size = str | int


def passed(source: PortType, route: Route, owner: str) -> PortType:
    """The type at the far end of a route. With an owner, symbols become `owner.symbol`, as each use has its own sizes.

    Collecting may add a first axis or make a list, slicing undoes either, and a stream's chunk joins items along the
    first axis. Raises ValueError if that can't be done to values of this type.
    """
    shape = None if source.shape is None else tuple(scoped(size, owner) for size in source.shape)
    found = replace(source, shape=shape)
    if route.source.kind == "stream":
        return replace(found, shape=(f"{route.index}:chunk", *shape[1:])) if shape else found
    if route.leave == "collect":
        found = _collected(found, route)
    return _sliced(found, route) if route.enter == "each" else found


def _collected(found: PortType, route: Route) -> PortType:
    source, how = route.edge.from_, route.edge.collect
    if found.many:
        raise ValueError(f"`{source}` gives lists, which can't be collected; collect single values")
    if how == "list" or (how is True and found.modality in MEDIA):
        return replace(found, many=True)
    if found.modality in MEDIA:
        raise ValueError(f"values of `{found.modality}` can't be joined; collect a `list`")
    if found.shape is None:
        return found
    # Of several loops, only the values of all together are known to be one after the other.
    first: tuple[Size, ...] = (f"{route.index}:{how}",) if len(route.left) == 1 or how == "join" else ("...",)
    return replace(found, shape=(*first, *(found.shape[1:] if how == "join" else found.shape)))


def _sliced(found: PortType, route: Route) -> PortType:
    if found.many:
        return replace(found, many=False)
    if found.modality in MEDIA or found.modality == "text":
        raise ValueError(f"`{route.edge.from_}` gives one `{found.modality}`; remove `each`, or collect a `list`")
    if found.shape is None:
        return found
    if not found.shape:
        raise ValueError(f"`{route.edge.from_}` gives one value without axes; remove `each`, or stack with `collect`")
    return found if found.shape[0] == "..." else replace(found, shape=found.shape[1:])


def scoped(size: Size, owner: str) -> Size:
    return size if isinstance(size, int) or size == "..." or not owner else f"{owner}.{size}"


def choosable(found: PortType) -> str | None:
    """`flag`, `integer`, `text`, or `scalar` for a number of unknown kind; None for what a choice can't take."""
    if found.many or found.shape not in (None, ()):
        return None
    match found.modality, found.dtype:
        case ("flag", _) | ("scalar", "bool"):
            return "flag"
        case "scalar", "int":
            return "integer"
        case "scalar", None:
            return "scalar"
        case "text", _:
            return "text"
        case _:
            return None


def mappable(found: PortType) -> bool:
    """True if a value has items for a map: it is a list, or a tensor with an axis."""
    if found.many:
        return True
    return found.modality not in (*MEDIA, "text", "flag") and found.shape != () and choosable(found) is None


class Unifier:
    """Sizes of one Walk: classes of symbols that edges make equal, each with its number where one is known."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}
        self._number: dict[str, int] = {}

    def fault(self, target: PortType, owner: str, given: PortType) -> str | None:
        """The reason that a value of type `given` (its symbols scoped) can't enter a port of use `owner`; None if it
        can."""
        fault = accepts(target, given)
        if fault:
            return fault
        if target.shape is None or given.shape is None or "..." in target.shape or "..." in given.shape:
            return None
        for want, have in zip(target.shape, given.shape, strict=True):
            clash = self._equal(scoped(want, owner), have)
            if clash:
                return f"size {clash[1]} does not fit {clash[0]} (`{want}`)"
        return None

    def _equal(self, a: Size, b: Size) -> tuple[int, int] | None:
        """Make two sizes equal; returns the two numbers if they clash."""
        x = a if isinstance(a, int) else self._number.get(self._root(a))
        y = b if isinstance(b, int) else self._number.get(self._root(b))
        if x is not None and y is not None:
            return (x, y) if x != y else None
        if isinstance(a, str) and isinstance(b, str):
            self._parent[self._root(b)] = self._root(a)
        number = x if x is not None else y
        symbol = a if isinstance(a, str) else b
        if number is not None and isinstance(symbol, str):
            self._number[self._root(symbol)] = number
        return None

    def _root(self, symbol: str) -> str:
        parent = self._parent
        while (above := parent.get(symbol, symbol)) != symbol:
            # Path halving keeps the next search short.
            parent[symbol] = parent.get(above, above)
            symbol = parent[symbol]
        return symbol
