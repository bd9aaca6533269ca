"""Decide which loops run on the device when the plan is made, each with its reason in a sentence.

A *device loop* (`resident` in the plan) is iterated by the engine of one rank, or by those of several GPUs in step,
without asking the worker. The engine iterates its *core*, the uses whose operators can `step`. Inner loops are unrolled
if their counts depend only on parameters. All other uses are *followers*: the worker calls them one by one as the
core's values arrive. So nothing in the core may wait for a follower or for a stream, and the use that ends the loop is
in the core. Any other loop is *stepped*: the worker calls all its uses one by one. If an outer loop can't run on the
device, an inner one still may.
"""

from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from walkgraph.ids import Rank
from walkgraph.placement.compiler.context import Context
from walkgraph.placement.compiler.loop_choices import against_choices, choices_made, computed
from walkgraph.placement.compiler.loop_contents import (
    LoopContents,
    contents_of,
    joined,
    listed,
    reads_an_index,
    touched,
)
from walkgraph.placement.compiler.loop_streams import against_streams, fed_items
from walkgraph.placement.tables import EdgePlan, LoopPlan, NodePlan, Plan, UsePlan, WalkPlan

_ALL = "stepped: this plan steps every loop"
_ITEMS = "a map: up to `{}` of its items are in work at once"
_APART = "stepped: with its parameters the loops inside can't be unrolled"
_PLURALS = {"copies": "copy", "runs": "run", "waits": "wait"}


def settle(context: Context, nodes: Sequence[NodePlan], walk: WalkPlan, *, resident: bool) -> WalkPlan:
    """The Walk with the decision for each of its loops. `resident` false: all are stepped."""
    if not resident:
        return _stepped(walk)
    loops: list[LoopPlan] = []
    for loop in walk.loops:
        if loop.width:
            loops.append(_mapped(loop))
            continue
        inside = contents_of(context, nodes, walk, loop, choices_made(context, nodes, walk, loop))
        against = _against(inside)
        core, forks = tuple(use.index for use in inside.uses), tuple(use.index for use in inside.forks)
        root = _root(loops, loop)
        if root is not None:
            alone = not against and not inside.inner
            why = f"unrolled in `{root.name}`"
            loop = replace(loop, resident=True, within=root.index, why=why)
            loops.append(replace(loop, core=core, forks=forks) if alone else loop)
        elif against:
            loops.append(replace(loop, resident=False, why=f"stepped: {against}"))
        else:
            choices = tuple(choice.index for choice in inside.choices)
            praise = _praise(inside)
            loops.append(replace(loop, resident=True, core=core, forks=forks, choices=choices, why=praise))
    return replace(walk, loops=tuple(loops))


def _root(decided: Sequence[LoopPlan], loop: LoopPlan) -> LoopPlan | None:
    """The resident loop that contains this one, if any."""
    parent = loop.parent
    while parent >= 0:
        if decided[parent].resident:
            within = decided[parent].within
            return decided[parent] if within < 0 else decided[within]
        parent = decided[parent].parent
    return None


def stepped(plan: Plan) -> Plan:
    """The plan with every loop stepped. Its ranks can only work with ranks that use the same variant."""
    return replace(plan, walks=tuple(_stepped(walk) for walk in plan.walks))


def apart(plan: Plan) -> Plan:
    """The plan with nothing unrolled: loops with inner loops are stepped, and the inner ones are decided on their own.
    Its ranks can only work with ranks that use the same variant."""
    return replace(plan, walks=tuple(replace(walk, loops=tuple(_apart(walk))) for walk in plan.walks))


def _stepped(walk: WalkPlan) -> WalkPlan:
    return replace(walk, loops=tuple(_mapped(loop) if loop.width else _off(loop, _ALL) for loop in walk.loops))


def _mapped(loop: LoopPlan) -> LoopPlan:
    return _off(loop, _ITEMS.format(loop.width))


def _off(loop: LoopPlan, why: str) -> LoopPlan:
    return replace(loop, resident=False, core=(), forks=(), choices=(), within=-1, why=why)


