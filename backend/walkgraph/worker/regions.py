"""Resident loops of one run: what the engine is told when one is entered, and what its answers mean for the walker."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, NamedTuple

from torch import Tensor

from walkgraph.errors import ErrorInfo
from walkgraph.graph.expressions import ExpressionError
from walkgraph.networks.base import Scalar
from walkgraph.networks.loops import Channel, Items, LoopCall, LoopInput, LoopSend, LoopUse
from walkgraph.placement.tables import EdgePlan
from walkgraph.worker import shaping
from walkgraph.worker.calls import Calls, no_value
from walkgraph.worker.events import ABSENT, Allow, CallDone, Ref
from walkgraph.worker.fold import PARTS, Port
from walkgraph.worker.streams import Outgoing
from walkgraph.worker.tables import Conditions, RegionTable, UseTable
from walkgraph.worker.walker import Parts, Vector, Walker, indices

Taken = tuple[bool, ...]
"""Iteration by iteration."""
Others = Mapping[int, Taken | None]
"""Use of another rank's part -> the iterations that call it, None: all."""


class _Bound(NamedTuple):
    """A loop that comes to iteration `at` fails there."""

    at: int
    error: ErrorInfo


class Leaving(NamedTuple):
    """Values of one edge that go out together: those that are there, with their iterations."""

    edge: EdgePlan
    iterations: list[Vector]
    values: Tensor | Sequence[Any]


@dataclass(slots=True)
class _Running:
    walker: Walker
    use: UseTable
    ref: Ref
    emits: tuple[EdgePlan, ...]
    wanted: Mapping[int, Taken]
    """Edge to a follower that is skipped at times -> whether it reads an iteration's value."""
    streams: tuple[Outgoing, ...]
    active: tuple[Taken | None, ...]
    """Of each use inside."""
    bound: _Bound | None
    times: int
    done: int = 0
    """Iterations whose values have left."""
    judged: int = 0
    """Iterations whose verdicts the followers know."""
    allowed: int | None = None

    def room(self) -> int | None:
        """Iterations that its streams have credit for, from the loop's start."""
        rooms = [stream.room for stream in self.streams if stream.room is not None]
        return self.done + max(0, min(rooms)) if rooms else None

    def there(self, edge: EdgePlan, event: Items) -> Sequence[int]:
        """The event's iterations whose values go out over an edge, if there are any: followers get to know, too, that
        there is none."""
        wanted = self.wanted.get(edge.index)
        if wanted is not None:
            return [i for i in range(event.count) if wanted[event.first + i]]
        dropped = event.stopped and self.drops and edge.target.kind != "use"
        return range(event.count - dropped)

    @property
    def drops(self) -> bool:
        return self.use.region is not None and self.use.region.plan.loop.drop_last

    def judge(self, upto: int, *, stopped: bool) -> None:
        """Tell the followers that the iterations up to this are over."""
        region = self.use.region.plan if self.use.region else None
        if region is not None and region.followed and region.until is not None:
            for i in range(self.judged, upto):
                self.walker.verdict(region.loop.index, (*self.ref.iteration, i), stop=stopped and i == upto - 1)
            self.judged = upto


