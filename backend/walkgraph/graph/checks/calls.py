"""Nodes that call tasks: calls in a circle, calls that are too deep, and tasks that wait for a person."""

from collections.abc import Iterable

from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.checks.called import MOST_DEEP
from walkgraph.graph.checks.context import Context


def check_calls(context: Context) -> None:
    for name, node in context.graph.nodes.items():
        component = context.catalogue.get(node.component)
        if component is None or not component.task:
            continue
        path = ("nodes", name, "component")
        if component.asks:
            message = f"`{component.name}` waits for a person, and who calls it would hold its place for so long"
            context.add("call_asks", path, f"{message}; ask in this graph's own task")
        walks = {walk for walk, _ in context.uses_of.get(name, ())}
        callers = {f"{context.graph.name}/{task}" for walk in walks for task in context.tasks_of.get(walk, ())}
        reached = _reached(context.catalogue, (component.name,))
        if again := sorted(callers & reached):
            message = f"`{component.name}` leads back to `{again[0]}`, which calls it; tasks can't call each other"
            context.add("call_cycle", path, f"{message} in a circle")
        elif _depth(context.catalogue, component.name) > MOST_DEEP:
            message = f"`{component.name}` calls tasks that call tasks, more than {MOST_DEEP} deep below this graph"
            context.add("call_too_deep", path, f"{message}; call the last ones from fewer tasks")


def _reached(catalogue: Catalogue, first: Iterable[str]) -> set[str]:
    """These tasks and all that they lead to."""
    found: set[str] = set()
    left = [*first]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            component = catalogue.get(name)
            left += component.calls if component else ()
    return found


def _depth(catalogue: Catalogue, name: str) -> int:
    """The number of calls one below the other that begin with a call of this task; MOST_DEEP + 1 for more."""
    level, depth = {name}, 0
    while level and depth <= MOST_DEEP:
        depth += 1
        level = {call for one in level if (found := catalogue.get(one)) for call in found.calls}
    return depth
