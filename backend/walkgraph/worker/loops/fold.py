"""Resident loops folded away: in a rank's own table the core of each is one use, at the place of its first, without
inner edges; what follows it stays as it is, inside the loop. Of a core on several ranks each folds its part.

Edges keep their indices and, between ranks, their keys: peers know nothing of it. Entering edges feed ports named
`use.port`; leaving ones come from ports named by what is wanted of a use's port (`last llm.token`). Those to followers
leave with `each`, under the key of the iteration. Loops inside are unrolled when a run enters (`unrolling`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from msgspec.structs import replace

from walkgraph.engine.loops.spec import LoopOutput
from walkgraph.ids import Rank
from walkgraph.placement.compiler.inside import common_conditions
from walkgraph.placement.compiler.spanning import leader
from walkgraph.placement.tables import EdgePlan, EdgeSource, LoopPlan, Plan, Target, UsePlan, WalkPlan
from walkgraph.worker.loops.unrolling import Link, Port

_NOWHERE = -1
PARTS = "parts "
"""Begins the port of what an outer loop goes on to collect."""


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
    inside: tuple[tuple[int, ...], ...]
    """Of each use, the loops inside that hold it."""
    ports: tuple[tuple[Port, ...], ...]
    """Of each use."""
    until: tuple[int, str] | None
    outputs: tuple[LoopOutput, ...]
    """Uses are told by their place in the core."""
    emits: tuple[EdgePlan, ...]
    """Edges whose values go out while it runs, `source.port` being the output's key: leaving ones, and those to
    followers."""
    followed: bool
    """Uses inside, on whatever rank, are not iterated here."""
    across: dict[tuple[int, str], EdgePlan]
    """What another rank's part of the loop feeds: use, by its place, and port."""
    forks: tuple[UsePlan, ...]
    """Made when a run enters."""
    anew: tuple[int, ...]
    """States that begin every iteration empty."""
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
        if loop.within < 0 and any(walk.uses[use].rank == rank for use in loop.core):
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
        self.common = common_conditions(walk, core, loop)
        self.place = {use.index: place for place, use in enumerate(self.uses)}
        self.forks = tuple(walk.uses[index] for index in loop.forks if walk.uses[index].rank == rank)
        self.gone = {*self.place, *loop.forks}
        """Uses that the folded one stands for."""
        self.first = self.uses[0].index
        self.outer = self.uses[0].loops[: self.uses[0].loops.index(loop.index)]
        self.inside = tuple(use.loops[len(self.outer) + 1 :] for use in self.uses)
        self.outputs: dict[str, LoopOutput] = {}
        self.edges = tuple(self._edge(edge) for edge in walk.edges)

    def folded(self) -> WalkPlan:
        return replace(self.walk, uses=tuple(self._use(use) for use in self.walk.uses), edges=self.edges)

    def region(self) -> Region:
        until = self.loop.until
        return Region(
            loop=self.loop,
            uses=self._own(self.uses),
            inside=self.inside,
            ports=tuple(tuple(self._ports(use)) for use in self.uses),
            until=(self.place[until[0]], until[1]) if until is not None else None,
            outputs=tuple(self.outputs.values()),
            emits=tuple(e for e in self.edges if e.source.use == self.first and e.leave == "each"),
            followed=any(self.loop.index in use.loops and use.index not in self.gone for use in self.walk.uses),
            across={(self.place[e.target.use], e.target.port): e for e in self.walk.edges if self._comes_across(e)},
            forks=self.forks,
            anew=self._anew(),
            sends=tuple(Sending(self.place[e.source.use], e) for e in self.walk.edges if self._goes_across(e)),
            others=self._own(self.others.values()),
            leads=self.leads,
        )

    def _own(self, uses: Iterable[UsePlan]) -> tuple[UsePlan, ...]:
        """With the conditions that not all of the core have."""
        return tuple(replace(use, when=use.when[len(self.common) :]) for use in uses)

    def _anew(self) -> tuple[int, ...]:
        copied = {fork.states[1] for fork in self.forks}
        states = _unique(state for use in self.uses for state in self.plan.nodes[use.node].states.values())
        return tuple(s for s in states if s not in copied and self.walk.state_scopes.get(s, 0) > len(self.outer))

    # ── uses ──

    def _use(self, use: UsePlan) -> UsePlan:
        before = tuple(dict.fromkeys(self.first if earlier in self.gone else earlier for earlier in use.before))
        if use.index == self.first:
            return self._standing()
        if use.index in self.gone:
            return replace(use, rank=Rank(_NOWHERE), before=())
        return replace(use, before=before)

    def _standing(self) -> UsePlan:
        nodes = [self.plan.nodes[use.node] for use in self.uses]
        standing = (*self.uses, *self.forks)
        before = {earlier for use in standing for earlier in use.before if earlier not in self.gone}
        return UsePlan(
            index=self.first,
            name=self.loop.name,
            op="loop",
            node=-1,
            rank=self.uses[0].rank,
            loops=self.outer,
            when=self.common,
            before=tuple(sorted(before)),
            states=_unique(
                (*(s for node in nodes for s in node.states.values()), *(s for fork in self.forks for s in fork.states))
            ),
            writes=_unique(state for use in standing for state in use.writes),
        )

    # ── edges ──

    def _inside(self, edge: EdgePlan) -> bool:
        """Whether both ends of an edge into the core are in it."""
        if edge.source.kind == "loop":
            return edge.source.index == self.loop.index or any(edge.source.index in inner for inner in self.inside)
        return edge.source.kind == "use" and edge.source.use in self.place

    def _comes_across(self, edge: EdgePlan) -> bool:
        return edge.source.kind == "use" and edge.source.use in self.others and edge.target.use in self.place

    def _goes_across(self, edge: EdgePlan) -> bool:
        return edge.source.kind == "use" and edge.source.use in self.place and edge.target.use in self.others

    def _edge(self, edge: EdgePlan) -> EdgePlan:
        if self._comes_across(edge) or self._goes_across(edge):
            return replace(edge, source=EdgeSource(kind="use"), target=Target(kind="use"))
        if edge.target.kind == "use" and edge.target.use in self.place:
            if self._inside(edge):
                return replace(edge, source=EdgeSource(kind="use"), target=Target(kind="use"))
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
        source = EdgeSource(kind="use", use=self.first, port=PARTS + key if kind == "collect" and not here else key)
        return replace(edge, source=source, leave="none" if here and kind != "each" else kind)

    def _to_follower(self, edge: EdgePlan) -> bool:
        return edge.target.kind == "use" and self.loop.index in self.walk.uses[edge.target.use].loops

    def _ports(self, use: UsePlan) -> Iterator[Port]:
        feeding: dict[str, list[EdgePlan]] = {}
        for edge in self.walk.edges:
            if edge.target.kind == "use" and edge.target.use == use.index:
                feeding.setdefault(edge.target.port, []).append(edge)
        for name, edges in feeding.items():
            inside = [edge for edge in edges if self._inside(edge)]
            across = any(self._comes_across(edge) for edge in edges)
            outside = [edge for edge in edges if not self._comes_across(edge) and not self._inside(edge)]
            carried = sorted((edge for edge in inside if edge.carried), key=lambda edge: -edge.common)
            plain = next((edge for edge in inside if not edge.carried), None)
            index = plain.common - len(self.outer) - 1 if plain and plain.source.kind == "loop" else None
            yield Port(
                name=name,
                entry=self._entry(outside[0]) if outside else None,
                each=any(edge.enter_each and edge.common == len(self.outer) for edge in outside),
                index=index,
                source=self._link(plain) if plain is not None and plain.source.kind == "use" else None,
                carried=tuple(self._link(edge) for edge in carried),
                across=across,
            )

    def _link(self, edge: EdgePlan) -> Link:
        source, common = edge.source, edge.common - len(self.outer) - 1
        return Link(self.place[source.use], source.port, common, edge.leave == "collect", edge.enter_each)


def _unique(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(values))