class Loops:
    def __init__(self, calls: Calls, outgoing: Mapping[int, Outgoing]) -> None:
        self._calls = calls
        self._outgoing = outgoing
        self._running: dict[tuple[int, int], _Running] = {}
        """Step and folded use -> the loop that runs there."""

    def enter(
        self, walker: Walker, use: UseTable, table: RegionTable, at: Vector, inputs: Mapping[str, Any]
    ) -> LoopCall | ErrorInfo:
        """`inputs`: those of the folded use. An error where there can be no first iteration; raises ExpressionError."""
        region, ref = table.plan, Ref(self._calls.run, walker.step, use.plan.index, at)
        times = walker.times(region.loop.index, at)
        others = {use: self._taken(asked, at, times)[0] for use, asked in table.others.items()}
        body, bound = self._body(walker, table, at, inputs, times, others)
        if bound is not None and bound.at == 0:
            return bound.error
        emits = tuple(e for e in region.emits if e.target.kind != "stream" or e.target.index in self._outgoing)
        streams = tuple(self._outgoing[e.target.index] for e in emits if e.target.kind == "stream")
        wanted = {e.index: found for e in region.follows if (found := self._read(table, e, at, times)) is not None}
        running = _Running(walker, use, ref, emits, wanted, streams, tuple(u.active for u in body), bound, times)
        running.allowed = running.room()
        self._running[walker.step, use.plan.index] = running
        grain, offset = _pace(emits, streams, wanted)
        sent = {edge.source.port for edge in emits}
        count = times if bound is None else bound.at
        return LoopCall(
            run=self._calls.run,
            walk=walker.table.plan.name,
            step=walker.step,
            use=use.plan.index,
            loop=region.loop.name,
            iteration=at,
            body=tuple(_cut(one, count) for one in body),
            times=count,
            until=region.until,
            outputs=tuple(out for out in region.outputs if out.kind != "each" or out.key in sent),
            grain=grain,
            offset=offset,
            allowed=running.allowed,
            wanted={key: found[:count] for key, found in _by_key(emits, wanted).items()},
            sends=self._sends(table, body, others, times),
            leads=region.leads,
            priority=self._calls.priority,
        )

    def items(self, event: Items) -> Iterator[Leaving]:
        """What its values are to the edges of the Walk."""
        call = event.call
        running = self._running.get((call.step, call.use))
        if running is None:
            return
        running.done = event.first + event.count
        for edge in running.emits:
            values = event.values.get(edge.source.port, [None] * event.count)
            there = running.there(edge, event)
            if edge.target.kind == "use":
                values = [ABSENT if values[i] is None else values[i] for i in there]
            elif isinstance(values, Tensor):
                values = values[: len(there)]
            else:
                there = [i for i in there if values[i] is not None]
                values = [values[i] for i in there]
            if there:
                yield Leaving(edge, [(*call.iteration, event.first + i) for i in there], values)

    def judge(self, event: Items) -> None:
        """Once its values are where they belong: the followers may go on to the iterations after them."""
        running = self._running.get((event.call.step, event.call.use))
        if running is not None:
            running.judge(event.first + event.count, stopped=event.stopped)

    def allow(self) -> Iterator[Allow]:
        """To loops whose streams have been credited."""
        for running in self._running.values():
            if running.allowed is not None and running.allowed < running.times:
                upto = running.room()
                if upto is not None and upto > running.allowed:
                    running.allowed = upto
                    yield Allow(running.ref, upto)

    def refs(self) -> list[Ref]:
        """Those that were entered and haven't ended."""
        return [running.ref for running in self._running.values()]

    def calls(self, event: CallDone) -> list[int]:
        """How often each use inside was called in a loop that has ended."""
        running, count = self._running[event.ref.step, event.ref.use], event.iterations
        return [count if active is None else sum(active[:count]) for active in running.active]

    def end(self, event: CallDone) -> dict[str, Any] | ErrorInfo:
        """What the folded use gives to the walker, or why the run fails."""
        running = self._running.pop((event.ref.step, event.ref.use))
        if event.error is not None:
            return event.error
        if running.bound is not None and event.iterations >= running.bound.at and not event.stopped:
            return running.bound.error
        running.judge(event.iterations, stopped=event.stopped)
        given, found = event.outputs or {}, dict[str, Any]()
        for port in {edge.source.port for edge in running.use.outputs}:
            value = given.get(port.removeprefix(PARTS))
            if value is not None:
                found[port] = _collected(value, port) if port.removeprefix(PARTS).startswith("collect ") else value
        return found

    # ── the body ──

    def _body(
        self, walker: Walker, table: RegionTable, at: Vector, inputs: Mapping[str, Any], times: int, others: Others
    ) -> tuple[list[LoopUse], _Bound | None]:
        """The uses inside, and the first iteration that can't be."""
        body: list[LoopUse] = []
        bound: _Bound | None = None
        for inner, ports, asked in zip(table.body, table.plan.ports, table.conditions, strict=True):
            count = times if bound is None else bound.at
            active, failed = self._taken(asked, at, count)
            sources = tuple(_across(_source(port, inputs), port, table, active, others, times) for port in ports)
            bound = _first(bound, failed)
            count = times if bound is None else bound.at
            bound = _first(bound, self._lacking(inner, sources, body, active, at, count))
            params, failed = self._params(walker, inner, at, active, count)
            bound = _first(bound, failed)
            varying, failed = self._varying(inner, at, times if bound is None else bound.at, active)
            bound = _first(bound, failed)
            node, name = inner.node.name if inner.node else "", inner.plan.name
            states = self._calls.states(walker, inner, (*at, 0))
            body.append(LoopUse(node, sources, params, varying, states, self._calls.seed(node), active, name))
        return body, bound

    def _sends(self, table: RegionTable, body: Sequence[LoopUse], others: Others, times: int) -> tuple[LoopSend, ...]:
        found: list[LoopSend] = []
        for place, edge in table.plan.sends:
            reads = others[edge.target.use]
            if edge.carried:
                # One more than is read costs nothing, and fewer iterations differ.
                active = None if reads is None else _either(reads, times)
            else:
                active = _both(body[place].active, reads, times)
            channel = Channel(edge.index, table.ranks[edge.target.use])
            found.append(LoopSend(place, edge.source.port, channel, active))
        return tuple(found)

    def _taken(self, asked: Conditions, at: Vector, times: int) -> tuple[Taken | None, _Bound | None]:
        """In which iterations all the conditions hold (None: in all), up to the first in which one has no value."""
        given, found = self._calls.given, list[bool]()
        try:
            where = indices(asked.loop_names, (*at, 0))
            if not all(holds(given, where) for holds in asked.fixed):
                return (False,) * times, None
            for i in range(times if asked.varying else 0):
                where = indices(asked.loop_names, (*at, i))
                found.append(all(holds(given, where) for holds in asked.varying))
        except ExpressionError as error:
            return tuple(found), _Bound(len(found), no_value(error))
        return None if all(found) else tuple(found), None

    def _read(self, table: RegionTable, edge: EdgePlan, at: Vector, times: int) -> Taken | None:
        """In which iterations a follower reads the value of an edge; None: in all. One whose condition has no value
        fails by itself, once it gets there."""
        reader = table.readers.get(edge.index)
        if reader is None:
            return None
        taken, _ = self._taken(reader.conditions, at, times)
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
        times: int,
    ) -> _Bound | None:
        """The first iteration at which a required port has nothing, as far as it shows from outside."""
        known = {source.port: source for source in sources}
        bound: _Bound | None = None
        for port in use.node.required if use.node else ():
            gaps = _gaps(known.get(port), earlier, times)
            first = next((i for i in gaps if active is None or active[i]), None)
            if first is not None:
                bound = _first(bound, _Bound(first, self._calls.lacks(use, port, (*at, first))))
        return bound

    def _params(
        self, walker: Walker, use: UseTable, at: Vector, active: Taken | None, times: int
    ) -> tuple[dict[str, Scalar], _Bound | None]:
        """Parameters that are the same in all iterations. Where one has no value the use can't be called, but perhaps
        it needn't: then others stand for them."""
        where = indices(use.loop_names, (*at, 0))
        try:
            outer = {n: value(self._calls.given, where) for n, value in use.computed if n not in use.varying}
            return {**self._calls.fixed(walker, use), **outer}, None
        except ExpressionError as error:
            first = next((i for i in range(times) if active is None or active[i]), None)
            names = [name for name, _ in (*use.fixed, *use.computed) if name not in use.varying]
            defaults = use.node.defaults if use.node else {}
            params = {**dict.fromkeys(names, 0), **defaults, **use.literals, "seed": self._calls.given["seed"]}
            return params, None if first is None else _Bound(first, no_value(error))

    def _varying(
        self, use: UseTable, at: Vector, times: int, active: Taken | None
    ) -> tuple[dict[str, tuple[Scalar, ...]], _Bound | None]:
        """Parameters that change with the iteration, up to the first that has no value; 0 where nobody asks."""
        if not use.varying:
            return {}, None
        found: dict[str, list[Scalar]] = {name: [] for name in use.varying}
        evaluators = [(name, value) for name, value in use.computed if name in use.varying]
        bound: _Bound | None = None
        for i in range(times):
            where = indices(use.loop_names, (*at, i))
            asked = active is None or active[i]
            try:
                values = [value(self._calls.given, where) if asked else 0 for _, value in evaluators]
            except ExpressionError as error:
                bound = _Bound(i, no_value(error))
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
    found: LoopInput, port: Port, table: RegionTable, active: Taken | None, others: Others, times: int
) -> LoopInput:
    """An input that another rank's part feeds: which of its values come. `active`: of the use that reads."""
    edge = port.across
    if edge is None:
        return found
    channel = Channel(edge.index, table.ranks[edge.source.use])
    if edge.carried:
        return replace(found, channel=channel, comes=_both(active, None, times))
    return LoopInput(port.name, "channel", channel=channel, comes=_both(active, others[edge.source.use], times))