def _apart(walk: WalkPlan) -> Iterator[LoopPlan]:
    roots = {loop.within for loop in walk.loops}
    for loop in walk.loops:
        if loop.index in roots or (loop.within >= 0 and not loop.core):
            yield _off(loop, _APART)
        else:
            yield replace(loop, within=-1)


def _praise(inside: LoopContents) -> str:
    loop, walk = inside.loop, inside.walk
    ranks = sorted({use.rank for use in inside.uses})
    names = [_named(walk, [use for use in inside.uses if use.rank == rank], inside.outer + 1) for rank in ranks]
    where = ", ".join(f"{found} on rank {rank}" for found, rank in zip(names, ranks, strict=True))
    how = "static: several iterations a launch"
    if loop.until is not None:
        how = f"one iteration a launch because `{walk.uses[loop.until[0]].name}.{loop.until[1]}` ends it"
    copies = dict.fromkeys(inside.state(use.states[1]) for use in inside.forks)
    empty = dict.fromkeys(name for name in _scoped(inside) if name not in copies)
    anew = "".join(
        f"; {listed(names)} begin{'s' if len(names) == 1 else ''} every iteration {how_so}"
        for names, how_so in ((copies, "as a copy"), (empty, "empty"))
        if names
    )
    behind = ""
    if inside.followers:
        verb = "follows" if len(inside.followers) == 1 else "follow"
        behind = f"; {listed(walk.uses[use].name for use in sorted(inside.followers))} {verb}, stepped"
    device = "device" if len(ranks) == 1 else "devices, which hand each other the values"
    return f"`{loop.name}` runs on the {device}: {where}, {how}{anew}{fed_items(inside)}{computed(inside)}{behind}"


def _scoped(inside: LoopContents) -> Iterator[str]:
    """States of the core with scope `iteration`."""
    for use in inside.uses:
        for state in inside.node(use).states.values():
            if inside.walk.state_scopes.get(state, 0) > inside.outer:
                yield inside.state(state)


def _named(walk: WalkPlan, uses: Sequence[UsePlan], depth: int) -> str:
    """Names of the uses of one rank, with those of an inner loop at this depth grouped."""
    loops: dict[int, list[UsePlan]] = {}
    words: dict[str, None] = {}
    for use in uses:
        if len(use.loops) > depth:
            loops.setdefault(use.loops[depth], []).append(use)
    for use in uses:
        if len(use.loops) == depth:
            words[f"`{use.name}`"] = None
        else:
            inner = use.loops[depth]
            words[f"`{walk.loops[inner].name}` unrolled ({_named(walk, loops[inner], depth + 1)})"] = None
    return joined(words)


def _against(inside: LoopContents) -> str:
    """The first reason to step the loop; empty if there is none."""
    checks = (
        _shape,
        against_choices,
        _against_nesting,
        _members,
        _endings,
        _conditions,
        _shared,
        _states,
        against_streams,
        _params,
        _ports,
    )
    return next((reason for check in checks if (reason := check(inside))), "")


def _shape(inside: LoopContents) -> str:
    loop = inside.loop
    if loop.stream is not None:
        return f"stream `{inside.context.assignment.graph.streams[loop.stream].name}` feeds and ends it"
    if not loop.times:
        return "a stream feeds and ends it"
    return "" if inside.uses or inside.followers else "nothing is inside it"


def _members(inside: LoopContents) -> str:
    if not inside.uses:
        names: dict[str, dict[str, None]] = {}
        for use, why in sorted(inside.followers.items()):
            names.setdefault(why, {})[inside.walk.uses[use].name] = None
        return ", ".join(f"{listed(found)} {_plural(why) if len(found) > 1 else why}" for why, found in names.items())
    ranks = sorted({use.rank for use in inside.uses})
    if len(ranks) == 1:
        return ""
    *most, last = map(str, ranks)
    apart = f"its uses lie on ranks {', '.join(most)} and {last}"
    if any(inside.walk.loops[outer].width for outer in inside.uses[0].loops[: inside.outer]):
        return f"{apart}, and items of a map are in it at once"
    gpus = {Rank(one.rank) for one in inside.context.assignment.placement.ranks if one.device != "cpu"}
    if not gpus.issuperset(ranks):
        return apart
    if inside.context.apart(ranks):
        return f"{apart}, on several hosts"
    if not inside.context.joined(ranks):
        return f"{apart}, and their GPUs can't read each other's memory"
    if any(map(inside.context.assignment.shards, ranks)):
        return f"{apart}, and some of these have shards"
    always = {use.index for use in inside.uses if not inside.conditional(use)}
    why = _against_spanning(inside.walk, inside.loop, inside.uses, always, min(gpus))
    return f"{apart}, and {why}" if why else ""


