"""What an iteration of a resident loop is made of, worked out when a run enters it: its uses with what feeds them, the
iterations that call them, their parameters, and the first iteration that can't be."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from walkgraph.abi.calls import Scalar, StateKey
from walkgraph.engine.loops.spec import Anew, Channel, LoopInput, LoopSend, LoopUse
from walkgraph.errors import ErrorInfo
from walkgraph.graph.language.expressions import ExpressionError
from walkgraph.placement.tables import EdgePlan
from walkgraph.worker.loops.unrolling import Unrolled
from walkgraph.worker.walk import shaping
from walkgraph.worker.walk.call_arguments import Calls, Lacking, no_value
from walkgraph.worker.walk.cursor import Vector, indices
from walkgraph.worker.walk.walk_tables import Conditions, RegionTable, UseTable
from walkgraph.worker.walk.walker import Walker

Taken = tuple[bool, ...]
"""Iteration by iteration."""
Others = Mapping[int, Taken | None]
"""Use of another rank's part -> the iterations that call it, None: all."""


class Bound(NamedTuple):
    """A loop that comes to iteration `at` fails there."""

    at: int
    error: ErrorInfo | Lacking

    @property
    def info(self) -> ErrorInfo:
        return self.error.error if isinstance(self.error, Lacking) else self.error


@dataclass(frozen=True, slots=True)
class Entering:
    """A run that enters a loop."""

    walker: Walker
    table: RegionTable
    at: Vector
    inputs: Mapping[str, Any]
    """Those of the folded use."""
    times: int
    unrolled: Unrolled


class Bodies:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def body(self, enters: Entering, others: Others) -> tuple[list[LoopUse], Bound | None]:
        """The uses inside, and the first iteration that can't be."""
        table, at, times = enters.table, enters.at, enters.times
        body: list[LoopUse] = []
        asks: list[bool] = []
        bound: Bound | None = None
        for one in enters.unrolled.order:
            use, inner = table.body[one.place], one.inner
            active, failed = self.taken(table.conditions[one.place], at, times if bound is None else bound.at, inner)
            sources = tuple(
                _across(enters.unrolled.input(port, one, enters.inputs, asks), one.place, table, active, others, times)
                for port in table.plan.ports[one.place]
            )
            bound = _first(bound, failed)
            count = times if bound is None else bound.at
            bound = _first(bound, self._lacking(use, sources, body, active, at, inner, count))
            params, failed = self._params(enters.walker, use, at, inner, active, count)
            bound = _first(bound, failed)
            varying, failed = self._varying(use, at, inner, times if bound is None else bound.at, active)
            bound = _first(bound, failed)
            node, states = use.node.name if use.node else "", self._calls.states(enters.walker, use, at)
            seed = self._calls.seed(node)
            asks.append(active is None or any(active))
            body.append(LoopUse(node, sources, params, varying, states, seed, active, use.plan.name, inner))
        return body, bound

    def anew(self, enters: Entering) -> dict[StateKey, Anew]:
        """States that begin every iteration as they are when the run enters; raises ExpressionError."""
        region, found = enters.table.plan, dict[StateKey, Anew]()
        copied = [(fork.states[1], self._calls.key(enters.walker, fork.states[0], enters.at)) for fork in region.forks]
        for state, source in (*copied, *((state, None) for state in region.anew)):
            width = int(enters.table.widths[state](self._calls.given, {}))
            found[self._calls.key(enters.walker, state, enters.at)] = Anew(source, width)
        return found

    def widths(self, enters: Entering, anew: Collection[StateKey]) -> dict[StateKey, int]:
        """Sequences of the other states that may have several; raises ExpressionError."""
        found = {
            self._calls.key(enters.walker, state, enters.at): int(width(self._calls.given, {}))
            for state, width in enters.table.widths.items()
        }
        return {key: width for key, width in found.items() if key not in anew}

    def sends(self, enters: Entering, body: Sequence[LoopUse], others: Others) -> tuple[LoopSend, ...]:
        found: list[LoopSend] = []
        table, times = enters.table, enters.times
        for place, edge in table.plan.sends:
            use = enters.unrolled.last(place)
            reads = others[edge.target.use]
            if edge.carried:
                # One more than is read costs nothing, and fewer iterations differ.
                active = None if reads is None else _either(reads, times)
            else:
                active = _both(body[use].active, reads, times)
            channel = Channel(edge.index, table.ranks[edge.target.use])
            found.append(LoopSend(use, edge.source.port, channel, active))
        return tuple(found)

    def taken(self, asked: Conditions, at: Vector, times: int, inner: Vector = ()) -> tuple[Taken | None, Bound | None]:
        """In which iterations all the conditions hold (None: in all), up to the first in which one has no value."""
        given, found = self._calls.given, list[bool]()
        try:
            where = indices(asked.loop_names, (*at, 0, *inner))
            if not all(holds(given, where) for holds in asked.fixed):
                return (False,) * times, None
            for i in range(times if asked.varying else 0):
                where = indices(asked.loop_names, (*at, i, *inner))
                found.append(all(holds(given, where) for holds in asked.varying))
        except ExpressionError as error:
            return tuple(found), Bound(len(found), no_value(error))
        return None if all(found) else tuple(found), None

    def read(self, table: RegionTable, edge: EdgePlan, at: Vector, times: int) -> Taken | None:
        """In which iterations a follower reads the value of an edge; None: in all. One whose condition has no value
        fails by itself, once it gets there."""
        reader = table.readers.get(edge.index)
        if reader is None:
            return None
        taken, _ = self.taken(reader.conditions, at, times)
        if taken is None:
            return None
        taken += (True,) * (times - len(taken))
        return None if all(taken) else (*taken[reader.later :], *[False] * reader.later)

    def _lacking(
        self,
        use: UseTable,
        sources: Sequence[LoopInput],
        earlier: Sequence[LoopUse],
        active: Taken | None,
        at: Vector,
        inner: Vector,
        times: int,
    ) -> Bound | None:
        """The first iteration at which a required port has nothing, as far as it shows from outside."""
        known = {source.port: source for source in sources}
        bound: Bound | None = None
        for port in use.node.required if use.node else ():
            gaps = _gaps(known.get(port), earlier, times)
            first = next((i for i in gaps if active is None or active[i]), None)
            if first is not None:
                bound = _first(bound, Bound(first, self._calls.lacks(use, port, (*at, first, *inner))))
        return bound

    def _params(
        self, walker: Walker, use: UseTable, at: Vector, inner: Vector, active: Taken | None, times: int
    ) -> tuple[dict[str, Scalar], Bound | None]:
        """Parameters that are the same in all iterations. Where one has no value the use can't be called, but perhaps
        it needn't: then others stand for them."""
        where = indices(use.loop_names, (*at, 0, *inner))
        try:
            outer = {n: value(self._calls.given, where) for n, value in use.computed if n not in use.varying}
            return {**self._calls.fixed(walker, use), **outer}, None
        except ExpressionError as error:
            first = next((i for i in range(times) if active is None or active[i]), None)
            names = [name for name, _ in (*use.fixed, *use.computed) if name not in use.varying]
            defaults = use.node.defaults if use.node else {}
            params = {**dict.fromkeys(names, 0), **defaults, **use.literals, "seed": self._calls.given["seed"]}
            return params, None if first is None else Bound(first, no_value(error))

    def _varying(
        self, use: UseTable, at: Vector, inner: Vector, times: int, active: Taken | None
    ) -> tuple[dict[str, tuple[Scalar, ...]], Bound | None]:
        """Parameters that change with the iteration, up to the first that has no value; 0 where nobody asks."""
        if not use.varying:
            return {}, None
        found: dict[str, list[Scalar]] = {name: [] for name in use.varying}
        evaluators = [(name, value) for name, value in use.computed if name in use.varying]
        bound: Bound | None = None
        for i in range(times):
            where = indices(use.loop_names, (*at, i, *inner))
            asked = active is None or active[i]
            try:
                values = [value(self._calls.given, where) if asked else 0 for _, value in evaluators]
            except ExpressionError as error:
                bound = Bound(i, no_value(error))
                break
            for (name, _), value in zip(evaluators, values, strict=True):
                found[name].append(value)
        return {name: tuple(values) for name, values in found.items()}, bound


