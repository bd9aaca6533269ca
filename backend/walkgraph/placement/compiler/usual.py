"""The likeliest runs of a Walk, which determine sizes: the parameters of its tasks at their defaults."""

from collections.abc import Sequence

from msgspec.structs import replace

from walkgraph.graph.document import Graph, Task
from walkgraph.graph.language.expressions import ExpressionError, evaluate, parse
from walkgraph.graph.steps import steps_of
from walkgraph.placement.tables import LoopPlan, NodePlan, Scalar, UsePlan, WalkPlan

_MOST = 4
"""The most kinds of runs of a Walk, and counts of a loop."""


def with_usual(graph: Graph, nodes: Sequence[NodePlan], walk: WalkPlan) -> WalkPlan:
    """The Walk with `usual` filled in, its loops' too."""
    texts = [loop.times for loop in walk.loops if loop.times] + [state.width for state in graph.states.values()]
    sizes = frozenset[str]().union(*(_names(text) for text in texts))
    # A component's shapes may depend only on its integers and strings.
    given = sizes.union(*(_names(text) for use in walk.uses if use.loops for text in _expressions(nodes, use)))
    found: list[dict[str, Scalar]] = []
    for task in graph.tasks.values():
        asked = {n: v for n, v in _defaults(task, given).items() if n in sizes or not isinstance(v, float)}
        if asked not in found and any(step.step.walk == walk.name for step in steps_of(task)):
            found.append(asked)
    kinds = found[:_MOST]
    loops = tuple(replace(loop, usual=_counts(loop, found)) for loop in walk.loops)
    return replace(walk, usual=tuple(kinds), loops=loops)


def _defaults(task: Task, names: frozenset[str]) -> dict[str, Scalar]:
    return {name: p.default for name, p in task.params.items() if name in names and p.default is not None}


def _expressions(nodes: Sequence[NodePlan], use: UsePlan) -> list[str]:
    values = nodes[use.node].params.values() if use.op == "call" else ()
    return [value[1:] for value in values if isinstance(value, str) and value.startswith("=")]


def _names(text: str) -> frozenset[str]:
    try:
        return parse(text).names
    except ExpressionError:  # a check reports it at the expression
        return frozenset()


def _counts(loop: LoopPlan, kinds: Sequence[dict[str, Scalar]]) -> tuple[int, ...]:
    """Distinct counts in the order of the tasks; none for a loop whose count depends on something else."""
    found: dict[int, None] = {}
    for params in kinds:
        try:
            count = int(evaluate(parse(loop.times), params)) if loop.times else 0
        except ExpressionError:
            continue
        if count > 0:
            found[count] = None
    return tuple(found)[:_MOST]
