"""Decides if a value is certain to be there, given the conditions and choices around its source and its target."""

from collections.abc import Sequence

from walkgraph.graph.checks.context import Context
from walkgraph.graph.checks.types import choosable
from walkgraph.graph.language.expressions import parse
from walkgraph.graph.language.syntax import ExpressionError
from walkgraph.graph.structure import Branch, ChoiceAt, Entry, Route, WalkStructure


def can_be_absent(
    context: Context,
    facts: WalkStructure,
    routes: Sequence[Route],
    whens: Sequence[str],
    cases: Sequence[Branch],
) -> bool:
    """True if the value of these routes, one edge's or the ports of one merge, may be absent at a target.

    `whens`, `cases`: the conditions and branches around the target.
    """
    paths: list[tuple[Branch, ...]] = []
    for route in routes:
        if route.source.kind == "stream" and route.edge.each:
            chunks = next((s.chunks for s in context.graph.streams if s.name == route.source.name), None)
            return bool(getattr(chunks, "continue_after_done", False))
        source = route.source.entry
        if source is None:
            return False
        elsewhere = route.carried or bool(route.left) or bool(route.entered)
        if any(when not in whens or (elsewhere and _varies(when)) for when in source.whens):
            return True
        paths.append(source.cases[_shared(facts, route, cases) :])
    return not _always_taken(context, facts, paths)


def can_be_skipped(
    context: Context, facts: WalkStructure, uses: Sequence[Entry], whens: Sequence[str], cases: Sequence[Branch]
) -> bool:
    """True if it may be that none of these uses is called in an iteration of a loop. `whens`, `cases`: those around the
    loop."""
    skipped = any(when not in whens for use in uses for when in use.whens)
    return skipped or not _always_taken(context, facts, [use.cases[len(cases) :] for use in uses])


def _shared(facts: WalkStructure, route: Route, cases: Sequence[Branch]) -> int:
    """The number of branches that hold both ends. A carried value comes from another iteration, where a choice inside
    the loop may have taken another branch."""
    count = 0
    for mine, other in zip(route.source.entry.cases if route.source.entry else (), cases, strict=False):
        inside = len(facts.choices[mine[0]].entry.loops)
        if mine != other or (route.carried and inside >= route.common):
            break
        count += 1
    return count


def _always_taken(context: Context, facts: WalkStructure, paths: Sequence[Sequence[Branch]]) -> bool:
    """True if one of these places is reached whatever is chosen. `paths`: the branches around each."""
    if any(not path for path in paths):
        return True
    branches: dict[int, list[Sequence[Branch]]] = {}
    choice = paths[0][0][0] if paths else -1
    for path in paths:
        if path[0][0] != choice:
            return False
        branches.setdefault(path[0][1], []).append(path[1:])
    needed = _possible(context, facts, facts.choices[choice])
    return all(branch in branches and _always_taken(context, facts, branches[branch]) for branch in needed)


def _possible(context: Context, facts: WalkStructure, choice: ChoiceAt) -> tuple[int, ...]:
    """The branches that may be taken."""
    found = [context.source_type(facts.name, route) for route in choice.routes]
    flags = bool(found) and all(one is not None and choosable(one) == "flag" for one in found)
    certain = all(route.source.kind == "use" and not route.carried for route in choice.routes)
    if flags and certain and {"true", "false"} <= choice.item.cases.keys():
        entry = choice.entry
        if not can_be_absent(context, facts, choice.routes, entry.whens, entry.cases):
            return choice.branch("true"), choice.branch("false")
    return tuple(range(len(choice.item.cases) + 1))


def _varies(when: str) -> bool:
    try:
        return bool(parse(when).loops)
    except ExpressionError:
        return False
