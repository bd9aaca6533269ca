"""The contents of a loop: the core that the engine may iterate, the followers, and the forks that are made once."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from walkgraph.graph.language.expressions import ExpressionError, parse
from walkgraph.placement.compiler.context import Context
from walkgraph.placement.tables import ChoicePlan, LoopPlan, NodePlan, UsePlan, WalkPlan

INDEX = "index"
"""`@loop.index`, the innermost loop's index."""


class LoopContents(NamedTuple):
    context: Context
    nodes: Sequence[NodePlan]
    walk: WalkPlan
    loop: LoopPlan
    uses: tuple[UsePlan, ...]
    """The core in body order, including the cores of inner loops."""
    followers: Mapping[int, str]
    """The remaining uses -> the reason that the engine can't iterate them, as the end of a sentence about the use."""
    forks: tuple[UsePlan, ...]
    """Forks made once, so that every iteration begins with the copy; neither in the core nor among the followers."""
    common: tuple[str, ...]
    """Conditions that hold for the core as a whole."""
    choices: tuple[ChoicePlan, ...] = ()
    """Choices that the device makes; the uses `choose` are neither in the core nor among the followers."""

    def node(self, use: UsePlan) -> NodePlan:
        return self.nodes[use.node]

    def holds(self, index: int) -> bool:
        """True if a use is in the core."""
        return any(use.index == index for use in self.uses)

    @property
    def outer(self) -> int:
        """The number of loops around it."""
        return self.uses[0].loops.index(self.loop.index)

    @property
    def inner(self) -> tuple[LoopPlan, ...]:
        """Inner loops, at any depth, that have uses."""
        within = [use.loops for use in self.walk.uses if self.loop.index in use.loops]
        indices = {i for loops in within for i in loops[loops.index(self.loop.index) + 1 :]}
        return tuple(loop for loop in self.walk.loops if loop.index in indices)

    def name(self, index: int) -> str:
        return f"`{self.walk.uses[index].name}`"

    def around(self, use: UsePlan) -> str:
        """Name of the innermost loop around a use, in backticks."""
        return f"`{self.walk.loops[use.loops[-1]].name}`"

    def deep(self, use: UsePlan) -> bool:
        """True if the use is in an inner loop."""
        return self.loop.index in use.loops and use.loops[-1] != self.loop.index

    def conditional(self, use: UsePlan) -> bool:
        """True if the use has conditions of its own."""
        return len(use.when) > len(self.common)

    def state(self, index: int) -> str:
        return next(name for name, i in self.context.state_index.items() if i == index)

    def varies(self, use: UsePlan, text: str) -> bool:
        """True if an expression of a use changes with the loop's index."""
        return reads(text, index_names(use, self.loop))


def contents_of(
    context: Context, nodes: Sequence[NodePlan], walk: WalkPlan, loop: LoopPlan, choices: Sequence[ChoicePlan] = ()
) -> LoopContents:
    """`choices`: those that the device makes."""
    made = {choice.use for choice in choices}
    uses = tuple(use for use in walk.uses if loop.index in use.loops and use.index not in made)
    forks = {use.index for use in uses if use.op == "fork" and not _lasting(context, nodes, walk, loop, use)}
    while True:
        followers = _followers(context, nodes, walk, loop, forks | made)
        core = tuple(use for use in uses if use.index not in followers and use.index not in forks)
        common = common_conditions(walk, core, loop)
        refused = {f for f in forks if _needed(nodes, walk, walk.uses[f], followers, common)}
        if not refused:
            found = tuple(walk.uses[fork] for fork in sorted(forks))
            return LoopContents(context, nodes, walk, loop, core, followers, found, common, tuple(choices))
        forks -= refused


def index_names(use: UsePlan, loop: LoopPlan) -> frozenset[str]:
    """The names of a loop's index in the expressions of a use in it."""
    return frozenset((loop.name, INDEX) if use.loops[-1] == loop.index else (loop.name,))