def _endings(inside: LoopContents) -> str:
    until = inside.loop.until
    if until is not None and not inside.holds(until[0]):
        where = inside.followers.get(until[0], "is outside")
        return f"{inside.name(until[0])}, which ends it, {where}"
    within = {use.index for use in inside.uses} | inside.followers.keys()
    for other in inside.walk.loops:
        if other.index != inside.loop.index and any(use in within for use, _ in other.endings):
            return f"loop `{other.name}` is ended from inside it"
    return ""


def _conditions(inside: LoopContents) -> str:
    """A use that may be skipped can't decide whether the loop goes on, and has no value for the next iteration."""
    until = inside.loop.until
    if until is not None and inside.conditional(inside.walk.uses[until[0]]):
        return f"{inside.name(until[0])}, which ends it, has a condition"
    for edge in inside.walk.edges:
        if edge.carried and edge.common == inside.outer + 1 and inside.holds(edge.target.use):
            source = inside.walk.uses[edge.source.use]
            if inside.conditional(source):
                return f"`{source.name}` has a condition, and `{source.name}.{edge.source.port}` is carried"
    return ""


def _shared(inside: LoopContents) -> str:
    """Followers lag behind the core, so neither may change a state that the other reads."""
    for index in sorted(inside.followers):
        follower = inside.walk.uses[index]
        for use in inside.uses:
            both = touched(inside.nodes, follower) & touched(inside.nodes, use)
            written = both & {*follower.writes, *use.writes}
            if written:
                both_names = f"`{use.name}` and `{follower.name}`, which would follow,"
                return f"{both_names} share state `{inside.state(min(written))}`"
    return ""


def _states(inside: LoopContents) -> str:
    """A state may begin every iteration anew only if the core of one rank is its sole user."""
    apart = len({use.rank for use in inside.uses}) > 1
    if apart and inside.forks:
        return f"`{inside.forks[0].name}` is in it, and its uses lie on several ranks"
    lagging = set[int]().union(*(touched(inside.nodes, inside.walk.uses[use]) for use in inside.followers))
    for use in inside.uses:
        for state in inside.node(use).states.values():
            beyond = inside.walk.state_scopes.get(state, 0) - inside.outer - 1
            name = f"state `{inside.state(state)}`"
            if beyond > 0:
                return f"{name} starts anew in every iteration of {inside.around(use)} inside it"
            if beyond == 0 and (apart or state in lagging):
                why = "its uses lie on several ranks" if apart else "not only the core has it"
                return f"{name} starts anew in every iteration, and {why}"
    return ""


def _params(inside: LoopContents) -> str:
    for use in inside.uses:
        node = inside.node(use)
        texts = {name: str(value)[1:] for name, value in node.params.items() if str(value).startswith("=")}
        for name, text in texts.items():
            if inside.varies(use, text) and not inside.context.numeric(node.component, name):
                return f"parameter `{name}` of `{use.name}` changes with its index and is not a number"
    return ""


