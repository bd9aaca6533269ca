"""Maps in the bodies of Walks: their lists, what may leave them, and the states that their items may write."""

from walkgraph.graph.checks.context import Context
from walkgraph.graph.checks.edges import check_source
from walkgraph.graph.checks.types import mappable
from walkgraph.graph.checks.walks import accesses, called, states_of, walk_path
from walkgraph.graph.structure import MapAt, Route, WalkStructure


def check_maps(context: Context) -> None:
    for name, facts in context.facts.items():
        for at in facts.maps:
            _list(context, name, facts, at)
            _states(context, name, facts, at)
            _streams(context, name, facts, at)
        if facts.maps:
            _endings(context, name, facts)
            for route in facts.taken:
                _leaving(context, name, facts, route)


def _list(context: Context, walk: str, facts: WalkStructure, at: MapAt) -> None:
    path = (*walk_path(walk, at.entry.pointer), "map")
    if at.routes and at.routes[0].source.kind in ("loop", "stream"):
        message = f"a map can't read `{at.item.map}`; name `use.port`, `@in.x` or `@merge.x`"
        context.add("bad_map", path, message)
        return
    for route in at.routes:
        known = check_source(context, walk, facts, route, path)
        found = context.source_type(walk, route) if known else None
        if found is not None and not mappable(found):
            message = f"`{at.item.map}` gives `{found}`, and a map goes through a list or the slices of a tensor"
            context.add("bad_map", path, f"{message}; name a port that gives one")


def _leaving(context: Context, walk: str, facts: WalkStructure, route: Route) -> None:
    """Check a route at the maps that it leaves, or at the one that it is carried in."""
    path = walk_path(walk, route.pointer)
    around = route.source.entry.loops if route.source.entry else ()
    if route.carried and around[route.common - 1] in facts.map_loops:
        message = f"`{route.edge.from_}` would go to the next item of `{around[route.common - 1]}`, and items are"
        context.add("carried_in_map", path, f"{message} independent; carry it in a loop inside or around the map")
    left = next((loop for loop in route.left if loop in facts.map_loops), None)
    if left is not None and route.leave == "last":
        ways = "`each` or `collect`" if route.target.kind == "out" else "`collect`"
        advice = f"set {ways} on the edge"
        if route.target.kind in ("choice", "map") or route.merge:
            advice = "collect them in a use after the map"
        message = f"`{route.edge.from_}` has a value for every item of `{left}`; {advice}"
        context.add("uncollected_map", path, message)


def _endings(context: Context, walk: str, facts: WalkStructure) -> None:
    for loop in facts.loops:
        for port in facts.ports(loop.item.until) if loop.item.until is not None else ():
            inner = port.entry.loops[len(loop.loops) :] if port.entry is not None else ()
            inside = next((name for name in inner if name in facts.map_loops), None)
            if inside is not None:
                message = f"`{port.name}` is called for every item of `{inside}`; end the loop by a use after the map"
                context.add("bad_until", (*walk_path(walk, loop.pointer), "until"), message)


def _states(context: Context, walk: str, facts: WalkStructure, at: MapAt) -> None:
    """Items run side by side, so a state that one of them writes must be its own: an `iteration` state that is used
    in the map alone."""
    inside = [entry for entry in facts.entries if at.loop in entry.loop_indices]
    outside = {s for e in facts.entries if at.loop not in e.loop_indices for s in states_of(context.graph, e)}
    for entry in inside:
        for name, writes in accesses(context, facts, entry):
            state = context.graph.states.get(name)
            if state is None or not writes or (state.scope == "iteration" and name not in outside):
                continue
            advice = f"set the scope of `{name}` to `iteration`"
            if state.scope == "iteration":
                advice = f"use `{name}` inside the map only, or fork it into a state that is"
            message = f"{called(entry)} writes state `{name}`, which all items of `{at.item.loop}` share; {advice}"
            context.add("shared_in_map", walk_path(walk, entry.pointer), message)


def _streams(context: Context, walk: str, facts: WalkStructure, at: MapAt) -> None:
    for route in facts.routes:
        target = route.target.entry
        if route.source.kind == "stream" and target is not None and at.loop in target.loop_indices:
            message = f"`{target.name}` reads a stream for every item of `{at.item.loop}`"
            path = walk_path(walk, f"{route.pointer}/to")
            context.add("stream_in_map", path, f"{message}; read it before the map, or run the Walk per chunk")
    for i, stream in enumerate(context.graph.streams):
        ends = facts.ports(stream.from_) if walk in stream.walks else ()
        for port in ends:
            if port.entry is not None and at.loop in port.entry.loop_indices:
                message = f"`{port.name}` would feed the stream from every item of `{at.item.loop}` at once; collect"
                path = ("streams", str(i), "from")
                context.add(
                    "stream_in_map", path, f"{message} its values, and feed the stream from a use after the map"
                )
