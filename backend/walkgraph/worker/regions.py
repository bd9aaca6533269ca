"""Resident loops of one run: what the engine is told when one is entered, and what its answers mean for the walker."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from walkgraph.errors import ErrorInfo
from walkgraph.graph.expressions import ExpressionError
from walkgraph.networks.base import Scalar
from walkgraph.networks.loops import Items, LoopCall, LoopInput, LoopUse
from walkgraph.placement.tables import EdgePlan
from walkgraph.worker import shaping
from walkgraph.worker.calls import Calls, no_value
from walkgraph.worker.events import ABSENT, Allow, CallDone, Ref
from walkgraph.worker.fold import PARTS, Port
from walkgraph.worker.streams import Outgoing
from walkgraph.worker.tables import RegionTable, UseTable
from walkgraph.worker.walker import Parts, Vector, Walker, indices


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
    use: UseTable
    ref: Ref
    emits: tuple[EdgePlan, ...]
    streams: tuple[Outgoing, ...]
    bound: _Bound | None
    times: int
    done: int = 0
    """Iterations whose values have left."""
    allowed: int | None = None

    def room(self) -> int | None:
        """Iterations that its streams have credit for, from the loop's start."""
        rooms = [stream.room for stream in self.streams if stream.room is not None]
        return self.done + max(0, min(rooms)) if rooms else None


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
        body, bound = self._body(walker, table, at, inputs, times)
        if bound is not None and bound.at == 0:
            return bound.error
        emits = tuple(e for e in region.emits if e.target.kind != "stream" or e.target.index in self._outgoing)
        streams = tuple(self._outgoing[e.target.index] for e in emits if e.target.kind == "stream")
        running = _Running(use, ref, emits, streams, bound, times)
        running.allowed = running.room()
        self._running[walker.step, use.plan.index] = running
        grain, offset = _pace(emits, streams)
        sent = {edge.source.port for edge in emits}
        return LoopCall(
            run=self._calls.run,
            walk=walker.table.plan.name,
            step=walker.step,
            use=use.plan.index,
            loop=region.loop.name,
            iteration=at,
            body=body,
            times=times if bound is None else bound.at,
            until=region.until,
            drop_last=region.loop.drop_last,
            outputs=tuple(out for out in region.outputs if out.kind != "each" or out.key in sent),
            grain=grain,
            offset=offset,
            allowed=running.allowed,
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
            values = event.values.get(edge.source.port)
            if values is None:
                continue
            there = range(event.count)
            if not isinstance(values, Tensor):
                there = [i for i in there if values[i] is not None]
                values = [values[i] for i in there]
            if there:
                yield Leaving(edge, [(*call.iteration, event.first + i) for i in there], values)

    def allow(self) -> Iterator[Allow]:
        """To loops whose streams have been credited."""
        for running in self._running.values():
            if running.allowed is not None and running.allowed < running.times:
                upto = running.room()
                if upto is not None and upto > running.allowed:
                    running.allowed = upto
                    yield Allow(running.ref, upto)

    def end(self, event: CallDone) -> dict[str, Any] | ErrorInfo:
        """What the folded use gives to the walker, or why the run fails."""
        running = self._running.pop((event.ref.step, event.ref.use))
        if event.error is not None:
            return event.error
        if running.bound is not None and event.iterations >= running.bound.at and not event.stopped:
            return running.bound.error
        given, found = event.outputs or {}, dict[str, Any]()
        for port in {edge.source.port for edge in running.use.outputs}:
            value = given.get(port.removeprefix(PARTS))
            if value is not None:
                found[port] = _collected(value, port) if port.removeprefix(PARTS).startswith("collect ") else value
        return found

    # ── the body ──

    def _body(
        self, walker: Walker, table: RegionTable, at: Vector, inputs: Mapping[str, Any], times: int
    ) -> tuple[tuple[LoopUse, ...], _Bound | None]:
        """The uses inside, and the first iteration that can't be."""
        body: list[LoopUse] = []
        bound: _Bound | None = None
        for inner, ports in zip(table.body, table.plan.ports, strict=True):
            sources = tuple(_source(port, inputs) for port in ports)
            bound = _first(bound, self._lacking(inner, sources, at))
            varying, failed = self._varying(inner, at, times if bound is None else bound.at)
            bound = _first(bound, failed)
            first = (*at, 0)
            params = {**self._calls.fixed(walker, inner)}
            where = indices(inner.loop_names, first)
            params |= {n: value(self._calls.given, where) for n, value in inner.computed if n not in inner.varying}
            name = inner.node.name if inner.node else ""
            states = self._calls.states(walker, inner, first)
            body.append(LoopUse(name, sources, params, varying, states, self._calls.seed(name)))
        return tuple(body), bound

    def _lacking(self, use: UseTable, sources: Sequence[LoopInput], at: Vector) -> _Bound | None:
        """The first iteration at which a required port has nothing, as far as it shows from outside."""
        known = {source.port: source for source in sources}
        bound: _Bound | None = None
        for port in use.node.required if use.node else ():
            source = known.get(port)
            if source is None or source.source == "absent":
                count = 0
            elif source.source == "each":
                count = shaping.length(source.value)
                if count and source.carried is not None:
                    continue
            else:
                continue
            bound = _first(bound, _Bound(count, self._calls.lacks(use, port, (*at, count))))
        return bound

    def _varying(self, use: UseTable, at: Vector, times: int) -> tuple[dict[str, tuple[Scalar, ...]], _Bound | None]:
        """Parameters that change with the iteration, up to the first that has no value."""
        if not use.varying:
            return {}, None
        found: dict[str, list[Scalar]] = {name: [] for name in use.varying}
        evaluators = [(name, value) for name, value in use.computed if name in use.varying]
        bound: _Bound | None = None
        for i in range(times):
            where = indices(use.loop_names, (*at, i))
            try:
                values = [value(self._calls.given, where) for _, value in evaluators]
            except ExpressionError as error:
                bound = _Bound(i, no_value(error))
                break
            for (name, _), value in zip(evaluators, values, strict=True):
                found[name].append(value)
        return {name: tuple(values) for name, values in found.items()}, bound


def _source(port: Port, inputs: Mapping[str, Any]) -> LoopInput:
    if port.entry is not None and port.entry in inputs:
        return LoopInput(port.name, "each" if port.each else "value", inputs[port.entry], carried=port.carried)
    if port.source is not None:
        return LoopInput(port.name, "use", use=port.source[0], output=port.source[1], carried=port.carried)
    return LoopInput(port.name, "index" if port.index else "absent", carried=port.carried)


def _first(one: _Bound | None, other: _Bound | None) -> _Bound | None:
    """The earlier one; of two at one iteration the former."""
    return other if one is None or (other is not None and other.at < one.at) else one


def _pace(emits: Sequence[EdgePlan], streams: Sequence[Outgoing]) -> tuple[int, int]:
    """`grain` and `offset` of a loop that sends on these edges: the client waits for every value, a stream for as many
    as its chunks have."""
    if any(edge.target.kind == "out" for edge in emits):
        return 1, 0
    paces = {stream.pace for stream in streams if stream.pace[0]}
    return (1, 0) if len(paces) > 1 else next(iter(paces), (0, 0))


def _collected(value: Tensor | Sequence[Any], port: str) -> Any:
    """As one value, or for an outer loop to go on with."""
    if isinstance(value, Tensor):
        return Parts(value.unbind()) if port.startswith(PARTS) else value
    there = [one for one in value if one is not None]
    if port.startswith(PARTS):
        return Parts(there)
    return shaping.stack(there) if there else ABSENT
