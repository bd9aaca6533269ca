"""Resident loops folded away: in a rank's own table the core of each is one use, at the place of its first, without
inner edges; what follows it stays as it is, inside the loop. Of a core on several ranks each folds its part.

Edges keep their indices and, between ranks, their keys: peers know nothing of it. Entering edges feed ports named
`use.port`; leaving ones come from ports named by what is wanted of a use's port (`last llm.token`). Those to followers
leave with `each`, under the key of the iteration.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from msgspec.structs import replace

from walkgraph.ids import Rank
from walkgraph.networks.loops import LoopOutput
from walkgraph.placement.regions import common_conditions
from walkgraph.placement.spanning import leader
from walkgraph.placement.tables import EdgePlan, LoopPlan, Plan, Source, Target, UsePlan, WalkPlan

_NOWHERE = -1
PARTS = "parts "
"""Begins the port of what an outer loop goes on to collect."""


class Port(NamedTuple):
    """An input port of a use inside, and where its value comes from; uses are told by their place in the body."""

    name: str
    entry: str | None
    """The folded use's port that feeds it from outside."""
    each: bool
    """What comes from outside is a sequence: slice i goes to iteration i."""
    index: bool
    source: tuple[int, str] | None
    """An earlier use of the iteration."""
    carried: tuple[int, str] | None
    """A use of the iteration before."""
    across: EdgePlan | None = None
    """From another rank's part of the loop."""


class Sending(NamedTuple):
    """Values of a use inside that go to another rank's part of the loop."""

    place: int
    edge: EdgePlan


@dataclass(frozen=True, slots=True)
class Region:
    """What a folded use stands for."""

    loop: LoopPlan
    uses: tuple[UsePlan, ...]
    """The core, each with the conditions of its own: those of all are the folded use's."""
    ports: tuple[tuple[Port, ...], ...]
    """Of each use."""
    until: tuple[int, str] | None
    outputs: tuple[LoopOutput, ...]
    emits: tuple[EdgePlan, ...]
    """Edges whose values go out while it runs, `source.port` being the output's key: leaving ones, and those to
    followers."""
    followed: bool
    """Uses inside, on whatever rank, are not iterated here."""
    sends: tuple[Sending, ...] = ()
    others: tuple[UsePlan, ...] = ()
    """Those of the core on other ranks, with conditions as `uses` have them."""
    leads: bool = True

    @property
    def follows(self) -> tuple[EdgePlan, ...]:
        """Edges to followers."""
        return tuple(edge for edge in self.emits if edge.target.kind == "use")

    @property
    def paced(self) -> tuple[EdgePlan, ...]:
        return tuple(edge for edge in self.emits if edge.target.kind == "stream")


def fold(plan: Plan, walk: WalkPlan, rank: Rank) -> tuple[WalkPlan, dict[int, Region]]:
    """The Walk as this rank walks it, and what its folded uses stand for. Uses inside have no rank any more."""
    regions: dict[int, Region] = {}
    for loop in walk.loops:
        if any(walk.uses[use].rank == rank for use in loop.core):
            folding = _Folding(plan, walk, loop, rank)
            walk, regions[folding.first] = folding.folded(), folding.region()
    return walk, regions