def _ports(inside: LoopContents) -> str:
    ports: dict[tuple[int, str], list[EdgePlan]] = {}
    for edge in inside.walk.edges:
        if edge.target.kind == "use" and inside.holds(edge.target.use):
            ports.setdefault((edge.target.use, edge.target.port), []).append(edge)
    for (use, port), edges in ports.items():
        name = f"`{inside.walk.uses[use].name}.{port}`"
        within = {edge.merged or str(edge.index) for edge in edges if _plain_inside(inside, edge)}
        if len(within) + any(_plain_outside(inside, edge) for edge in edges) > 1:
            return f"{name} is fed twice"
        if all(edge.carried for edge in edges) and any(edge.common == inside.outer + 1 for edge in edges):
            return f"{name} has no value in the first iteration"
        outside = [edge for edge in edges if edge.common <= inside.outer]
        if any(edge.carried for edge in outside) and any(_plain_inside(inside, edge) for edge in edges):
            return f"{name} is fed from inside it and from an iteration of the loop around it"
        if len({edge.enter_each and edge.sliced == inside.outer for edge in outside}) > 1:
            return f"{name} is fed slice by slice and whole"
    return ""


def _plain_inside(inside: LoopContents, edge: EdgePlan) -> bool:
    return edge.common > inside.outer and not edge.carried


def _plain_outside(inside: LoopContents, edge: EdgePlan) -> bool:
    """True for an edge that enters; several do if they come from a merge."""
    return edge.common <= inside.outer and not edge.carried


def _plural(verb: str) -> str:
    first, _, rest = verb.partition(" ")
    return f"{_PLURALS.get(first, first)} {rest}"


# ── inner loops ────────────────────────────────────────────────────────────────────────────────


def _against_nesting(inside: LoopContents) -> str:
    """The first reason against unrolling the inner loops; empty if there is none, or no inner loop."""
    inner = inside.inner
    if not inner:
        return ""
    return next(
        (reason for reason in (*_unrolled_counts(inside, inner), *_unrolled_members(inside), *_unrolled_edges(inside))),
        "",
    )


def _unrolled_counts(inside: LoopContents, inner: tuple[LoopPlan, ...]) -> Iterator[str]:
    for loop in inner:
        if loop.until is not None:
            yield f"`{loop.name}` is inside it, and `{inside.walk.uses[loop.until[0]].name}.{loop.until[1]}` ends that"
        if reads_an_index(loop.times):
            yield f"`{loop.name}` is inside it, and its count changes with an index"


def _unrolled_members(inside: LoopContents) -> Iterator[str]:
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


def _cause(inside: LoopContents, use: int) -> tuple[int, str]:
    """The use that `use` waits for in the end, and the reason that it can't be in the core."""
    names = {f"waits for `{inside.walk.uses[other].name}`": other for other in inside.followers}
    while (why := inside.followers[use]) in names:
        use = names[why]
    return use, why


def _unrolled_edges(inside: LoopContents) -> Iterator[str]:
    """Edges that an unrolled iteration can't express."""
    for edge in inside.walk.edges:
        if edge.source.kind != "use" or not inside.holds(edge.source.use):
            continue
        source = inside.walk.uses[edge.source.use]
        here = edge.target.kind == "use" and inside.loop.index in inside.walk.uses[edge.target.use].loops
        if inside.deep(source):
            yield from _unrolled_leaving(inside, edge, source, here=here)
        if here and edge.enter_each and edge.carried and edge.common == inside.outer + 1:
            yield f"{_target_name(inside, edge)} is fed slice by slice from the iteration before"


def _unrolled_leaving(inside: LoopContents, edge: EdgePlan, source: UsePlan, *, here: bool) -> Iterator[str]:
    """Reasons against an edge that leaves an inner loop. `here`: its target is in the loop itself."""
    port, where = f"`{source.name}.{edge.source.port}`", f"in {inside.around(source)} inside it"
    if edge.leave == "each":
        yield f"{port}, {where}, leaves one by one"
    if edge.leave != "collect" or not here:
        return
    if edge.gather != "stack":
        yield f"{port}, {where}, is collected as a list" if edge.gather == "list" else f"{port}, {where}, is joined"
    if not inside.holds(edge.target.use):
        yield f"{port}, {where}, is collected for {inside.name(edge.target.use)}, which follows"
    if edge.enter_each:
        yield f"{_target_name(inside, edge)} is fed slice by slice with what is collected {where}"
    if edge.carried and edge.common == inside.outer + 1:
        yield f"{port}, {where}, is collected and carried"
    if any(inside.varies(source, text) for text in source.when):
        yield f"`{source.name}`, {where}, is skipped at times, and {port} is collected"


