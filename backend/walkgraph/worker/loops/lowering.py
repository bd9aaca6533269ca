"""Lowers device loops: from the plan to a rank's Walk, and to the specs that its engine runs.

In a rank's own table, all uses that a device loop iterates there become one *standing use*, in the place of the first
and without inner edges. Followers of the loop stay as they are, inside it. Edges keep their indices and, between ranks,
their keys, so that peers see no difference. Entering edges feed ports named `use.port`. Leaving edges come from ports
named by how a use's port leaves (`last llm.token`); those to followers leave with `each`, under the key of the
iteration.

A spec unrolls inner loops. Their counts follow from parameters, so there is one spec for each size.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Literal, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from walkgraph.engine.loops.spec import (
    Channel,
    ChannelPort,
    DeviceChoice,
    LoopOutput,
    LoopSource,
    LoopSpec,
    LoopUseSpec,
    Place,
    state_name,
)
from walkgraph.ids import Rank
from walkgraph.placement.compiler.loop_contents import common_conditions
from walkgraph.placement.compiler.loop_decisions import leader
from walkgraph.placement.tables import EdgePlan, EdgeSource, Gather, LoopPlan, Plan, Target, UsePlan, WalkPlan
from walkgraph.worker.loops.device_choices import MERGED, DeviceChoices

K = TypeVar("K")
V = TypeVar("V")

_NOWHERE = -1
PARTS = "parts "
"""Prefix of a port whose values an outer loop goes on collecting."""
MOST = 512
"""The most uses in an unrolled iteration; in a loop with more, the inner loops run by themselves."""
_MOST_SPECS = 64
"""The most specs of one loop; the least recently made go first."""


class Feed(NamedTuple):
    """The edges into one port of a use that a device loop iterates."""

    port: str
    entry: str | None
    """The port of the standing use by which a value enters."""
    sliced: bool
    """True if a sequence enters: slice i goes to iteration i."""
    plain: EdgePlan | None
    """The edge within an iteration."""
    carried: tuple[EdgePlan, ...]
    """Edges from the previous iteration, those of the innermost loop first; the last may belong to the device loop
    itself."""
    across: EdgePlan | None
    """The edge from another rank's part of the loop."""
    items: EdgePlan | None = None
    """The edge from a stream, of which every iteration reads an item."""


