"""One node that stands for a blueprint: the names of its copy, and the values of its parameters.

A copy's node `b` is called `a__b` in the flat graph, where `a` is the node that stands for the blueprint; so are its
states. A copy's uses, loops and merges are named after the use of that node in the same way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from walkgraph.graph.document import Blueprint, Item, Node, Walk
from walkgraph.graph.language.expressions import ExpressionError, parse
from walkgraph.graph.language.syntax import Const, LoopIndex, Param, Syntax, Unary, spell, with_leaves
from walkgraph.graph.structure import WalkStructure, structure

JOIN = "__"
_STAND_INS = {"integer": 1, "number": 1.0, "boolean": False, "string": ""}
"""Values for parameters that a node leaves out though it must set them."""


class Unsuited(ValueError):
    """A value that can't stand where a blueprint's expression reads it."""


class TooLarge(Exception):
    """The copies exceed a limit of documents."""


class Naming:
    """The names of what is in copies."""

    def joined(self, outer: str, inner: str) -> str:
        """The flat name of what is called `inner` in the copy of `outer`."""
        return f"{outer}{JOIN}{inner}"

    def loop(self, outer: str, inner: str) -> str:
        """The same for a loop: expressions name it, so it has no `-`."""
        return self.joined(outer, inner).replace("-", "_")


class OwnNaming(Naming):
    """Keeps the names inside wherever they are free."""

    def __init__(self, taken: set[str]) -> None:
        self._taken, self._found = taken, dict[tuple[str, str], str]()

    def joined(self, outer: str, inner: str) -> str:
        if (outer, inner) not in self._found:
            name, number = inner, 2
            while name in self._taken:
                name, number = f"{inner[:60]}_{number}", number + 1
            self._taken.add(name)
            self._found[outer, inner] = name
        return self._found[outer, inner]

    def loop(self, outer: str, inner: str) -> str:
        return self.joined(outer, f"{inner}")


NAMING = Naming()


def nodes_around(name: str) -> tuple[str, ...]:
    """The names of the nodes that may stand for a blueprint around the one of this flat name, outermost first."""
    parts = name.split(JOIN)
    return tuple(JOIN.join(parts[:count]) for count in range(1, len(parts)))


@dataclass(frozen=True)
class Box:
    """A node that stands for a blueprint."""

    name: str
    node: Node
    blueprint: Blueprint
    key: str
    """The blueprint's name."""
    naming: Naming = NAMING
    around: str | None = None
    """The loop that `@loop.index` means where the node is used; None if it is used in no loop, or in several."""
    values: Mapping[str, bool | int | float | str] = field(default_factory=dict[str, bool | int | float | str])

    @cached_property
    def inside(self) -> WalkStructure:
        return inside(self.blueprint)

    @property
    def given(self) -> Mapping[str, bool | int | float | str]:
        """Parameter -> the node's value, its default, or a stand-in."""
        declared = self.blueprint.params.items()
        defaults = {key: _STAND_INS[p.type] if p.default is None else p.default for key, p in declared}
        return defaults | {key: value for key, value in self.node.params.items() if key in defaults}

    def joined(self, name: str) -> str:
        """The flat name of a node or a state."""
        return self.naming.joined(self.name, name)

    def state(self, name: str) -> str:
        bound = self.node.states.get(name)
        return bound if bound is not None else self.joined(name)

    def value(self, value: bool | int | float | str, loops: Mapping[str, str]) -> bool | int | float | str:
        """The value of an inner node's parameter. Raises Unsuited or ExpressionError."""
        if not isinstance(value, str) or not value.startswith("="):
            return value
        text = value[1:].strip()
        if text in self.given:
            return self._outside(self.given[text])
        return f"={self.expression(text, loops)}"

    def expression(self, text: str, loops: Mapping[str, str]) -> str:
        """An expression of the blueprint with the node's values for its parameters; `loops` renames the blueprint's
        loops. Raises Unsuited or ExpressionError."""
        expr = parse(text)
        if not expr.names & self.given.keys() and not expr.loops & loops.keys():
            return text

        def changed(leaf: Syntax) -> Syntax:
            if isinstance(leaf, Param) and leaf.name in self.given:
                return self._tree(leaf)
            if isinstance(leaf, LoopIndex) and leaf.loop in loops:
                return replace(leaf, loop=loops[leaf.loop])
            return leaf

        return spell(with_leaves(expr.tree, changed))

    def _tree(self, leaf: Param) -> Syntax:
        value = self._outside(self.given[leaf.name])
        if isinstance(value, str) and value.startswith("="):
            return parse(value[1:].strip()).tree
        if isinstance(value, str):
            if "'" in value or "\n" in value:
                raise Unsuited(f"`{leaf.name}` is part of an expression inside, where a text has no quote and one line")
            return Const("str", value, leaf.at)
        if not isinstance(value, bool) and value < 0:
            return Unary("-", Const(type(value).__name__, -value, leaf.at), leaf.at)
        return Const(type(value).__name__, value, leaf.at)

    def _outside(self, value: bool | int | float | str) -> bool | int | float | str:
        """A node's value, with the loop that it means by `@loop.index` named."""
        if not isinstance(value, str) or not value.startswith("=") or self.around is None:
            return value
        try:
            expr = parse(value[1:].strip())
        except ExpressionError:
            return value  # reported where it is written
        if "index" not in expr.loops:
            return value
        around = self.around

        def named(leaf: Syntax) -> Syntax:
            return replace(leaf, loop=around) if isinstance(leaf, LoopIndex) and leaf.loop == "index" else leaf

        return f"={spell(with_leaves(expr.tree, named))}"


def inside(blueprint: Blueprint) -> WalkStructure:
    """The facts of a blueprint, as those of a Walk whose results are its outputs."""
    return structure(as_walk(blueprint))


def as_walk(blueprint: Blueprint) -> Walk:
    return Walk.model_construct(
        label="",
        inputs=blueprint.inputs,
        body=blueprint.body,
        merges=blueprint.merges,
        edges=blueprint.edges,
        results=blueprint.outputs,
    )


def items_in(items: tuple[Item, ...]) -> int:
    """The number of items in a body, those inside others included."""
    count, left = 0, list(items)
    while left:
        item = left.pop()
        count += 1
        for key in ("parallel", "sequence", "body", "otherwise"):
            left.extend(getattr(item, key, ()))
        for inner in getattr(item, "cases", {}).values():
            left.extend(inner)
    return count
