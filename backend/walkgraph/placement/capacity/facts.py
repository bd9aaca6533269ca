"""Facts about a Walk's table for the runs that step through it: its results, the states it reads and keeps, and their
ranks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeVar

from walkgraph.ids import Rank
from walkgraph.placement.compiler.loop_contents import reads_an_index
from walkgraph.placement.tables import Branch, LoopPlan, Plan, UsePlan, WalkPlan

B = TypeVar("B")

LASTING = frozenset({"run", "session"})
"""Scopes of states that outlive a Walk."""


@dataclass(frozen=True, slots=True)
class WalkFacts:
    outputs: frozenset[str]
    streams_in: frozenset[int]
    streams_out: frozenset[int]
    homes: Mapping[int, Rank]
    """Lasting states that the Walk uses -> their rank here."""
    writes: frozenset[int]
    """The lasting states that it may change."""
    replaced: frozenset[int]
    """The lasting states whose former value it never reads, as its first access always replaces them."""
    places: Mapping[tuple[int, Rank], tuple[Branch, ...]]
    """(state, rank) for every rank that holds a state here -> the branches around all uses of it. Choices in loops are
    left out, as each iteration may take another branch."""
    copies: Mapping[int, tuple[tuple[str, ...], ...]]
    """State that every item of a map keeps for itself -> for each map around its uses, the limits to its items at once:
    its width, and its bound if that is fixed. There may be as many copies of the state."""
    readers: Mapping[str, frozenset[Rank]]
    """Walk input -> ranks that read it."""
    required: frozenset[str]
    """Walk inputs that are the only feed of a required port."""
    reasons: Mapping[str, tuple[str, ...]]
    """Result that ends a loop of steps -> flags that may say why."""


class Facts:
    """Facts about a plan's Walks, each computed when it is first needed."""

    def __init__(self, plan: Plan, alternative: int = 0) -> None:
        """`alternative`: the one of the plan in which `walks` are."""
        self.plan, self.walks = plan, plan.walks_of(alternative)
        self.known: dict[int, WalkFacts] = {}

    def __getitem__(self, walk: int) -> WalkFacts:
        found = self.known.get(walk)
        if found is None:
            found = self.known[walk] = _facts(self.plan, self.plan.walks[walk])
        return found


def _facts(plan: Plan, walk: WalkPlan) -> WalkFacts:
    edges = walk.edges
    homes: dict[int, Rank] = {}
    writes: set[int] = set()
    replaced: set[int] = set()
    places: dict[tuple[int, Rank], tuple[Branch, ...]] = {}
    for use in walk.uses:
        inside = _judged_once(walk, use)
        for state in _touched(plan, use):
            places[state, use.rank] = shared_branches(places.get((state, use.rank), inside), inside)
            if plan.states[state].scope not in LASTING:
                continue
            if state not in homes and _replaces(use, state):
                replaced.add(state)
            homes.setdefault(state, use.rank)
            if state in use.writes:
                writes.add(state)
    return WalkFacts(
        outputs=frozenset(e.target.port for e in edges if e.target.kind == "out"),
        streams_in=frozenset(e.source.index for e in edges if e.source.kind == "stream"),
        streams_out=frozenset(e.target.index for e in edges if e.target.kind == "stream"),
        homes=homes,
        writes=frozenset(writes),
        replaced=frozenset(replaced),
        places=places,
        copies=_copies(walk),
        readers=_readers(walk),
        required=_required(plan, walk),
        reasons=_reasons(walk),
    )


def _reasons(walk: WalkPlan) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for edge in walk.edges:
        result, _, flag = edge.target.port.partition(".")
        if edge.target.kind == "result" and flag:
            found.setdefault(result, {})[flag] = None
    return {result: tuple(flags) for result, flags in found.items()}


def shared_branches(one: tuple[B, ...], other: tuple[B, ...]) -> tuple[B, ...]:
    """The outermost branches that both have in common."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return one[:count]


def _judged_once(walk: WalkPlan, use: UsePlan) -> tuple[Branch, ...]:
    """The branches around a use, down to the first choice that is in a loop."""
    outside = takewhile(lambda case: not walk.uses[walk.choices[case[0]].use].loops, use.cases)
    return tuple(outside)


def _copies(walk: WalkPlan) -> dict[int, tuple[tuple[str, ...], ...]]:
    found: dict[int, tuple[tuple[str, ...], ...]] = {}
    for state, depth in walk.state_scopes.items():
        around = next((use.loops[:depth] for use in walk.uses if state in use.writes), ())
        limits = tuple(_at_once(walk.loops[loop]) for loop in around if walk.loops[loop].width)
        if limits:
            found[state] = limits
    return found


def _at_once(loop: LoopPlan) -> tuple[str, ...]:
    return (loop.width,) if reads_an_index(loop.times) else (loop.width, loop.times)


def _touched(plan: Plan, use: UsePlan) -> Iterable[int]:
    return plan.nodes[use.node].states.values() if use.op == "call" else use.states


def _replaces(use: UsePlan, state: int) -> bool:
    """True if the use is certain to run and replaces the whole state."""
    return use.op in {"fork", "import"} and use.states[-1] == state and not (use.when or use.loops or use.cases)


def _readers(walk: WalkPlan) -> dict[str, frozenset[Rank]]:
    found: dict[str, set[Rank]] = {name: set() for name in walk.inputs}
    for edge in walk.edges:
        if edge.source.kind == "input":
            rank = walk.uses[edge.target.use].rank if edge.target.kind == "use" else walk.ranks[0]
            found[edge.source.port].add(rank)
    return {name: frozenset(ranks) for name, ranks in found.items()}


def _required(plan: Plan, walk: WalkPlan) -> frozenset[str]:
    fed: dict[tuple[int, str], set[str]] = {}
    for edge in walk.edges:
        if edge.target.kind == "use":
            source = edge.source.port if edge.source.kind == "input" else ""
            fed.setdefault((edge.target.use, edge.target.port), set()).add(source)
    return frozenset(
        name
        for (index, port), sources in fed.items()
        if len(sources) == 1 and _must_hold(plan, walk.uses[index], port)
        for name in sources
        if name
    )


def _must_hold(plan: Plan, use: UsePlan, port: str) -> bool:
    return use.op == "call" and port in plan.nodes[use.node].required
