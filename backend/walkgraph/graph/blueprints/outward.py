"""The expressions of a selection, closed: what they read from outside becomes parameters of the blueprint."""

from collections.abc import Set

from walkgraph.errors import InvalidInput
from walkgraph.graph.document import Graph, Literals, Node, TaskParam
from walkgraph.graph.language.expressions import ExpressionError, parse
from walkgraph.graph.language.syntax import LoopIndex, Param, Syntax, spell, with_leaves
from walkgraph.graph.steps import steps_of

_INDEX = TaskParam(type="integer", min=0, description="The index of a loop outside.")
_UNKNOWN = TaskParam(type="number")


class Closing:
    def __init__(self, graph: Graph, walk: str, around: tuple[str, ...], inside: Set[str]) -> None:
        """`around`: the loops around the selection; `inside`: those in it."""
        self._around, self._inside = around, inside
        tasks = [task for task in graph.tasks.values() if any(at.step.walk == walk for at in steps_of(task))]
        self._known: dict[str, TaskParam] = {}
        for task in (*tasks, *graph.tasks.values()):
            for name, param in task.params.items():
                self._known.setdefault(name, param)
        self.params: dict[str, TaskParam] = {}
        self.given: dict[str, Literals] = {}
        """Parameter -> the value that the node gives it."""

    def node(self, node: Node, looped: Set[bool]) -> Node:
        """A node with its expressions closed. `looped`: whether loops inside are around its uses."""
        params = {key: self._value(value, looped) for key, value in node.params.items()}
        return node.model_copy(update={"params": params})

    def _value(self, value: Literals, looped: Set[bool]) -> Literals:
        if not isinstance(value, str) or not value.startswith("="):
            return value
        text = value[1:].strip()
        try:
            innermost = "index" in parse(text).loops
        except ExpressionError:
            return value  # reported at the expression itself
        if innermost and len(looped) > 1:
            raise InvalidInput(f"`{text}` means different loops inside and outside; name the loop in the expression")
        return f"={self.expression(text, ('',) if True in looped else ())}"

    def expression(self, text: str, loops: tuple[str, ...] | None) -> str:
        """`loops`: those inside that are around it; None for what no loop is around."""
        try:
            expr = parse(text)
        except ExpressionError:
            return text  # reported at the expression itself

        def changed(leaf: Syntax) -> Syntax:
            if isinstance(leaf, Param) and leaf.name != "seed" and not leaf.name.startswith("@"):
                self._param(leaf.name)
            elif isinstance(leaf, LoopIndex) and loops is not None and leaf.loop not in self._inside:
                loop = self._around[-1] if leaf.loop == "index" and self._around else leaf.loop
                if not (leaf.loop == "index" and (loops or not self._around)):
                    return Param(self._index(loop), leaf.at)
            return leaf

        tree = with_leaves(expr.tree, changed)
        return text if tree == expr.tree else spell(tree)

    def _param(self, name: str) -> None:
        self.params.setdefault(name, self._known.get(name, _UNKNOWN))
        self.given.setdefault(name, f"={name}")

    def _index(self, loop: str) -> str:
        value, name = f"=@loop.{loop}", f"{loop.replace('-', '_')}_index"
        while self.given.get(name, value) != value or (name in self._known and name not in self.given):
            name = f"{name}_"
        self.params[name], self.given[name] = _INDEX, value
        return name