class _Folding:
    def __init__(self, plan: Plan, walk: WalkPlan, loop: LoopPlan, rank: Rank) -> None:
        self.plan, self.walk, self.loop = plan, walk, loop
        core = tuple(walk.uses[index] for index in loop.core)
        self.uses = tuple(use for use in core if use.rank == rank)
        self.others = {use.index: use for use in core if use.rank != rank}
        self.leads = leader(core) == rank
        self.common = common_conditions(core, loop)
        self.place = {use.index: place for place, use in enumerate(self.uses)}
        self.first = self.uses[0].index
        self.outer = self.uses[0].loops[:-1]
        self.outputs: dict[str, LoopOutput] = {}
        self.edges = tuple(self._edge(edge) for edge in walk.edges)

    def folded(self) -> WalkPlan:
        return replace(self.walk, uses=tuple(self._use(use) for use in self.walk.uses), edges=self.edges)

    def region(self) -> Region:
        until = self.loop.until
        return Region(
            loop=self.loop,
            uses=self._own(self.uses),
            ports=tuple(tuple(self._ports(use)) for use in self.uses),
            until=(self.place[until[0]], until[1]) if until is not None else None,
            outputs=tuple(self.outputs.values()),
            emits=tuple(e for e in self.edges if e.source.use == self.first and e.leave == "each"),
            followed=any(self.loop.index in use.loops and use.index not in self.place for use in self.walk.uses),
            sends=tuple(Sending(self.place[e.source.use], e) for e in self.walk.edges if self._goes_across(e)),
            others=self._own(self.others.values()),
            leads=self.leads,
        )

    def _own(self, uses: Iterable[UsePlan]) -> tuple[UsePlan, ...]:
        """With the conditions that not all of the core have."""
        return tuple(replace(use, when=use.when[len(self.common) :]) for use in uses)

    # ── uses ──

    def _use(self, use: UsePlan) -> UsePlan:
        before = tuple(dict.fromkeys(self.first if earlier in self.place else earlier for earlier in use.before))
        if use.index == self.first:
            return self._standing()
        if use.index in self.place:
            return replace(use, rank=Rank(_NOWHERE), before=())
        return replace(use, before=before)

    def _standing(self) -> UsePlan:
        nodes = [self.plan.nodes[use.node] for use in self.uses]
        before = {earlier for use in self.uses for earlier in use.before if earlier not in self.place}
        return UsePlan(
            index=self.first,
            name=self.loop.name,
            op="loop",
            node=-1,
            rank=self.uses[0].rank,
            loops=self.outer,
            when=self.common,
            before=tuple(sorted(before)),
            states=_unique(state for node in nodes for state in node.states.values()),
            writes=_unique(state for use in self.uses for state in use.writes),
        )

    # ── edges ──

    def _inside(self, edge: EdgePlan) -> bool:
        """Whether both ends of an edge into the core are in it."""
        if edge.source.kind == "loop":
            return edge.source.index == self.loop.index
        return edge.source.kind == "use" and edge.source.use in self.place

    def _comes_across(self, edge: EdgePlan) -> bool:
        return edge.source.kind == "use" and edge.source.use in self.others and edge.target.use in self.place

    def _goes_across(self, edge: EdgePlan) -> bool:
        return edge.source.kind == "use" and edge.source.use in self.place and edge.target.use in self.others

    def _edge(self, edge: EdgePlan) -> EdgePlan:
        if self._comes_across(edge) or self._goes_across(edge):
            return replace(edge, source=Source(kind="use"), target=Target(kind="use"))
        if edge.target.kind == "use" and edge.target.use in self.place:
            if self._inside(edge):
                return replace(edge, source=Source(kind="use"), target=Target(kind="use"))
            target = replace(edge.target, use=self.first, port=self._entry(edge))
            return replace(edge, target=target, enter_each=edge.enter_each and edge.common < len(self.outer))
        if edge.source.kind == "use" and edge.source.use in self.place:
            return self._leaving(edge)
        return edge

    def _entry(self, edge: EdgePlan) -> str:
        return f"{self.walk.uses[edge.target.use].name}.{edge.target.port}"

    def _leaving(self, edge: EdgePlan) -> EdgePlan:
        kind = "each" if self._to_follower(edge) else cast(Literal["each", "last", "collect"], edge.leave)
        key = f"{kind} {self.walk.uses[edge.source.use].name}.{edge.source.port}"
        self.outputs.setdefault(key, LoopOutput(key, self.place[edge.source.use], edge.source.port, kind))
        here = edge.common == len(self.outer)
        source = Source(kind="use", use=self.first, port=PARTS + key if kind == "collect" and not here else key)
        return replace(edge, source=source, leave="none" if here and kind != "each" else kind)

    def _to_follower(self, edge: EdgePlan) -> bool:
        return edge.target.kind == "use" and self.loop.index in self.walk.uses[edge.target.use].loops

    def _ports(self, use: UsePlan) -> Iterable[Port]:
        feeding: dict[str, list[EdgePlan]] = {}
        for edge in self.walk.edges:
            if edge.target.kind == "use" and edge.target.use == use.index:
                feeding.setdefault(edge.target.port, []).append(edge)
        for name, edges in feeding.items():
            inside = [edge for edge in edges if self._inside(edge)]
            across = next((edge for edge in edges if self._comes_across(edge)), None)
            outside = [edge for edge in edges if edge is not across and not self._inside(edge)]
            yield Port(
                name=name,
                entry=self._entry(outside[0]) if outside else None,
                each=any(edge.enter_each and edge.common == len(self.outer) for edge in outside),
                index=any(edge.source.kind == "loop" for edge in inside),
                source=self._from(edge for edge in inside if not edge.carried and edge.source.kind == "use"),
                carried=self._from(edge for edge in inside if edge.carried),
                across=across,
            )

    def _from(self, edges: Iterable[EdgePlan]) -> tuple[int, str] | None:
        return next(((self.place[edge.source.use], edge.source.port) for edge in edges), None)


def _unique(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(values))