class DeviceLoop:
    """The part of a Walk's loop that this rank's device iterates; for the walker, one use stands for it.

    `until`, outputs and sends name a use by its index in `uses`, until the loop is unrolled.
    """

    def __init__(self, plan: Plan, walk: WalkPlan, loop: LoopPlan, rank: Rank) -> None:
        self.plan, self._walk = loop, walk
        iterated = tuple(walk.uses[index] for index in loop.core)
        common = common_conditions(walk, iterated, loop)
        own = [
            replace(use, when=use.when[len(common) :], cases=tuple(c for c in use.cases if c[0] not in loop.choices))
            for use in iterated
        ]
        self.uses = tuple(use for use in own if use.rank == rank)
        """Uses that it iterates here, with conditions of their own only: the standing use has the common ones."""
        self.nodes = tuple(plan.nodes[use.node] for use in self.uses)
        """The nodes of these uses."""
        self._states = _unique(state for node in self.nodes for state in node.states.values())
        self.place = {use.index: place for place, use in enumerate(self.uses)}
        """Use -> its index in `uses`."""
        self.others = {use.index: use for use in own if use.rank != rank}
        """Uses that it iterates on other ranks, likewise."""
        self.leads = leader(iterated) == rank
        self.forks = tuple(walk.uses[index] for index in loop.forks if walk.uses[index].rank == rank)
        """Forks that are made when a run enters."""
        self._gone = {*self.place, *loop.forks, *(walk.choices[choice].use for choice in loop.choices)}
        """Uses that the standing use replaces."""
        self.first = self.uses[0].index
        """Index of the standing use."""
        self.choices = DeviceChoices(walk, loop, self.place)
        """The choices that it makes here."""
        self._outer = self.uses[0].loops[: self.uses[0].loops.index(loop.index)]
        self.depth = len(self._outer)
        """The number of loops around it."""
        self.inside = tuple(use.loops[self.depth + 1 :] for use in self.uses)
        """For each use, the inner loops that hold it."""
        self.anew = self._anew()
        """States that begin every iteration empty."""
        self.feeds = tuple(tuple(self._feeds(use)) for use in self.uses)
        """The feeds of each use."""
        self.items = tuple(
            ((at, feed.port), feed.items)
            for at, feeds in enumerate(self.feeds)
            for feed in feeds
            if feed.items is not None
        )
        """The ports that read items of streams, and the edges that bring them."""
        self.until: Place | None = (self.place[loop.until[0]], loop.until[1]) if loop.until is not None else None
        self.sends = tuple((self.place[e.source.use], e) for e in walk.edges if self._goes_across(e))
        """Edges to another rank's part of the loop, each with its source's index in `uses`."""
        self.followed = any(loop.index in use.loops and use.index not in self._gone for use in walk.uses)
        """True if the loop has followers: uses inside it, on any rank, that the device does not iterate."""
        self.outputs: dict[str, LoopOutput] = {}
        """Outputs by key."""
        self.gathers: dict[str, Gather] = {}
        """How the values of a collected output are gathered, by its key."""
        edges = tuple(self._edge(edge) for edge in walk.edges)
        self.reasons = tuple(self._reasons())
        self.emits = tuple(e for e in edges if e.source.use == self.first and e.leave == "each")
        """Edges whose values leave while it runs: leaving edges, and those to followers. `source.port` is the output's
        key."""
        self.follows = tuple(edge for edge in self.emits if edge.target.kind == "use")
        """Edges to followers."""
        self.walked = replace(walk, uses=tuple(self._use(use, common) for use in walk.uses), edges=edges)
        """The Walk as this rank's walkers see it."""

    @cached_property
    def across(self) -> Mapping[int, EdgePlan]:
        """The edges from other ranks' parts, by index."""
        edges = (feed.across for feeds in self.feeds for feed in feeds)
        return {edge.index: edge for edge in edges if edge is not None}

    @cached_property
    def collecting(self) -> frozenset[int]:
        """Indices of uses whose values from several inner iterations are stacked within one iteration."""
        return frozenset(
            self.place[edge.source.use]
            for feeds in self.feeds
            for feed in feeds
            for edge in (*feed.carried, *([feed.plain] if feed.plain is not None else []))
            if edge.leave == "collect"
        )

    def _anew(self) -> tuple[int, ...]:
        copied = {fork.states[1] for fork in self.forks}
        return tuple(s for s in self._states if s not in copied and self._walk.state_scopes.get(s, 0) > self.depth)

    # ── uses ──

    def _use(self, use: UsePlan, common: tuple[str, ...]) -> UsePlan:
        before = tuple(dict.fromkeys(self.first if earlier in self._gone else earlier for earlier in use.before))
        if use.index == self.first:
            return self._standing(common)
        if use.index in self._gone:
            return replace(use, rank=Rank(_NOWHERE), before=())
        return replace(use, before=before)

    def _standing(self, common: tuple[str, ...]) -> UsePlan:
        standing = (*self.uses, *self.forks)
        before = {earlier for use in standing for earlier in use.before if earlier not in self._gone}
        return UsePlan(
            index=self.first,
            name=self.plan.name,
            op="loop",
            node=-1,
            rank=self.uses[0].rank,
            loops=self._outer,
            when=common,
            before=tuple(sorted(before)),
            states=_unique((*self._states, *(state for fork in self.forks for state in fork.states))),
            writes=_unique(state for use in standing for state in use.writes),
            cases=self.uses[0].cases,
        )

    # ── edges ──

    def _inside(self, edge: EdgePlan) -> bool:
        """True if both ends of an edge to a use of the loop are in the loop."""
        if edge.source.kind == "loop":
            return edge.source.index == self.plan.index or any(edge.source.index in inner for inner in self.inside)
        return edge.source.kind == "use" and edge.source.use in self.place

    def _comes_across(self, edge: EdgePlan) -> bool:
        return edge.source.kind == "use" and edge.source.use in self.others and edge.target.use in self.place

    def _goes_across(self, edge: EdgePlan) -> bool:
        return edge.source.kind == "use" and edge.source.use in self.place and edge.target.use in self.others

    def _edge(self, edge: EdgePlan) -> EdgePlan:
        if self._comes_across(edge) or self._goes_across(edge) or edge.target.use in self.choices.heads:
            return _dropped(edge)
        if edge.target.kind == "use" and edge.target.use in self.place:
            if self._inside(edge) or edge.source.kind == "stream":
                return _dropped(edge)
            target = replace(edge.target, use=self.first, port=self._entry(edge))
            return replace(edge, target=target, enter_each=edge.enter_each and edge.sliced < self.depth)
        if edge.source.kind == "use" and edge.source.use in self.place:
            return self._leaving(edge)
        return edge

    def _entry(self, edge: EdgePlan) -> str:
        return f"{self._walk.uses[edge.target.use].name}.{edge.target.port}"

    def _leaving(self, edge: EdgePlan) -> EdgePlan:
        kind = "each" if self._to_follower(edge) else cast(Literal["each", "last", "collect"], edge.leave)
        here, place = edge.common == self.depth, self.place[edge.source.use]
        # Of a value that an outer loop goes on collecting, only that one makes what `collect` says.
        how: Gather = edge.gather if kind == "collect" and here else "stack"
        key = f"{kind} {self._walk.uses[edge.source.use].name}.{edge.source.port}"
        key = key if how == "stack" else f"{key} {how}"
        drops = kind == "collect" and self.plan.drop_last and not self.inside[place]
        self.outputs.setdefault(key, LoopOutput(key, place, edge.source.port, kind, drops))
        self.gathers[key] = how
        source = EdgeSource(kind="use", use=self.first, port=PARTS + key if kind == "collect" and not here else key)
        return replace(edge, source=source, leave="none" if here and kind != "each" else kind)

    def _reasons(self) -> Iterator[tuple[str, str]]:
        """Flags that say why its `until` ended it, with the keys of their outputs."""
        if self.until is None or not self.leads:
            return
        place, port = self.until
        for flag in self.nodes[place].reasons.get(port, ()):
            key = f"last {self.uses[place].name}.{flag}"
            self.outputs.setdefault(key, LoopOutput(key, place, flag, "last"))
            yield flag, key

    def _to_follower(self, edge: EdgePlan) -> bool:
        return edge.target.kind == "use" and self.plan.index in self._walk.uses[edge.target.use].loops

    def _feeds(self, use: UsePlan) -> Iterator[Feed]:
        feeding: dict[str, list[EdgePlan]] = {}
        for edge in self._walk.edges:
            if edge.target.kind == "use" and edge.target.use == use.index:
                feeding.setdefault(edge.target.port, []).append(edge)
        for port, edges in feeding.items():
            inside = [edge for edge in edges if self._inside(edge)]
            items = next((edge for edge in edges if edge.source.kind == "stream"), None)
            outside = [e for e in edges if not self._comes_across(e) and not self._inside(e) and e is not items]
            yield Feed(
                port=port,
                entry=self._entry(outside[0]) if outside else None,
                sliced=any(edge.enter_each and edge.sliced == self.depth for edge in outside),
                plain=next((edge for edge in inside if not edge.carried), None),
                carried=tuple(sorted((edge for edge in inside if edge.carried), key=lambda edge: -edge.common)),
                across=next((edge for edge in reversed(edges) if self._comes_across(edge)), None),
                items=items,
            )