def _gaps(source: LoopInput | None, earlier: Sequence[LoopUse], times: int) -> Iterable[int]:
    """Iterations in which a port has no value, whatever the operators give."""
    gaps: Iterable[int] = ()
    if source is None or source.source == "absent":
        gaps = range(times)
    elif source.source == "each":
        gaps = range(shaping.length(source.value), times)
    elif source.source == "use" and (given := earlier[source.use].active) is not None:
        gaps = (i for i in range(times) if not given[i])
    elif source.source == "channel" and (comes := source.comes) is not None:
        gaps = (i for i in range(times) if not comes[i])
    if source is None or source.carried is None:
        return gaps
    return (i for i in gaps if i == 0)


def _across(
    found: LoopInput, place: int, table: RegionTable, active: Taken | None, others: Others, times: int
) -> LoopInput:
    """An input that another rank's part feeds: which of its values come. `active`: of the use that reads."""
    edge = table.plan.across.get((place, found.port))
    if edge is None:
        return found
    channel = Channel(edge.index, table.ranks[edge.source.use])
    if edge.carried:
        return replace(found, channel=channel, comes=_both(active, None, times))
    return LoopInput(found.port, "channel", channel=channel, comes=_both(active, others[edge.source.use], times))


def _both(one: Taken | None, other: Taken | None, times: int) -> Taken | None:
    """Iterations that are in both; None: all. What ends early was to fail there."""
    masks = [(*mask, *[False] * (times - len(mask))) for mask in (one, other) if mask is not None]
    return tuple(map(all, zip(*masks, strict=True))) if masks else None


def _either(reads: Taken, times: int) -> Taken:
    """Iterations that read, and those before them."""
    padded = (*reads, *[False] * (times + 1 - len(reads)))
    return tuple(padded[i] or padded[i + 1] for i in range(times))


def _first(one: Bound | None, other: Bound | None) -> Bound | None:
    """The earlier one; of two at one iteration the former."""
    return other if one is None or (other is not None and other.at < one.at) else one
