"""Types along an edge: how loops and streams change a shape, and which sizes have to be equal."""

from walkgraph.graph.ports import PortType, accepts
from walkgraph.graph.structure import Route

Size = str | int


def passed(source: PortType, route: Route, owner: str) -> PortType:
    """The type at the far end of a route. With an owner, symbols become `owner.symbol`, as each use has its own sizes.

    Stacking adds a first axis, slicing removes it, and a stream's chunk joins items along it. Raises ValueError if
    there is no axis to slice.
    """
    if source.shape is None:
        return source
    shape: tuple[Size, ...] = tuple(scoped(size, owner) for size in source.shape)
    if route.source.kind == "stream" and shape:
        shape = (f"{route.index}:chunk", *shape[1:])
        return PortType(source.modality, source.dtype, shape)
    if route.leave == "collect":
        stacked = (f"{route.index}:stack",) if len(route.left) == 1 else ("...",)
        shape = (*stacked, *shape)
    if route.enter == "each" and route.source.kind != "stream":
        if not shape:
            raise ValueError(
                f"`{route.edge.from_}` gives one value without axes; remove `each`, or stack with `collect`"
            )
        shape = shape if shape[0] == "..." else shape[1:]
    return PortType(source.modality, source.dtype, shape)


def scoped(size: Size, owner: str) -> Size:
    return size if isinstance(size, int) or size == "..." or not owner else f"{owner}.{size}"


def choosable(found: PortType) -> str | None:
    """`flag`, `integer`, `text`, or `scalar` for a number of unknown kind; None for what a choice can't take."""
    if found.shape not in (None, ()):
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
