"""Edges and results of Walks: ends that exist, routes that are possible, required ports that are fed, types that
fit."""

from walkgraph.graph.catalogue import Port
from walkgraph.graph.checks.context import Context
from walkgraph.graph.checks.presence import can_be_absent
from walkgraph.graph.checks.types import Unifier, passed
from walkgraph.graph.checks.walks import walk_path
from walkgraph.graph.document import Use
from walkgraph.graph.reading.wellformed import Path
from walkgraph.graph.structure import End, Entry, Route, WalkStructure, apart


def check_edges(context: Context) -> None:
    for name, facts in context.facts.items():
        for route in facts.routes:
            path = walk_path(name, route.pointer)
            source = check_source(context, name, facts, route, (*path, "from"))
            target = _target(context, name, facts, route, (*path, "to"))
            if source and target:
                _way(context, route, path)
        for route in facts.results:
            path = walk_path(name, route.pointer)
            if check_source(context, name, facts, route, (*path, "from")):
                _way(context, route, path)
        for head in (*facts.choices, *facts.maps):
            for route in head.routes:
                _way(context, route, walk_path(name, route.pointer))
        _feeding(context, name, facts)
        _types(context, name, facts)


# ── ends ────────────────────────────────────────────────────────────────────────────────────────


def check_source(context: Context, walk: str, facts: WalkStructure, route: Route, path: Path) -> bool:
    """Check the source of a route; true if it is known. The ports of a merge are checked where it names them."""
    source = route.source
    if route.merge:
        component = context.component(source.entry.node) if source.entry else None
        return component is not None and component.output(source.port) is not None
    match source.kind:
        case "use":
            return check_use(context, walk, facts, source, path, "output")
        case "in":
            return _declared(context, walk, route, path)
        case "loop":
            loops = route.target.entry.loops if route.target.entry else ()
            known = bool(loops) and (source.name == "index" or source.name in loops)
            if not known and route.target.entry:
                advice = (
                    context.nearest(source.name, ("index", *loops)) if loops else "there is no loop around the target"
                )
                context.add("unknown_loop", path, f"`{route.edge.from_}` has no value there; {advice}")
            return known
        case "merge":
            merges = facts.walk.merges
            if source.name not in merges and not context.draft.has_gaps("walks", walk, "merges"):
                message = f"the Walk has no merge `{source.name}`; {context.nearest(source.name, merges)}"
                context.add("unknown_merge", path, message)
            return False
        case _:
            names = [stream.name for stream in context.graph.streams]
            if source.name not in names and not context.draft.has_gaps("streams"):
                message = f"no stream `{source.name}` in the graph; {context.nearest(source.name, names)}"
                context.add("unknown_stream", path, message)
            return source.name in names


def _declared(context: Context, walk: str, route: Route, path: Path) -> bool:
    name, inputs = route.source.name, context.graph.walks[walk].inputs
    if route.target.kind == "result":
        context.add("bad_reference", path, "a result comes from a use; write `use.port`")
        return False
    if name not in inputs and not context.draft.has_gaps("walks", walk, "inputs"):
        message = f"the Walk has no input `{name}`; {context.nearest(name, inputs)}"
        context.add("unknown_input", path, message)
    return name in inputs


def _target(context: Context, walk: str, facts: WalkStructure, route: Route, path: Path) -> bool:
    if route.target.kind == "out":
        return True
    return check_use(context, walk, facts, route.target, path, "input")


def check_use(context: Context, walk: str, facts: WalkStructure, found: End, path: Path, side: str) -> bool:
    """Check that a use has this port; true if it does."""
    if found.name.startswith("@"):
        words = "`use.port` or `@out.x`"
        if side == "output":
            words = "`use.port`, `@in.x`, `@loop.index`, `@stream.x` or `@merge.x`"
        context.add("bad_reference", path, f"`{found.name}` has no meaning here; write {words}")
        return False
    if found.entry is None:
        if not context.draft.has_gaps("walks", walk, "body"):
            message = f"no use `{found.name}` in the body; {context.nearest(found.name, facts.uses)}"
            if found.name in context.graph.nodes:
                message = f"the node `{found.name}` is not in the body of `{walk}`; put it there, or remove the edge"
            context.add("unknown_use", path, message)
        return False
    component = context.component(found.entry.node)
    if component is None:
        return False
    ports = component.outputs if side == "output" else component.inputs
    names = [port.name for port in ports]
    if found.port not in names:
        message = f"`{component.name}` has no {side} `{found.port}`; {context.nearest(found.port, names)}"
        context.add("unknown_port", path, message)
        return False
    return True