def _target_name(inside: LoopContents, edge: EdgePlan) -> str:
    return f"`{inside.walk.uses[edge.target.use].name}.{edge.target.port}`"


# ── several ranks ───────────────────────────────────────────────────────────────────────────────

# A reader has memory for one value at a time, so nobody may be ahead of it. All values therefore pass through one
# leading rank: it hands the next value to a use elsewhere only after it has read that use's answer.


def leader(uses: Sequence[UsePlan]) -> Rank:
    """The leading rank of a core."""
    return min(use.rank for use in uses)


def _edges_across(walk: WalkPlan, uses: Sequence[UsePlan]) -> list[EdgePlan]:
    """Edges of a core whose ends are on two ranks."""
    ranks = {use.index: use.rank for use in uses}
    return [
        edge
        for edge in walk.edges
        if edge.source.kind == "use"
        and edge.source.use in ranks
        and edge.target.use in ranks
        and ranks[edge.source.use] != ranks[edge.target.use]
    ]


def _against_spanning(
    walk: WalkPlan, loop: LoopPlan, uses: Sequence[UsePlan], always: Collection[int], leading: Rank
) -> str:
    """The reason that the GPUs of several ranks can't iterate a core together, as the end of a sentence about it; empty
    if they can. `always`: uses without conditions of their own. `leading`: the only rank that leads such loops in the
    plan."""
    leads = leader(uses)
    if leads != leading:
        return f"what spans GPUs is led from rank {leading}"
    if loop.until is not None:
        return "a value ends it"
    edges = _edges_across(walk, uses)
    for edge in edges:
        if leads not in (walk.uses[edge.source.use].rank, walk.uses[edge.target.use].rank):
            return f"{_ends(walk, edge)} meet without rank {leads}, which leads"
        if why := _fed_otherwise(walk, loop, edge):
            return why
    for use in uses:
        if use.rank != leads and (why := _unanswered(walk, use, edges, always)):
            return why
    return ""


def _fed_otherwise(walk: WalkPlan, loop: LoopPlan, edge: EdgePlan) -> str:
    """The reason against a port that is fed from another rank and otherwise as well; an initial whole value is
    allowed."""
    for other in walk.edges:
        if other.index == edge.index or other.target != edge.target:
            continue
        outer = other.common < len(walk.uses[edge.target.use].loops) and other.source.index != loop.index
        if not edge.carried or not outer or other.carried or other.enter_each:
            name = walk.uses[edge.target.use].name
            return f"`{name}.{edge.target.port}` is fed from another rank and in another way"
    return ""


def _unanswered(walk: WalkPlan, use: UsePlan, edges: Sequence[EdgePlan], always: Collection[int]) -> str:
    """The reason against a use elsewhere whose values don't each follow an answer of it that is read in every
    iteration."""
    sent = [edge for edge in edges if edge.target.use == use.index]
    answers = [
        edge.target.use
        for edge in edges
        if edge.source.use == use.index and not edge.carried and edge.target.use in always
    ]
    if not any(edge.source.use in always for edge in sent):
        return f"`{use.name}` does not get a value from the leading rank in every iteration"
    if not answers:
        return f"nothing waits for `{use.name}` in all iterations"
    for edge in sent:
        if edge.carried and min(answers) > edge.source.use:
            return f"`{walk.uses[edge.source.use].name}` may be ahead of `{use.name}`"
    return ""


def _ends(walk: WalkPlan, edge: EdgePlan) -> str:
    return f"`{walk.uses[edge.source.use].name}` and `{walk.uses[edge.target.use].name}`"


def spanning_ranks(plan: Plan) -> set[Rank]:
    """Ranks that hold parts of device loops on several GPUs."""
    found: set[Rank] = set()
    for walk in plan.walks:
        for loop in walk.loops:
            ranks = {walk.uses[use].rank for use in loop.core}
            found |= ranks if len(ranks) > 1 else set()
    return found
