"""Selects the values of one run to probe on one rank: by taps, for its record, or because a call is held. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from walkgraph.ids import Rank, RunId
from walkgraph.placement.compiler.ends import named_source, target_of
from walkgraph.placement.tables import EdgePlan, NodePlan, Plan, StepPlan, UsePlan, WalkPlan
from walkgraph.wire.watching import Tap
from walkgraph.worker.events import ABSENT, MoveState, Observe, RunCall, RunLoop

Vector = tuple[int, ...]


class Observed:
    """The probes of a run as it goes."""

    def __init__(
        self, plan: Plan, rank: Rank, run: RunId, steps: Sequence[StepPlan], taps: Sequence[Tap], *, record: bool
    ) -> None:
        self._plan, self._rank, self._run, self._steps, self._record = plan, rank, run, steps, record
        self._taps: dict[tuple[str, str], tuple[Tap, ...]] = {}
        """Taps by Walk and source."""
        self._edges: dict[tuple[str, str, str], tuple[Tap, ...]] = {}
        """Taps by Walk, source and target."""
        self._uses = {(tap.walk, tap.source.partition(".")[0]) for tap in taps if not tap.to}
        for tap in taps:
            if tap.to:
                edge = tap.walk, tap.source, tap.to
                self._edges[edge] = (*self._edges.get(edge, ()), tap)
            else:
                self._taps[tap.walk, tap.source] = (*self._taps.get((tap.walk, tap.source), ()), tap)

    def outputs(self, step: int, use: int, at: Vector, outputs: Mapping[str, Any]) -> Iterator[Observe]:
        """Probe the outputs of a node's successful call. A port with a tap may be absent."""
        walk = self._walk(step)
        place = walk.uses[use]
        if place.op != "call" or not (self._record or (walk.name, place.name) in self._uses):
            return
        known = self._plan.nodes[place.node].outputs
        asked = {source.partition(".")[2] for name, source in self._taps if name == walk.name and _of(source, place)}
        for port in sorted({*outputs, *asked}):
            found = outputs.get(port, ABSENT)
            yield from self._seen(walk, step, f"{place.name}.{port}", at, known.get(port, ""), found)

    def input(self, step: int, name: str, value: Any) -> Iterator[Observe]:
        """Probe a Walk's input, on the lowest rank that reads it."""
        walk = self._walk(step)
        readers = [
            walk.uses[edge.target.use]
            for edge in walk.edges
            if (edge.source.kind, edge.source.port, edge.target.kind) == ("input", name, "use")
        ]
        if readers and min(use.rank for use in readers) == self._rank:
            yield from self._seen(walk, step, f"@in.{name}", (), walk.modalities.get(name, ""), value)

    def edges(self, step: int) -> frozenset[int]:
        """Indices of the edges in the step's Walk that have taps."""
        walk = self._walk(step)
        if not self._edges:
            return frozenset()
        return frozenset(edge.index for edge in walk.edges if _ends(walk, edge) in self._edges)

    def passing(self, step: int, index: int, at: Vector, value: Any) -> Iterator[Observe]:
        """Probe a value that passes over an edge; for an edge out of a loop, the value that leaves the loop."""
        walk = self._walk(step)
        edge = walk.edges[index]
        taps = self._edges.get(_ends(walk, edge), ())
        if taps and not (edge.merged and value is ABSENT):
            modality = self._plan.nodes[walk.uses[edge.source.use].node].outputs.get(edge.source.port, "")
            yield Observe("tap", self._run, walk.name, step, named_source(walk, edge), at, modality, value, taps)

    def _seen(self, walk: WalkPlan, step: int, source: str, at: Vector, modality: str, value: Any) -> Iterator[Observe]:
        if self._record and value is not ABSENT:
            yield Observe("record", self._run, walk.name, step, source, at, modality, value)
        taps = self._taps.get((walk.name, source), ())
        if taps:
            yield Observe("tap", self._run, walk.name, step, source, at, modality, value, taps)

    def _walk(self, step: int) -> WalkPlan:
        return self._plan.walks[self._steps[step].walk]


def held_values(plan: Plan, steps: Sequence[StepPlan], command: RunCall | RunLoop | MoveState) -> Iterator[Observe]:
    """Probe the inputs and states of a held call, named `use.port` and `use.slot`."""
    if isinstance(command, MoveState):
        return
    call = command.call
    walk = plan.walks[steps[call.step].walk]
    if isinstance(command, RunCall):
        uses = [(walk.uses[call.use], command.call.inputs, command.call.states)]
    else:
        places = {use.name: use for use in walk.uses}
        # Inner loops are shown by their first iteration.
        uses = [
            (
                places[one.name],
                {p: source.given(command.call.values) for p, source in one.sources.items() if source.enters},
                {slot: command.call.states[name] for slot, name in one.states.items()},
            )
            for one in command.call.spec.uses
            if not any(one.inner)
        ]
    kinds = {state.name: state.kind for state in plan.states}
    for use, inputs, states in uses:
        known = _node(plan, use).inputs
        where = RunId(call.run), walk.name, call.step
        for port, value in inputs.items():
            name = port if "." in port else f"{use.name}.{port}"  # those of a chain have the names of its uses
            yield Observe("held", *where, name, call.iteration, known.get(port, ""), value)
        for slot, key in states.items():
            yield Observe("held", *where, f"{use.name}.{slot}", call.iteration, kinds.get(key.state, ""), key)


def _node(plan: Plan, use: UsePlan) -> NodePlan:
    return plan.nodes[use.node]


def _ends(walk: WalkPlan, edge: EdgePlan) -> tuple[str, str, str]:
    return walk.name, named_source(walk, edge), target_of(walk, edge)


def _of(source: str, use: UsePlan) -> bool:
    return source.partition(".")[0] == use.name