def _both(one: Taken | None, other: Taken | None, times: int) -> Taken | None:
    """Iterations that are in both; None: all. What ends early was to fail there."""
    masks = [(*mask, *[False] * (times - len(mask))) for mask in (one, other) if mask is not None]
    return tuple(map(all, zip(*masks, strict=True))) if masks else None


def _either(reads: Taken, times: int) -> Taken:
    """Iterations that read, and those before them."""
    padded = (*reads, *[False] * (times + 1 - len(reads)))
    return tuple(padded[i] or padded[i + 1] for i in range(times))


def _source(port: Port, inputs: Mapping[str, Any]) -> LoopInput:
    if port.entry is not None and port.entry in inputs:
        return LoopInput(port.name, "each" if port.each else "value", inputs[port.entry], carried=port.carried)
    if port.source is not None:
        return LoopInput(port.name, "use", use=port.source[0], output=port.source[1], carried=port.carried)
    return LoopInput(port.name, "index" if port.index else "absent", carried=port.carried)


def _first(one: _Bound | None, other: _Bound | None) -> _Bound | None:
    """The earlier one; of two at one iteration the former."""
    return other if one is None or (other is not None and other.at < one.at) else one


def _cut(use: LoopUse, times: int) -> LoopUse:
    """Told of no more iterations than there are."""
    active = None if use.active is None or all(use.active[:times]) else use.active[:times]
    return replace(use, active=active, varying={name: values[:times] for name, values in use.varying.items()})