# ── routes through loops ────────────────────────────────────────────────────────────────────────


def _way(context: Context, route: Route, path: Path) -> None:
    source, target = route.source.entry, route.target.entry
    if source and target and _siblings(source, target):
        message = f"`{source.name}` and `{target.name}` run side by side in one `parallel`; put them in a `sequence`"
        context.add("between_branches", path, message)
    elif source and target and apart(source.cases, target.cases) is not None:
        other = f"`{route.edge.to}`" if target.name else f"this {route.target.kind}"
        ends = f"`{route.edge.from_}` and {other}"
        message = f"{ends} are in different branches of one choice, and only one of them is taken; move one out of it"
        context.add("between_branches", path, message)
    elif route.backward and not route.carried:
        if target is not None and not target.name:
            message = f"the {route.target.kind} stands before `{route.source.name}`, and no loop holds both"
            message = f"{message} to carry its value back; change their order, or put them in a loop"
        elif source is target:
            message = f"`{route.source.name}` takes its own earlier value, and no loop is around it; put it in a loop"
        else:
            message = f"`{route.target.name}` stands before `{route.source.name}`, and no loop holds both to carry it"
            message = f"{message} back; change their order, or put them in a loop"
        context.add("backward_edge", path, message)
    called = context.component(source.node) if source is not None else None
    sends_pieces = called is not None and called.by_service
    if route.edge.each and route.target.kind == "out" and not route.left and not sends_pieces:
        context.add("each_without_loop", (*path, "each"), "the edge leaves no loop; remove `each`")
    elif route.edge.each and route.target.kind == "use" and not route.entered:
        message = "`each` sends every value to the client only; use `collect`" if route.left else "remove `each`"
        context.add("each_without_loop", (*path, "each"), f"the edge enters no loop; {message}")
    sliced = route.entered[route.skipped :]
    if route.edge.each and route.target.kind == "use" and len(sliced) > 1 and route.source.kind != "stream":
        outer, inner = sliced[0], sliced[-1]
        message = f"iteration i of `{outer}` gets slice i, which is the same in all iterations of `{inner}`"
        message = f"{message}; for a slice in each of these, make the sequence inside `{outer}`"
        context.add("each_by_outer_loop", (*path, "each"), message, "warning")
    if route.edge.collect and not route.left:
        context.add("collect_without_loop", (*path, "collect"), "the edge leaves no loop; remove `collect`")
    if route.edge.collect and route.edge.each and route.target.kind == "out":
        message = "`each` sends values as they come, `collect` all of them at the end; remove one of the two"
        context.add("each_and_collect", (*path, "each"), message)
    if route.edge.collect and route.merge:
        message = "a merge can't be collected; pass its values through a use in the loop, and collect from that"
        context.add("merge_collected", (*path, "collect"), message)


def _siblings(a: Entry, b: Entry) -> bool:
    """True if two uses stand in different branches of one parallel."""
    return any(x != y and x[0] == y[0] for x, y in zip(a.branches, b.branches, strict=False))


# ── feeding ─────────────────────────────────────────────────────────────────────────────────────


