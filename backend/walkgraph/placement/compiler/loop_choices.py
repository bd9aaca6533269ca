"""Decides which choices inside a loop the device makes. It computes all branches in every iteration and selects their
values, so that the loop needn't be stepped. That pays, and does what taking one branch does, if the branches are small
steps that keep no states, and what they give meets in merges of one type and shape."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from walkgraph.graph.catalogue import Component
from walkgraph.graph.checks.types import choosable
from walkgraph.graph.ports import PortType
from walkgraph.placement.compiler.context import Context
from walkgraph.placement.compiler.loop_contents import LoopContents, common_conditions
from walkgraph.placement.tables import ChoicePlan, EdgePlan, LoopPlan, NodePlan, UsePlan, WalkPlan

_SMALL = "launch"
"""The cost class of steps that take about as long as their launch."""


class LoopChoice(NamedTuple):
    context: Context
    nodes: Sequence[NodePlan]
    walk: WalkPlan
    loop: LoopPlan
    plan: ChoicePlan

    @property
    def head(self) -> UsePlan:
        return self.walk.uses[self.plan.use]

    @property
    def inside(self) -> list[UsePlan]:
        """The uses in its branches."""
        return [use for use in self.walk.uses if any(number == self.plan.index for number, _ in use.cases)]

    @property
    def value(self) -> EdgePlan | None:
        """The edge with the value that chooses, if that is made in the same iteration."""
        found = [edge for edge in self.walk.edges if edge.target.kind == "use" and edge.target.use == self.plan.use]
        if len(found) != 1 or found[0].source.kind != "use" or found[0].carried:
            return None
        source = self.walk.uses[found[0].source.use]
        alike = (source.op, source.loops, source.cases) == ("call", self.head.loops, self.head.cases)
        return found[0] if alike and source.rank == self.head.rank else None

    @property
    def kind(self) -> str | None:
        found = self.value and self.type_of(self.walk.uses[self.value.source.use], self.value.source.port)
        return choosable(found) if found else None

    @property
    def branches(self) -> int:
        """The number of branches that values can take."""
        flag = self.kind == "flag" and len(self.plan.cases) == 2
        return len(self.plan.cases) + (not flag)

    def component(self, use: UsePlan) -> Component | None:
        return self.context.catalogue.get(self.nodes[use.node].component)

    def type_of(self, use: UsePlan, port: str) -> PortType | None:
        component = self.component(use)
        found = component.output(port) if component is not None else None
        return found.type if found is not None else None


def choices_made(context: Context, nodes: Sequence[NodePlan], walk: WalkPlan, loop: LoopPlan) -> tuple[ChoicePlan, ...]:
    """The choices inside a loop that its device makes, if it runs there."""
    return tuple(choice.plan for choice in _choices_in(context, nodes, walk, loop) if not _against(choice))


def against_choices(inside: LoopContents) -> str:
    """The reason that the worker must take the branches of a choice inside a loop; empty if it need not."""
    for choice in _choices_in(inside.context, inside.nodes, inside.walk, inside.loop):
        why = _against(choice)
        if why:
            return f"a choice by `{choice.plan.by}` takes branches inside it, and {why}"
        needed = [choice.value.source.use] if choice.value else []
        needed += [use.index for use in choice.inside]
        lacking = next((use for use in needed if not inside.holds(use)), None)
        if lacking is not None:
            who = f"{inside.name(lacking)} {inside.followers[lacking]}"
            return f"a choice by `{choice.plan.by}` takes branches inside it, and {who}"
    return ""


def computed(inside: LoopContents) -> str:
    """Says, as the end of a sentence, that a loop on the device computes all branches of its choices."""
    return "".join(
        f"; all branches of the choice by `{choice.by}` are computed, as they are small" for choice in inside.choices
    )


def _against(choice: LoopChoice) -> str:
    """The reason that the device can't make a choice, as the end of a sentence about it; empty if it can."""
    return next(chain(_value(choice), _members(choice), _outputs(choice), _merges(choice)), "")


def _choices_in(context: Context, nodes: Sequence[NodePlan], walk: WalkPlan, loop: LoopPlan) -> Iterator[LoopChoice]:
    for plan in walk.choices:
        if loop.index in walk.uses[plan.use].loops:
            yield LoopChoice(context, nodes, walk, loop, plan)


