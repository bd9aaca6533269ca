"""Which loops run on the device, decided when the plan is made, each with the reason in a sentence.

Of a *resident* loop the engine of one rank, or those of several GPUs in step (`spanning`), iterate the *core* by
themselves, without asking the worker: uses whose operators can `step`. Whatever else is inside *follows*: the worker
calls it use by use, as the core's values come. So nothing in the core may wait for a follower, for a stream, or for a
state that starts anew in every iteration, and what ends the loop lies in the core. Any other loop is *stepped*: the
worker calls all of it, use by use.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from walkgraph.graph.expressions import ExpressionError, parse
from walkgraph.ids import Rank
from walkgraph.placement.context import Context
from walkgraph.placement.spanning import against_spanning
from walkgraph.placement.tables import EdgePlan, LoopPlan, NodePlan, Plan, UsePlan, WalkPlan

INDEX = "index"
"""`@loop.index`: the innermost loop's."""
_ALL = "stepped: this plan steps every loop"
_PLURALS = {"copies": "copy", "runs": "run", "waits": "wait"}


def settle(context: Context, nodes: Sequence[NodePlan], walk: WalkPlan, *, resident: bool) -> WalkPlan:
    """The Walk with every loop told how it runs. `resident` false: all are stepped."""
    loops: list[LoopPlan] = []
    for loop in walk.loops:
        inside = _inside(context, nodes, walk, loop)
        against = _against(inside)
        why = f"stepped: {against}" if against else _praise(inside)
        core = () if against else tuple(use.index for use in inside.uses)
        loops.append(replace(loop, resident=not against, core=core, why=why))
    settled = replace(walk, loops=tuple(loops))
    return settled if resident else _stepped(settled)


def stepped(plan: Plan) -> Plan:
    """The plan with every loop stepped. Ranks that walk it understand each other, and no one else."""
    return replace(plan, walks=tuple(_stepped(walk) for walk in plan.walks))


def _stepped(walk: WalkPlan) -> WalkPlan:
    return replace(walk, loops=tuple(replace(loop, resident=False, core=(), why=_ALL) for loop in walk.loops))


def common_conditions(uses: Sequence[UsePlan], loop: LoopPlan) -> tuple[str, ...]:
    """The conditions that all these uses of a loop begin with and that its index doesn't change: where they don't
    hold, all of the uses are skipped in all iterations."""
    common: list[str] = []
    for texts in zip(*(use.when for use in uses), strict=False):
        if len(set(texts)) > 1 or _reads(texts[0], loop.name):
            break
        common.append(texts[0])
    return tuple(common)


class _Inside(NamedTuple):
    """A loop and what is in it."""

    context: Context
    nodes: Sequence[NodePlan]
    walk: WalkPlan
    loop: LoopPlan
    uses: tuple[UsePlan, ...]
    """The core, in body order."""
    followers: Mapping[int, str]
    """The rest: use -> why the engine can't iterate it, as the end of a sentence about it."""
    common: tuple[str, ...]
    """Conditions of the core as a whole."""

    def node(self, use: UsePlan) -> NodePlan:
        return self.nodes[use.node]

    def holds(self, index: int) -> bool:
        """Whether a use is in the core."""
        return any(use.index == index for use in self.uses)

    @property
    def outer(self) -> int:
        """How many loops are around it."""
        return len(self.uses[0].loops) - 1

    def name(self, index: int) -> str:
        return f"`{self.walk.uses[index].name}`"

    def conditional(self, use: UsePlan) -> bool:
        """Whether it has conditions of its own."""
        return len(use.when) > len(self.common)


def _inside(context: Context, nodes: Sequence[NodePlan], walk: WalkPlan, loop: LoopPlan) -> _Inside:
    uses = tuple(use for use in walk.uses if loop.index in use.loops)
    followers = {use.index: why for use in uses if (why := _barred(nodes, use))}
    within = {use.index for use in uses}
    waits = {use.index: {earlier for earlier in use.before if earlier in within} for use in uses}
    for edge in walk.edges:
        if edge.source.kind == "use" and edge.source.use in within and edge.target.use in within:
            waits[edge.target.use].add(edge.source.use)
    grown = True
    while grown:
        found = {u: min(waits[u] & followers.keys()) for u in within - followers.keys() if waits[u] & followers.keys()}
        followers |= {use: f"waits for `{walk.uses[other].name}`" for use, other in found.items()}
        grown = bool(found)
    core = tuple(use for use in uses if use.index not in followers)
    return _Inside(context, nodes, walk, loop, core, followers, common_conditions(core, loop))