def common_conditions(walk: WalkPlan, uses: Sequence[UsePlan], loop: LoopPlan) -> tuple[str, ...]:
    """The leading conditions that all these uses of a loop share and that no index in it changes. Where they don't
    hold, all of the uses are skipped in all iterations."""
    inner = {walk.loops[i].name for use in uses for i in use.loops[use.loops.index(loop.index) :]}
    common: list[str] = []
    for texts in zip(*(use.when for use in uses), strict=False):
        if len(set(texts)) > 1 or reads(texts[0], {INDEX, *inner}):
            break
        common.append(texts[0])
    return tuple(common)


def reads(text: str, loops: Collection[str]) -> bool:
    """True if an expression reads one of these indices."""
    try:
        return not parse(text).loops.isdisjoint(loops)
    except ExpressionError:  # a check reports it at the expression
        return True


def reads_an_index(text: str) -> bool:
    """True if an expression reads the index of any loop."""
    try:
        return bool(parse(text).loops)
    except ExpressionError:  # a check reports it at the expression
        return True


def touched(nodes: Sequence[NodePlan], use: UsePlan) -> set[int]:
    """The states that a use accesses."""
    return set(nodes[use.node].states.values()) if use.op == "call" else set(use.states)


def listed(names: Iterable[str]) -> str:
    return joined(f"`{name}`" for name in names)


def joined(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


# ── followers ──────────────────────────────────────────────────────────────────────────────────


def _followers(
    context: Context, nodes: Sequence[NodePlan], walk: WalkPlan, loop: LoopPlan, apart: Collection[int]
) -> dict[int, str]:
    """`apart`: uses that are neither followers nor in the core."""
    uses = [use for use in walk.uses if loop.index in use.loops and use.index not in apart]
    followers = {use.index: why for use in uses if (why := _barred(context, nodes, walk, loop, use))}
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
    return followers


def _barred(context: Context, nodes: Sequence[NodePlan], walk: WalkPlan, loop: LoopPlan, use: UsePlan) -> str:
    """The reason that the engine can't iterate a use, whatever feeds it; empty if it can."""
    if use.op == "fork":
        return f"copies {_lasting(context, nodes, walk, loop, use) or 'a state'}"
    if use.op == "choose":
        return "takes a branch by a value"
    if use.op == "map":
        return "counts the items of a list"
    if any(walk.loops[inner].width for inner in use.loops[use.loops.index(loop.index) + 1 :]):
        return "is called for each item of a list"
    if use.op != "call":
        return "copies a state"
    if nodes[use.node].host:
        return "runs on the host"
    return "" if nodes[use.node].resident else "can't be iterated on the device"


# ── copies that are made once ───────────────────────────────────────────────────────────────────


def _lasting(context: Context, nodes: Sequence[NodePlan], walk: WalkPlan, loop: LoopPlan, fork: UsePlan) -> str:
    """The reason that a fork must be made in every iteration, as the object of "copies"; empty if once is enough."""
    names = {index: name for name, index in context.state_index.items()}
    source, target = fork.states
    if fork.loops[-1] != loop.index:
        return "a state"
    writer = next((use for use in walk.uses if loop.index in use.loops and source in use.writes), None)
    if writer is not None:
        return f"state `{names[source]}`, which `{writer.name}` changes"
    having = (use for use in walk.uses if loop.index in use.loops and target in touched(nodes, use))
    others = (use for use in having if use.index != fork.index)
    first = next(others, None)
    if first is None:
        return f"into state `{names[target]}`, which nobody inside has"
    other = next((use for use in chain((first,), others) if use.index < fork.index or use.op != "call"), None)
    return f"into state `{names[target]}`, which `{other.name}` has otherwise" if other is not None else ""


def _needed(
    nodes: Sequence[NodePlan], walk: WalkPlan, fork: UsePlan, followers: Collection[int], common: Sequence[str]
) -> bool:
    """True if another use waits for the fork, or it has conditions of its own."""
    behind = any(fork.states[1] in touched(nodes, walk.uses[use]) for use in followers)
    return behind or list(fork.when) != list(common[: len(fork.when)])