def _dropped(edge: EdgePlan) -> EdgePlan:
    """An edge that the walker doesn't see."""
    return replace(edge, source=EdgeSource(kind="use"), target=Target(kind="use"))


def device_loops(plan: Plan, walk: WalkPlan, rank: Rank) -> tuple[WalkPlan, dict[int, DeviceLoop]]:
    """The Walk as this rank's walkers see it, and its standing uses with their loops. Replaced uses have no rank any
    more."""
    found: dict[int, DeviceLoop] = {}
    for loop in walk.loops:
        if loop.within < 0 and any(walk.uses[use].rank == rank for use in loop.core):
            here = DeviceLoop(plan, walk, loop, rank)
            walk, found[here.first] = here.walked, here
    return walk, found


def _unique(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(values))


# ── loops inside, unrolled ──────────────────────────────────────────────────────────────────────


class Instance(NamedTuple):
    """A use at given indices of the inner loops; `()` if it is in none."""

    place: int
    """Its index among the uses of the device loop."""
    inner: tuple[int, ...]


def _block(
    inside: Sequence[tuple[int, ...]], times: Mapping[int, int], places: Sequence[int], at: tuple[int, ...]
) -> Iterator[Instance]:
    """Yield one iteration of what holds these uses, in the order of the calls: uses, and inner loops with all their
    iterations. `inside`: for each use, the inner loops that hold it."""
    begun: set[int] = set()
    for place in places:
        loops = inside[place]
        if len(loops) == len(at):
            yield Instance(place, at)
        elif (loop := loops[len(at)]) not in begun:
            begun.add(loop)
            mine = [other for other in places if inside[other][len(at) : len(at) + 1] == (loop,)]
            for index in range(times[loop]):
                yield from _block(inside, times, mine, (*at, index))


