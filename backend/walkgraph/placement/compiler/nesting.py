"""Whether the loops inside a loop can be unrolled in it: what an iteration of it does is then known when it is entered,
but for conditions and parameters that change with its own index."""

from collections.abc import Iterator

from walkgraph.graph.language.expressions import ExpressionError, parse
from walkgraph.placement.compiler.inside import Inside
from walkgraph.placement.tables import EdgePlan, LoopPlan, UsePlan


def against_nesting(inside: Inside) -> str:
    """The first reason against it; empty where there is none, or no loop is inside."""
    inner = inside.inner
    if not inner:
        return ""
    return next((reason for reason in (*_counts(inside, inner), *_members(inside), *_ways(inside))), "")


def _counts(inside: Inside, inner: tuple[LoopPlan, ...]) -> Iterator[str]:
    for loop in inner:
        if loop.until is not None:
            yield f"`{loop.name}` is inside it, and `{inside.walk.uses[loop.until[0]].name}.{loop.until[1]}` ends that"
        if _reads_an_index(loop.times):
            yield f"`{loop.name}` is inside it, and its count changes with an index"


def _members(inside: Inside) -> Iterator[str]:
    deep = {use: why for use, why in inside.followers.items() if inside.deep(inside.walk.uses[use])}
    for use in sorted(deep, key=lambda use: deep[use].startswith("waits")):
        first, why = use, deep[use]
        if why.startswith("waits"):
            first, why = _cause(inside, use)
        place = inside.walk.uses[first]
        where = f", in {inside.around(place)} inside it," if inside.deep(place) else ""
        yield f"{inside.name(first)}{where} {why}"
    ranks = sorted({use.rank for use in inside.uses})
    if len(ranks) > 1:
        *most, last = map(str, ranks)
        loop = next(loop.name for loop in inside.inner)
        yield f"`{loop}` is inside it, and its uses lie on ranks {', '.join(most)} and {last}"
    until = inside.loop.until
    if until is not None and inside.deep(inside.walk.uses[until[0]]):
        use = inside.walk.uses[until[0]]
        yield f"`{use.name}`, which ends it, is in {inside.around(use)}"


def _cause(inside: Inside, use: int) -> tuple[int, str]:
    """What a use waits for in the end, and why that can't be in the core."""
    names = {f"waits for `{inside.walk.uses[other].name}`": other for other in inside.followers}
    while (why := inside.followers[use]) in names:
        use = names[why]
    return use, why


def _ways(inside: Inside) -> Iterator[str]:
    """Edges that an unrolled iteration has no word for."""
    for edge in inside.walk.edges:
        if edge.source.kind != "use" or not inside.holds(edge.source.use):
            continue
        source = inside.walk.uses[edge.source.use]
        here = edge.target.kind == "use" and inside.loop.index in inside.walk.uses[edge.target.use].loops
        if inside.deep(source):
            yield from _leaving(inside, edge, source, here=here)
        if here and edge.enter_each and edge.carried and edge.common == inside.outer + 1:
            yield f"{_target(inside, edge)} is fed slice by slice from the iteration before"


def _leaving(inside: Inside, edge: EdgePlan, source: UsePlan, *, here: bool) -> Iterator[str]:
    """`here`: to a use in the loop."""
    port, where = f"`{source.name}.{edge.source.port}`", f"in {inside.around(source)} inside it"
    if edge.leave == "each":
        yield f"{port}, {where}, leaves one by one"
    if edge.leave != "collect" or not here:
        return
    if not inside.holds(edge.target.use):
        yield f"{port}, {where}, is collected for {inside.name(edge.target.use)}, which follows"
    if edge.enter_each:
        yield f"{_target(inside, edge)} is fed slice by slice with what is collected {where}"
    if edge.carried and edge.common == inside.outer + 1:
        yield f"{port}, {where}, is collected and carried"
    if any(inside.varies(source, text) for text in source.when):
        yield f"`{source.name}`, {where}, is skipped at times, and {port} is collected"


def _target(inside: Inside, edge: EdgePlan) -> str:
    return f"`{inside.walk.uses[edge.target.use].name}.{edge.target.port}`"


def _reads_an_index(text: str) -> bool:
    try:
        return bool(parse(text).loops)
    except ExpressionError:  # a check reports it where it stands
        return True
