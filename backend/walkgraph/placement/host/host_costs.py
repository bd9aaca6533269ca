"""The time that values of a simulated request spend between hosts.

A value takes the latency of its link, and its bytes at the link's bandwidth. An edge has as many values as its source
is called at most, or one for each iteration of the loops around both of its ends, where it carries only the last one.
Where the size of values isn't known, the latency alone counts. Replicas cost what the first of them do.
States that move between two steps, verdicts, and values of the client are not counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from walkgraph.graph.document import Graph
from walkgraph.graph.structure import structures
from walkgraph.ids import Rank
from walkgraph.placement.capacity.budget import Copy
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.host.neighbours import hosts_of
from walkgraph.placement.routes import handed
from walkgraph.placement.simulate import Simulation, StepSeen, UseSeen
from walkgraph.placement.tables import EdgePlan, Plan, WalkPlan


@dataclass(frozen=True)
class HostCost:
    """Values of one edge, state or result that go from one host to another in a step."""

    pointer: str
    """JSON pointer into the author's graph; empty for a state."""
    what: str
    """`use.port -> use.port`, a result's input of a Walk, or a state's name."""
    source: str
    """Host."""
    target: str
    times: int | None
    """The most values; None if that can't be computed."""
    bytes: int | None
    """Bytes of each; None: not known."""
    seconds: float | None
    """Time that all of them take, one after the other, at least; None: the link or their number isn't known."""


Costs = Sequence[Sequence[Sequence[HostCost]]]
"""By lane and step."""


@dataclass(frozen=True)
class HostCosts:
    """The costs of steps under a plan. `sizes`: bytes of an edge's or result's values, by its pointer."""

    graph: Graph
    plan: Plan
    hardware: Hardware
    copies: Sequence[Copy] = ()
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])

    def of(self, task: str, found: Simulation) -> Costs:
        """The costs of each step that is taken or may be; none of other steps."""
        return [[self._step(task, step) for step in lane.steps] for lane in found.lanes]

    def _step(self, task: str, step: StepSeen) -> tuple[HostCost, ...]:
        if step.taken is False:
            return ()
        passes = 1 if step.passes is None else step.passes
        return (*self._handed(task, step, passes), *self._edges(step, passes), *self._states(step, passes))

    def _edges(self, step: StepSeen, passes: int) -> Iterator[HostCost]:
        walk, uses = _table(self.plan, step), {use.use: use for use in step.uses}
        # The edges of states and streams come behind those of the author's Walk.
        routes = [f"/walks/{walk.name}{route.pointer}" for route in structures(self.graph)[step.walk].routes]
        for edge, route in zip_longest(walk.edges, routes, fillvalue=""):
            if isinstance(edge, str) or edge.source.kind != "use":
                continue
            source, calls = walk.uses[edge.source.use], uses.get(walk.uses[edge.source.use].name)
            if calls is None or (times := _times(walk, edge, step, calls)) == 0:
                continue
            for target, end, pointer in _targets(self.plan, walk, edge, route):
                what = f"{source.name}.{edge.source.port} -> {end}"
                yield from self._cost(pointer, what, (source.rank, target), _product(times, passes))

    def _handed(self, task: str, step: StepSeen, passes: int) -> Iterator[HostCost]:
        for one in handed(self.graph, self.plan):
            if one.task == task and one.pointer.rpartition("/with/")[0] == f"/tasks/{task}{step.pointer}":
                yield from self._cost(one.pointer, f"{one.result} -> {one.input}", (one.source, one.target), passes)

    def _states(self, step: StepSeen, passes: int) -> Iterator[HostCost]:
        for copy in self.copies:
            if self.plan.walks[copy.walk].name == step.walk:
                name = self.plan.states[copy.state].name
                yield from self._cost("", name, (copy.source, copy.target), passes, copy.bytes or None)

    def _cost(
        self, pointer: str, what: str, ranks: tuple[Rank, Rank], times: int | None, nbytes: int | None = None
    ) -> Iterator[HostCost]:
        hosts = hosts_of(self.plan)
        source, target = (hosts[rank] or self.hardware.host for rank in ranks)
        if source == target:
            return
        nbytes, link = self.sizes.get(pointer, nbytes), self.hardware.link(source, target)
        seconds = None if link is None or times is None else times * link.seconds(nbytes or 0)
        yield HostCost(pointer, what, source, target, times, nbytes, seconds)


def total(costs: Costs) -> float | None:
    """Seconds of all costs that are known; None if none is."""
    known = [one.seconds for lane in costs for step in lane for one in step if one.seconds is not None]
    return sum(known) if known else None


def _table(plan: Plan, step: StepSeen) -> WalkPlan:
    """The step's Walk: of those of its name the one with the same loops, as one that a step runs per chunk has one
    more."""
    named = [walk for walk in plan.walks_of() if walk.name == step.walk]
    return next((walk for walk in named if {loop.name for loop in walk.loops} == {*step.loops}), named[0])


def _targets(plan: Plan, walk: WalkPlan, edge: EdgePlan, route: str) -> list[tuple[Rank, str, str]]:
    """The ranks to which an edge leads, with its end in words and its pointer; none for what goes to the client or to a
    later step. `route`: the pointer of an edge that the author drew."""
    match edge.target.kind:
        case "use":
            use = walk.uses[edge.target.use]
            return [(use.rank, f"{use.name}.{edge.target.port}", route)]
        case "stream":
            stream, place = plan.streams[edge.target.index], edge.target.index % len(plan.streams_of())
            return [(rank, f"@stream.{stream.name}", f"/streams/{place}") for rank in stream.consumers]
        case "out" | "result":
            return []


def _times(walk: WalkPlan, edge: EdgePlan, step: StepSeen, calls: UseSeen) -> int | None:
    """The most values of an edge; None if that can't be computed."""
    if calls.taken is False:
        return 0
    if edge.leave == "each" or edge.target.kind == "stream":
        return calls.iterations
    around = walk.uses[edge.source.use].loops[: edge.common]
    turns: int | None = 1
    for loop in around:
        turns = _product(turns, step.loops.get(walk.loops[loop].name))
    known = [count for count in (turns, calls.iterations) if count is not None]
    return min(known) if known else None


def _product(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one * other