def unrolls(inside: Sequence[tuple[int, ...]], times: Mapping[int, int]) -> bool:
    """True if each use has at least one instance, and there are not too many."""
    counts = [prod(times[loop] for loop in loops) for loops in inside]
    return min(times.values(), default=1) > 0 and sum(counts) <= MOST


def part_key(key: str, number: int) -> str:
    """Key of one instance's part of an output."""
    return f"{key} #{number}"


class Unrolled:
    """An iteration at given counts of the inner loops. Each use has at least one instance."""

    def __init__(self, inside: Sequence[tuple[int, ...]], times: Mapping[int, int]) -> None:
        self.counts = tuple(times.values())
        self.order = list(_block(inside, times, range(len(inside)), ()))
        self._at: dict[int, list[int]] = {}
        """Index of a use -> indices of its instances in `order`."""
        for at, one in enumerate(self.order):
            self._at.setdefault(one.place, []).append(at)

    def of(self, place: int) -> list[int]:
        """Indices of a use's instances."""
        return self._at[place]

    def last(self, place: int) -> int:
        return self._at[place][-1]

    def under(self, place: int, inner: tuple[int, ...]) -> list[int]:
        """Indices of a use's instances under these leading indices."""
        return [at for at in self._at[place] if self.order[at].inner[: len(inner)] == inner]


# ── the spec ────────────────────────────────────────────────────────────────────────────────────


class Lowering:
    """The specs of one device loop on one rank, by what the entries have; each is made once."""

    def __init__(self, loop: DeviceLoop, varying: Iterable[Collection[str]]) -> None:
        """`varying`: for each use, the parameters that change with the loop's index."""
        self.loop = loop
        self._varying = [tuple(sorted(names)) for names in varying]
        states = dict.fromkeys(state for node in loop.nodes for _, state in sorted(node.states.items()))
        self.states = {state: state_name(index) for index, state in enumerate(states)}
        """State of the plan -> its name in the specs."""
        self._unrolled: dict[tuple[int, ...], Unrolled] = {}
        self._specs: dict[object, LoopSpec] = {}

    def unrolled(self, times: Mapping[int, int]) -> Unrolled:
        """Unroll the inner loops. `times`: their counts."""
        key = tuple(times.values())
        found = self._unrolled.get(key)
        if found is None:
            found = _kept(self._unrolled, key, Unrolled(self.loop.inside, times))
        return found

    def spec(
        self, unrolled: Unrolled, entries: Collection[str], sent: Collection[str], called: Callable[[int], bool]
    ) -> LoopSpec:
        """`entries`: ports of the standing use that have a value. `sent`: keys of the `each` outputs that somebody
        reads. `called`: true if any iteration calls an instance; asked only for instances whose values are stacked."""
        stacked = frozenset(at for place in self.loop.collecting for at in unrolled.of(place) if called(at))
        key = unrolled.counts, frozenset(entries), frozenset(sent), stacked
        found = self._specs.get(key)
        if found is None:
            found = _kept(self._specs, key, _Lowered(self, unrolled, entries, stacked).spec(sent))
        return found

    def use(
        self,
        place: int,
        inner: tuple[int, ...],
        sources: Mapping[str, LoopSource],
        branch: tuple[DeviceChoice, int] | None,
    ) -> LoopUseSpec:
        node, use = self.loop.nodes[place], self.loop.uses[place]
        states = {slot: self.states[state] for slot, state in node.states.items()}
        return LoopUseSpec(node.name, use.name, sources, states, self._varying[place], inner, branch)