def _value(choice: LoopChoice) -> Iterator[str]:
    head, loop = choice.head, choice.loop
    if head.loops[-1] != loop.index:
        yield f"it is in `{choice.walk.loops[head.loops[-1]].name}` inside it"
    elif choice.value is None:
        yield "its value isn't made on the same rank in the same iteration"
    elif choice.kind not in ("flag", "integer"):
        yield "its value is no flag and no whole number"


def _members(choice: LoopChoice) -> Iterator[str]:
    head, walk = choice.head, choice.walk
    common = common_conditions(walk, [use for use in walk.uses if choice.loop.index in use.loops], choice.loop)
    for use in choice.inside:
        if use.op == "choose" or len(use.cases) > len(head.cases) + 1:
            yield "another choice is in a branch of it"
        elif use.op != "call":
            yield f"`{use.name}` is no call"
        elif use.loops != head.loops:
            yield f"`{use.name}` is in a loop inside it"
        elif use.when != common or head.when != common:
            yield "it has conditions"
        elif use.rank != head.rank:
            yield "its uses lie on several ranks"
        else:
            yield from _unfit(choice.nodes[use.node], use)


def _unfit(node: NodePlan, use: UsePlan) -> Iterator[str]:
    if node.host or not node.resident:
        yield f"`{use.name}` can't be iterated on the device"
    if node.states:
        yield f"`{use.name}` keeps a state"
    if node.cost != _SMALL:
        yield f"`{use.name}` is too much work to be done in vain"


def _outputs(choice: LoopChoice) -> Iterator[str]:
    """Values of a branch that are read elsewhere, other than through a merge."""
    cases = {use.index: use.cases for use in choice.inside}
    for edge in choice.walk.edges:
        if edge.source.kind != "use" or edge.source.use not in cases or edge.merged:
            continue
        if edge.target.kind != "use" or cases.get(edge.target.use) != cases[edge.source.use] or edge.carried:
            name = choice.walk.uses[edge.source.use].name
            yield f"`{name}.{edge.source.port}` is read where it may be absent"
    if any(use in cases for loop in choice.walk.loops for use, _ in loop.endings):
        yield "a branch of it ends a loop"


def _merges(choice: LoopChoice) -> Iterator[str]:
    depth = len(choice.head.loops)
    merges: dict[str, dict[int, EdgePlan]] = {}
    for edge in choice.walk.edges:
        use = choice.walk.uses[edge.source.use] if edge.merged and edge.source.kind == "use" else None
        branch = next((branch for number, branch in use.cases if number == choice.plan.index), None) if use else None
        if branch is None:
            continue
        if edge.target.kind != "use" or edge.common != depth or edge.leave != "none":
            yield f"`@merge.{edge.merged}` leaves it"
        merges.setdefault(edge.merged, {})[branch] = edge
    for name, edges in merges.items():
        if len(edges) < choice.branches:
            yield f"not every branch has a value for `@merge.{name}`"
        kinds = {_kind(choice, edge) for edge in edges.values()}
        if len(kinds) > 1 or None in kinds:
            yield f"the values of `@merge.{name}` may differ in type or shape"


def _kind(choice: LoopChoice, edge: EdgePlan) -> tuple[object, ...] | None:
    """Equal for values of one type and shape; None for an unknown one."""
    use = choice.walk.uses[edge.source.use]
    found = choice.type_of(use, edge.source.port)
    if found is None or found.many or found.dtype is None or found.shape is None:
        return None
    sizes = [size if isinstance(size, int) else _size(choice, use, size) for size in found.shape]
    return None if None in sizes else (found.modality, found.dtype, *sizes)


def _size(choice: LoopChoice, use: UsePlan, symbol: str) -> tuple[object, ...] | None:
    """A size is that of an input with the same symbol: equal for uses that are fed from the same places."""
    component = choice.component(use)
    for port in component.inputs if component is not None else ():
        if port.type.shape is None or symbol not in port.type.shape:
            continue
        edges = [
            e
            for e in choice.walk.edges
            if (e.target.kind, e.target.use, e.target.port) == ("use", use.index, port.name)
        ]
        fed = frozenset((edge.source, edge.carried, edge.enter_each) for edge in edges)
        if fed:
            return fed, port.type.shape.index(symbol), len(port.type.shape)
    return None