def _feeding(context: Context, walk: str, facts: WalkStructure) -> None:
    gaps = context.draft.has_gaps("walks", walk, "edges") or context.draft.has_gaps("walks", walk, "body")
    for entry in facts.entries:
        component = context.component(entry.node) if isinstance(entry.item, Use) else None
        if component is None or facts.uses[entry.name] is not entry:
            continue
        for port in component.inputs:
            feeds = facts.feeds.get((entry.name, port.name), ())
            if feeds:
                _port(context, facts, entry, port, feeds)
            elif not port.optional and not gaps:
                if told := context.draft.unfed(walk, entry.name, port.name):
                    context.add_at("unconnected_input", *told)
                    continue
                message = f"nothing feeds `{entry.name}.{port.name}` (`{port.type}`); draw an edge to it"
                context.add("unconnected_input", walk_path(walk, entry.pointer), message)
    outs: dict[str, int] = {}
    for route in facts.routes:
        if route.target.kind == "out" and outs.setdefault(route.target.name, route.index) != route.index:
            message = f"`@out.{route.target.name}` is fed twice; give one of them another name"
            context.add("fed_twice", walk_path(walk, f"{route.pointer}/to"), message)


def _port(context: Context, facts: WalkStructure, entry: Entry, port: Port, feeds: tuple[Route, ...]) -> None:
    """Check one port: it takes one edge, plus one carried edge at each loop around it that the other edge enters."""
    walk = facts.name
    edges: dict[int, list[Route]] = {}
    for route in feeds:
        edges.setdefault(route.index, []).append(route)
    ordered = sorted((routes[0] for routes in edges.values()), key=lambda route: (route.carried, route.common))
    kept = ordered[0]
    for route in ordered[1:]:
        if route.carried and route.common > kept.common:
            kept = route
        else:
            message = f"`{entry.name}.{port.name}` is fed twice; keep one edge, or carry one of them in a loop"
            context.add("fed_twice", walk_path(walk, f"{route.pointer}/to"), message)
    if port.optional:
        return
    unfed = context.draft.unfed(walk, entry.name, port.name) if ordered[0].carried else None
    if unfed:
        context.add_at("unconnected_input", *unfed)
    elif ordered[0].carried and not context.draft.has_gaps("walks", walk, "edges"):
        message = f"`{entry.name}.{port.name}` has no value in the first iteration; draw an edge that enters the loop"
        context.add("no_first_value", walk_path(walk, f"{ordered[0].pointer}/to"), message)
    for route in ordered:
        if route.merge and len(edges[route.index]) < len(set(facts.walk.merges[route.merge])):
            continue  # reported at the merge
        if can_be_absent(context, facts, edges[route.index], entry.whens, entry.cases):
            path = walk_path(walk, f"{route.pointer}/to")
            advice = "give both the same `when`, or feed an optional port"
            if route.merge:
                cause = f"no branch of `@merge.{route.merge}` may be taken"
                advice = "add a branch for all other values (`otherwise`), or feed an optional port"
            else:
                cause = f"`{route.source.name}` can be skipped"
                if route.source.entry is not None and route.source.entry.cases:
                    advice = "feed it through a merge of all branches, or feed an optional port"
            context.add("absent_value", path, f"`{entry.name}.{port.name}` needs a value, and {cause}; {advice}")


# ── types ───────────────────────────────────────────────────────────────────────────────────────


def _types(context: Context, walk: str, facts: WalkStructure) -> None:
    """Unify sizes along edges. Each use has its own size symbols; an edge makes sizes equal, and two different numbers
    clash."""
    sizes = Unifier()
    for route in facts.routes:
        source, target = context.source_type(walk, route), context.input(route.target)
        if source is None or target is None:
            continue
        owner = route.source.name if route.source.kind == "use" else f"@{route.source.kind}"
        try:
            given = passed(source, route, owner)
        except ValueError as error:
            context.add("type_mismatch", walk_path(walk, route.pointer), str(error))
            continue
        fault = sizes.fault(target.type, route.target.name, given)
        if fault:
            path, shown = walk_path(walk, route.pointer), given if given.many else source
            message = f"`{route.edge.from_}` gives `{shown}`, `{route.edge.to}` takes `{target.type}`: {fault}"
            apart = given.many and not target.type.many
            advice = "take the list apart with `each` in a loop" if apart else "connect another port"
            context.add("type_mismatch", path, f"{message}; {advice}")