class _Lowered:
    """Builds one spec."""

    def __init__(
        self, lowering: Lowering, unrolled: Unrolled, entries: Collection[str], stacked: Collection[int]
    ) -> None:
        self.lowering, self.loop, self.unrolled = lowering, lowering.loop, unrolled
        self.entries, self.stacked = entries, stacked
        self.reads: list[ChannelPort] = []

    def spec(self, sent: Collection[str]) -> LoopSpec:
        loop, last = self.loop, self.unrolled.last
        uses = tuple(self._use(at, one) for at, one in enumerate(self.unrolled.order))
        return LoopSpec(
            walk=loop.walked.name,
            use=loop.first,
            loop=loop.plan.name,
            uses=uses,
            until=(last(loop.until[0]), loop.until[1]) if loop.until is not None else None,
            outputs=tuple(out for out in self._outputs() if out.kind != "each" or out.key in sent),
            reasons=loop.reasons,
            reads=tuple(self.reads),
            merges=tuple(loop.choices.lowered(last)),
            sends=tuple(
                ChannelPort(last(place), edge.source.port, Channel(edge.index, loop.others[edge.target.use].rank))
                for place, edge in loop.sends
            ),
            usual=loop.plan.usual,
            leads=loop.leads,
        )

    def _use(self, at: int, one: Instance) -> LoopUseSpec:
        sources: dict[str, LoopSource] = {}
        for feed in self.loop.feeds[one.place]:
            source = self._source(feed, one) if feed.across is None else self._across(feed, feed.across, at)
            if source is not None:
                sources[feed.port] = source
        branch = self.loop.choices.branch(one.place, self.unrolled.last)
        return self.lowering.use(one.place, one.inner, sources, branch)

    def _outputs(self) -> Iterator[LoopOutput]:
        """The outputs; a collected output of several instances has a key for each."""
        for out in self.loop.outputs.values():
            places = self.unrolled.of(out.use)
            if out.kind == "collect" and len(places) > 1:
                yield from (out._replace(key=part_key(out.key, n), use=at) for n, at in enumerate(places))
            else:
                yield out._replace(use=places[-1])

    def _across(self, feed: Feed, edge: EdgePlan, at: int) -> LoopSource:
        """The source of a value from another rank's part. A loop with such parts has no inner loops."""
        channel = Channel(edge.index, self.loop.others[edge.source.use].rank)
        self.reads.append(ChannelPort(at, feed.port, channel))
        number = len(self.reads) - 1
        if not edge.carried:
            return LoopSource("channel", channel=number)
        entry = feed.entry if feed.entry in self.entries else None
        return LoopSource("behind", channel=number, entry=entry, sliced=feed.sliced)

    def _source(self, feed: Feed, one: Instance) -> LoopSource | None:
        links = ((edge, self._common(edge)) for edge in feed.carried)
        carried, common = next(((e, common) for e, common in links if not common or one.inner[common - 1]), (None, 0))
        if carried is not None and common:
            return self._linked(carried, one, (*one.inner[: common - 1], one.inner[common - 1] - 1))
        plain = self._plain(feed, one)
        if carried is None:
            return plain
        source, port = self._origin(carried)
        place = self.unrolled.last(source), port
        if plain is None or not plain.enters:
            return LoopSource("carried", place, first=plain)
        return LoopSource("carried", place, entry=plain.entry, constant=plain.constant, sliced=plain.sliced)

    def _plain(self, feed: Feed, one: Instance) -> LoopSource | None:
        if feed.items is not None:
            return LoopSource("item")
        if feed.entry is not None and feed.entry in self.entries:
            return LoopSource("each" if feed.sliced else "entering", entry=feed.entry, sliced=feed.sliced)
        edge = feed.plain
        if edge is None:
            return None
        common = self._common(edge)
        if edge.source.kind == "use":
            return self._linked(edge, one, one.inner[:common])
        return LoopSource("entering", constant=one.inner[common - 1]) if common else LoopSource("index")

    def _linked(self, edge: EdgePlan, one: Instance, under: tuple[int, ...]) -> LoopSource | None:
        """The source of the value that the edge's source gave under these indices."""
        source, port = self._origin(edge)
        places = self.unrolled.under(source, under)
        if edge.leave == "collect" and len(self.unrolled.order[places[-1]].inner) > len(under):
            there = tuple((at, port) for at in places if at in self.stacked)
            return LoopSource("stack", places=there) if there else None
        common = self._common(edge)
        part = one.inner[common] if edge.enter_each and len(one.inner) > common else None
        return LoopSource("internal", (places[-1], port), part=part)

    def _origin(self, edge: EdgePlan) -> Place:
        """The use, by its index in the loop, and the port that give an edge's value."""
        if edge.merged in self.loop.choices.merges:
            return self.loop.choices.last(edge.merged), MERGED + edge.merged
        return self.loop.place[edge.source.use], edge.source.port

    def _common(self, edge: EdgePlan) -> int:
        """How many inner loops hold both ends of an edge; for an index, which loop it belongs to, 0 for the device
        loop."""
        return edge.common - self.loop.depth - 1


def _kept(kept: dict[K, V], key: K, value: V) -> V:
    if len(kept) >= _MOST_SPECS:
        kept.pop(next(iter(kept)))
    kept[key] = value
    return value
