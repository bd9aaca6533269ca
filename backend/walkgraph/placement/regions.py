"""Which loops run on the device as a whole, decided when the plan is made, each with the reason in a sentence.

A *resident* loop is handed to the engine of its rank, which iterates it without asking the worker. It must therefore be
the innermost one, with all its uses on one rank and every operator able to `step`; nothing inside may be skipped, wait
for a stream, or start a state anew in every iteration. Any other loop is *stepped*: the worker calls use by use.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from walkgraph.graph.expressions import ExpressionError, parse
from walkgraph.placement.context import Context
from walkgraph.placement.tables import EdgePlan, LoopPlan, NodePlan, UsePlan, WalkPlan

INDEX = "index"
"""`@loop.index`: the innermost loop's."""


def settle(context: Context, nodes: Sequence[NodePlan], walk: WalkPlan, *, resident: bool) -> WalkPlan:
    """The Walk with every loop told how it runs. `resident` false: all are stepped."""
    loops: list[LoopPlan] = []
    for loop in walk.loops:
        inside = _Inside(context, nodes, walk, loop, tuple(use for use in walk.uses if loop.index in use.loops))
        against = _against(inside) if resident else "this plan steps every loop"
        why = f"stepped: {against}" if against else _praise(inside)
        loops.append(replace(loop, resident=not against, why=why))
    return replace(walk, loops=tuple(loops))


class _Inside(NamedTuple):
    """A loop and what is in it."""

    context: Context
    nodes: Sequence[NodePlan]
    walk: WalkPlan
    loop: LoopPlan
    uses: tuple[UsePlan, ...]

    def node(self, use: UsePlan) -> NodePlan:
        return self.nodes[use.node]

    def holds(self, index: int) -> bool:
        return index >= 0 and self.loop.index in self.walk.uses[index].loops

    @property
    def outer(self) -> int:
        """How many loops are around it."""
        return len(self.uses[0].loops) - 1


def _praise(inside: _Inside) -> str:
    loop = inside.loop
    names = _listed(dict.fromkeys(use.name for use in inside.uses))
    how = "static: several iterations a launch"
    if loop.until is not None:
        how = f"one iteration a launch because `{inside.walk.uses[loop.until[0]].name}.{loop.until[1]}` ends it"
    return f"`{loop.name}` runs on the device: {names} on rank {loop.ranks[0]}, {how}"


def _against(inside: _Inside) -> str:
    """The first reason to step it; empty where there is none."""
    checks = (_shape, _members, _conditions, _endings, _states, _streams, _params, _ports)
    return next((reason for check in checks if (reason := check(inside))), "")


def _shape(inside: _Inside) -> str:
    loop = inside.loop
    if loop.stream is not None:
        return f"stream `{inside.context.assignment.graph.streams[loop.stream].name}` feeds and ends it"
    if not loop.times:
        return "a stream feeds and ends it"
    inner = [other.name for other in inside.walk.loops if other.parent == loop.index]
    if inner:
        return f"{_listed(inner)} is inside it" if len(inner) == 1 else f"{_listed(inner)} are inside it"
    if not inside.uses:
        return "nothing is inside it"
    if len(loop.ranks) > 1:
        *most, last = map(str, loop.ranks)
        return f"its uses lie on ranks {', '.join(most)} and {last}"
    return ""


def _members(inside: _Inside) -> str:
    for use in inside.uses:
        if use.op != "call":
            return f"`{use.name}` is inside it"
        if inside.node(use).host:
            return f"`{use.name}` runs on the host"
        if not inside.node(use).resident:
            return f"`{use.name}` can't be iterated on the device"
    return ""


def _conditions(inside: _Inside) -> str:
    """A condition on the whole loop skips it as a whole; one inside chooses anew at every iteration."""
    common = inside.uses[0].when
    for use in inside.uses:
        if use.when != common or any(_reads(text, inside.loop.name) for text in use.when):
            own = use if use.when else inside.uses[0]
            return f"`{own.name}` has a condition"
    return ""


def _endings(inside: _Inside) -> str:
    until = inside.loop.until
    if until is not None and not inside.holds(until[0]):
        return f"`{inside.walk.uses[until[0]].name}.{until[1]}`, which ends it, is outside"
    for other in inside.walk.loops:
        if other.index != inside.loop.index and other.until is not None and inside.holds(other.until[0]):
            return f"loop `{other.name}` is ended from inside it"
    return ""


def _states(inside: _Inside) -> str:
    names = {index: name for name, index in inside.context.state_index.items()}
    for use in inside.uses:
        for state in inside.node(use).states.values():
            if inside.walk.state_scopes.get(state, 0) > inside.outer:
                return f"state `{names[state]}` starts anew in every iteration"
    return ""


def _streams(inside: _Inside) -> str:
    feeding: set[int] = set()
    for edge in inside.walk.edges:
        if edge.source.kind == "stream" and inside.holds(edge.target.use):
            return f"stream `{edge.source.port}` feeds it"
        if edge.target.kind == "stream" and inside.holds(edge.source.use):
            feeding.add(edge.source.use)
    return "several of its uses feed streams, each at its own pace" if len(feeding) > 1 else ""


def _params(inside: _Inside) -> str:
    for use in inside.uses:
        node = inside.node(use)
        texts = {name: str(value)[1:] for name, value in node.params.items() if str(value).startswith("=")}
        for name, text in texts.items():
            if _reads(text, inside.loop.name) and not inside.context.numeric(node.component, name):
                return f"parameter `{name}` of `{use.name}` changes with its index and is no number"
    return ""


def _ports(inside: _Inside) -> str:
    ports: dict[tuple[int, str], list[EdgePlan]] = {}
    for edge in inside.walk.edges:
        if edge.target.kind == "use" and inside.holds(edge.target.use):
            ports.setdefault((edge.target.use, edge.target.port), []).append(edge)
    for (use, port), edges in ports.items():
        name = f"`{inside.walk.uses[use].name}.{port}`"
        outside = [edge for edge in edges if edge.common <= inside.outer]
        if any(edge.carried for edge in outside) and any(_plain_inside(inside, edge) for edge in edges):
            return f"{name} is fed from inside it and from an iteration of the loop around it"
        if len({edge.enter_each and edge.common == inside.outer for edge in outside}) > 1:
            return f"{name} is fed slice by slice and whole"
    return ""


def _plain_inside(inside: _Inside, edge: EdgePlan) -> bool:
    return edge.common > inside.outer and not edge.carried


def _reads(text: str, loop: str) -> bool:
    try:
        return not parse(text).loops.isdisjoint((INDEX, loop))
    except ExpressionError:  # a check reports it where it stands
        return True


def _listed(names: Iterable[str]) -> str:
    *most, last = (f"`{name}`" for name in names)
    return f"{', '.join(most)} and {last}" if most else last