def _barred(nodes: Sequence[NodePlan], use: UsePlan) -> str:
    """Why the engine can't iterate a use, whatever feeds it; empty where it can."""
    if use.op != "call":
        return "copies a state"
    if nodes[use.node].host:
        return "runs on the host"
    return "" if nodes[use.node].resident else "can't be iterated on the device"


def _praise(inside: _Inside) -> str:
    loop = inside.loop
    ranks = sorted({use.rank for use in inside.uses})
    names = [_listed(dict.fromkeys(use.name for use in inside.uses if use.rank == rank)) for rank in ranks]
    where = ", ".join(f"{found} on rank {rank}" for found, rank in zip(names, ranks, strict=True))
    how = "static: several iterations a launch"
    if loop.until is not None:
        how = f"one iteration a launch because `{inside.walk.uses[loop.until[0]].name}.{loop.until[1]}` ends it"
    behind = ""
    if inside.followers:
        verb = "follows" if len(inside.followers) == 1 else "follow"
        behind = f"; {_listed(inside.walk.uses[use].name for use in sorted(inside.followers))} {verb}, stepped"
    device = "device" if len(ranks) == 1 else "devices, which hand each other the values"
    return f"`{loop.name}` runs on the {device}: {where}, {how}{behind}"


def _against(inside: _Inside) -> str:
    """The first reason to step it; empty where there is none."""
    checks = (_shape, _members, _endings, _conditions, _shared, _states, _streams, _params, _ports)
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
    return "" if inside.uses or inside.followers else "nothing is inside it"


def _members(inside: _Inside) -> str:
    if not inside.uses:
        names: dict[str, dict[str, None]] = {}
        for use, why in sorted(inside.followers.items()):
            names.setdefault(why, {})[inside.walk.uses[use].name] = None
        return ", ".join(f"{_listed(found)} {_plural(why) if len(found) > 1 else why}" for why, found in names.items())
    ranks = sorted({use.rank for use in inside.uses})
    if len(ranks) == 1:
        return ""
    *most, last = map(str, ranks)
    apart = f"its uses lie on ranks {', '.join(most)} and {last}"
    gpus = {Rank(one.rank) for one in inside.context.assignment.placement.ranks if one.device != "cpu"}
    if not gpus.issuperset(ranks):
        return apart
    always = {use.index for use in inside.uses if not inside.conditional(use)}
    why = against_spanning(inside.walk, inside.loop, inside.uses, always, min(gpus))
    return f"{apart}, and {why}" if why else ""


def _endings(inside: _Inside) -> str:
    until = inside.loop.until
    if until is not None and not inside.holds(until[0]):
        where = inside.followers.get(until[0], "is outside")
        return f"{inside.name(until[0])}, which ends it, {where}"
    within = {use.index for use in inside.uses} | inside.followers.keys()
    for other in inside.walk.loops:
        if other.index != inside.loop.index and other.until is not None and other.until[0] in within:
            return f"loop `{other.name}` is ended from inside it"
    return ""


def _conditions(inside: _Inside) -> str:
    """What is skipped at times can't tell whether to go on, and has nothing for the next iteration."""
    until = inside.loop.until
    if until is not None and inside.conditional(inside.walk.uses[until[0]]):
        return f"{inside.name(until[0])}, which ends it, has a condition"
    for edge in inside.walk.edges:
        if edge.carried and edge.common > inside.outer and inside.holds(edge.target.use):
            source = inside.walk.uses[edge.source.use]
            if inside.conditional(source):
                return f"`{source.name}` has a condition, and `{source.name}.{edge.source.port}` is carried"
    return ""


def _shared(inside: _Inside) -> str:
    """Followers lag behind, so that neither they nor the core may change what the other reads."""
    names = {index: name for name, index in inside.context.state_index.items()}
    for index in sorted(inside.followers):
        follower = inside.walk.uses[index]
        for use in inside.uses:
            both = _touched(inside.nodes, follower) & _touched(inside.nodes, use)
            written = both & {*follower.writes, *use.writes}
            if written:
                return f"`{use.name}` and `{follower.name}`, which would follow, share state `{names[min(written)]}`"
    return ""


def _touched(nodes: Sequence[NodePlan], use: UsePlan) -> set[int]:
    return set(nodes[use.node].states.values()) if use.op == "call" else set(use.states)


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
        if sum(not edge.carried for edge in edges) > 1:
            return f"{name} is fed twice"
        if all(edge.carried for edge in edges) and any(edge.common > inside.outer for edge in edges):
            return f"{name} has no value in the first iteration"
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


def _plural(verb: str) -> str:
    first, _, rest = verb.partition(" ")
    return f"{_PLURALS.get(first, first)} {rest}"


def _listed(names: Iterable[str]) -> str:
    *most, last = (f"`{name}`" for name in names)
    return f"{', '.join(most)} and {last}" if most else last