def _by_key(emits: Sequence[EdgePlan], wanted: Mapping[int, Taken]) -> dict[str, Taken]:
    """Output -> in which iterations an edge reads it; without those that are always read."""
    found: dict[str, list[Taken]] = {}
    for edge in emits:
        found.setdefault(edge.source.port, []).append(wanted.get(edge.index, ()))
    return {key: tuple(map(any, zip(*asked, strict=True))) for key, asked in found.items() if all(asked)}


def _pace(emits: Sequence[EdgePlan], streams: Sequence[Outgoing], wanted: Mapping[int, Taken]) -> tuple[int, int]:
    """`grain` and `offset` of a loop that sends on these edges: the client waits for every value, a stream for as many
    as its chunks have, a follower for those that it reads."""
    if any(edge.target.kind != "stream" and edge.index not in wanted for edge in emits):
        return 1, 0
    paces = {stream.pace for stream in streams if stream.pace[0]}
    if grain := gcd(*(i + 1 for asked in wanted.values() for i, read in enumerate(asked) if read)):
        paces.add((grain, 0))
    return (1, 0) if len(paces) > 1 else next(iter(paces), (0, 0))


def _collected(value: Tensor | Sequence[Any], port: str) -> Any:
    """As one value, or for an outer loop to go on with."""
    if isinstance(value, Tensor):
        return Parts(value.unbind()) if port.startswith(PARTS) else value
    there = [one for one in value if one is not None]
    if port.startswith(PARTS):
        return Parts(there)
    return shaping.stack(there) if there else ABSENT
