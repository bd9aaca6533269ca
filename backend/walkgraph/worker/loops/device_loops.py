"""The device loops of one run: makes the engine's call when one is entered, and passes its results to the walker."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.calls import CallFailed, Timed
from walkgraph.engine.loops.spec import Items, LoopCall, Mask, Place, StreamItems
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank
from walkgraph.placement.tables import EdgePlan, Gather
from walkgraph.worker.events import ABSENT, Allow, CallDone, Ref
from walkgraph.worker.loops.entries import LoopEntry
from walkgraph.worker.loops.lowering import PARTS, DeviceLoop, part_key
from walkgraph.worker.tables.walk_tables import DeviceLoopTable, UseTable
from walkgraph.worker.walk import shaping
from walkgraph.worker.walk.call_arguments import Calls, Lacking
from walkgraph.worker.walk.cursor import Vector
from walkgraph.worker.walk.edge_values import CollectedParts
from walkgraph.worker.walk.run_streams import Outgoing, Streams
from walkgraph.worker.walk.walker import Walker


class Leaving(NamedTuple):
    """Values of one edge that leave together, with their iterations; missing ones are left out."""

    edge: EdgePlan
    iterations: Sequence[Vector]
    """Empty for a stream, which numbers its items itself."""
    values: Sequence[Any]


@dataclass(slots=True)
class _Running:
    walker: Walker
    use: UseTable
    entry: LoopEntry
    ref: Ref
    call: LoopCall
    emits: tuple[EdgePlan, ...]
    wanted: Mapping[int, Mask]
    """Edge to a follower that is sometimes skipped, or to a client that has selected -> the iterations whose value is
    read."""
    streams: tuple[Outgoing, ...]
    reads: tuple["_ItemReader", ...] = ()
    done: int = 0
    """Iterations whose values have left."""
    stopped: bool = False
    """True if its `until` ended it after those."""
    judged: int = 0
    """Iterations whose verdicts the followers have."""
    allowed: int | None = None
    """Iterations that its streams have room for, as the engine knows; None if unlimited."""
    fed: int | None = None
    """Iterations that its streams have items for, as the engine knows; None if it waits for none."""
    touches: frozenset[int] = frozenset()
    """The streams that it reads or feeds."""
    moved: bool = True
    """True if what it may do was not looked at since it was entered, or since values left."""

    @property
    def loop(self) -> DeviceLoop:
        return self.entry.table.loop

    @property
    def limit(self) -> int:
        """Iterations that the engine may launch, counted from the loop's start."""
        limit = self.entry.times if self.allowed is None else min(self.entry.times, self.allowed)
        return limit if self.fed is None else min(limit, self.fed)

    @property
    def due(self) -> int:
        """Iterations after which values leave next."""
        grain, done = self.call.grain, self.done
        due = done + grain - (self.call.offset + done) % grain if grain else self.entry.times
        return due if self.allowed is None or self.allowed <= done else min(due, self.allowed)

    @property
    def credit(self) -> int | None:
        """Iterations that its streams have credit for, counted from the loop's start; None if unlimited."""
        rooms = [free for stream in self.streams if (free := stream.free) is not None]
        return self.done + max(0, min(rooms)) if rooms else None

    @property
    def read(self) -> int | None:
        """Iterations that its streams have items for; None if it waits for none."""
        return min([read.taken for read in self.reads if not read.ended], default=None)

    def there(self, edge: EdgePlan, event: Items) -> Sequence[int]:
        """The event's iterations whose values leave over an edge. Followers also need to know where there is none."""
        dropped = event.stopped and self.loop.plan.drop_last and edge.target.kind != "use"
        there, wanted = range(event.count - dropped), self.wanted.get(edge.index)
        return there if wanted is None else [i for i in there if wanted[event.first + i]]

    def judge(self, upto: int, *, stopped: bool) -> None:
        """Give the followers the verdicts on iterations up to this one."""
        if self.loop.followed and self.loop.until is not None:
            for i in range(self.judged, upto):
                self.walker.verdict(self.loop.plan.index, (*self.ref.iteration, i), stop=stopped and i == upto - 1)
            self.judged = upto


@dataclass(slots=True)
class _ItemReader:
    """A port of a loop that reads a stream, one item an iteration."""

    place: Place
    stream: int
    taken: int = 0
    ended: bool = False
    """True once the stream has no more items; later iterations read none."""

    def take(self, ref: Ref, streams: Streams, most: int) -> StreamItems | None:
        """Take the items that are there, for iterations below `most`."""
        found: list[Tensor] = []
        while not self.ended and self.taken + len(found) < most:
            at = (ref.step, *ref.iteration, self.taken + len(found))
            _, chunk = streams.chunk(ref.use, self.stream, at)
            if chunk is None:
                break
            self.ended = chunk[0] is ABSENT
            if not self.ended:
                found.append(_item(chunk[0], self.place[1]))
        if not found:
            return None
        self.taken += len(found)
        return StreamItems(self.place, self.taken - len(found), found[0] if len(found) == 1 else torch.cat(found))


def _item(value: Any, port: str) -> Tensor:
    """One item of a stream, as an iteration reads it. Raises CallFailed."""
    found = value if isinstance(value, Tensor) else torch.as_tensor(value)
    if found.numel() != 1:
        message = f"`{port}` takes one number an iteration from its stream, and an item has {found.numel()}"
        raise CallFailed(message, port)
    return found.reshape(1)


class DeviceLoops:
    def __init__(self, calls: Calls, streams: Streams) -> None:
        self._calls, self._streams = calls, streams
        self._outgoing, self._changed = streams.outgoing, streams.changes()
        self._running: dict[Ref, _Running] = {}
        """Entry of a standing use -> the loop that runs there."""

    def enter(
        self, walker: Walker, use: UseTable, table: DeviceLoopTable, at: Vector, inputs: Mapping[str, Any]
    ) -> LoopCall | Lacking | ErrorInfo:
        """Enter a loop. `inputs`: those of the standing use. Returns the error if its first iteration can't be
        computed; raises ExpressionError."""
        times, emits = walker.progress.times(table.loop.plan.index, at), self._emits(table.loop)
        sent = frozenset(edge.source.port for edge in emits)
        entry = LoopEntry(self._calls, walker, table, at, times, inputs, sent)
        bound = entry.bound
        if bound is not None and bound.at == 0:
            # A loop that spans ranks can't be skipped by one of them.
            return bound.info if table.others else bound.error
        asked = {edge.index: self._asked(entry, edge) for edge in emits if edge.target.kind != "stream"}
        wanted = {edge: mask for edge, mask in asked.items() if mask is not None}
        streams = tuple(self._outgoing[edge.target.index] for edge in emits if edge.target.kind == "stream")
        ref = Ref(self._calls.run, walker.step, use.plan.index, at)
        reads = tuple(
            _ItemReader((entry.unrolled.last(place), port), edge.source.index)
            for (place, port), edge in table.loop.items
        )
        grain, offset = _pace(emits, streams, wanted)
        call = entry.call(_by_key(emits, wanted), grain, offset)
        call.sent_as = self._sent_as(table.loop)
        self._running[ref] = running = _Running(walker, use, entry, ref, call, emits, wanted, streams, reads)
        running.touches = frozenset([*(one.plan.index for one in streams), *(read.stream for read in reads)])
        running.allowed, running.fed = call.allowed, call.fed = running.credit, running.read
        call.timed = _timed(table.loop, emits, streams, self._calls.rank, grain)
        return call

    def _asked(self, entry: LoopEntry, edge: EdgePlan) -> Mask | None:
        """The iterations whose value is read over an edge that is no stream; None for all."""
        loop = entry.table.loop
        if edge.target.kind == "use":
            return entry.read(edge)
        place, port = loop.outputs[edge.source.port].use, loop.outputs[edge.source.port].port
        if loop.inside[place]:
            return None
        called = not loop.uses[place].cases and entry.masks[entry.unrolled.last(place)] is None
        static = called and port not in loop.nodes[place].optional and loop.plan.until is None
        return self._calls.selects(edge, entry.times, static=static)

    def _sent_as(self, loop: DeviceLoop) -> Mapping[str, str]:
        """Output -> the dtype in which it leaves for the client, and for nobody else."""
        edges: dict[str, list[EdgePlan]] = {}
        for edge in loop.walked.edges:
            if edge.source.kind == "use" and edge.source.use == loop.first:
                edges.setdefault(edge.source.port.removeprefix(PARTS), []).append(edge)
        found = {key: self._calls.dtype_of(leaving) for key, leaving in edges.items()}
        return {key: dtype for key, dtype in found.items() if dtype is not None}

    def _emits(self, loop: DeviceLoop) -> tuple[EdgePlan, ...]:
        """Edges whose values leave while this run is in the loop."""
        return tuple(e for e in loop.emits if e.target.kind != "stream" or e.target.index in self._outgoing)

    def items(self, event: Items, ref: Ref) -> Iterator[Leaving]:
        """Sort the values of a loop by the edges of the Walk that they leave over."""
        call = event.call
        running = self._running.get(ref)
        if running is None:
            return
        running.done, running.stopped, running.moved = event.first + event.count, event.stopped, True
        for edge in running.emits:
            given, kind = event.values.get(edge.source.port) or [None] * event.count, edge.target.kind
            there = running.there(edge, event)
            if kind != "use":
                there = [i for i in there if given[i] is not None]
            values = [ABSENT if given[i] is None else given[i] for i in there]
            if there and kind == "stream":
                yield Leaving(edge, (), values)
            elif there:
                yield Leaving(edge, [(*call.iteration, event.first + i) for i in there], values)

    def judge(self, event: Items, ref: Ref) -> None:
        """Let the followers go on to the next iterations. Called once the values of the event are delivered."""
        running = self._running.get(ref)
        if running is not None:
            running.judge(event.first + event.count, stopped=event.stopped)

    def allow(self) -> Iterator[Allow]:
        """Yield commands for loops whose streams have got more credit or items."""
        changed = set(self._changed)
        self._changed.clear()
        for running in self._running.values():
            if not running.moved and changed.isdisjoint(running.touches):
                continue
            running.moved = False
            times = running.entry.times
            if running.limit < times:
                taken = [read.take(running.ref, self._streams, times) for read in running.reads]
                items, before = tuple([one for one in taken if one is not None]), (running.allowed, running.fed)
                if running.allowed is not None:
                    running.allowed = max(running.allowed, times if (credit := running.credit) is None else credit)
                running.fed = running.read
                if items or before != (running.allowed, running.fed):
                    yield Allow(running.ref, times if running.allowed is None else running.allowed, items, running.fed)

    def starved(self, ref: Ref) -> bool:
        """True if a loop was entered there that gives nothing more before its streams have room or items."""
        running = self._running.get(ref)
        if running is None or running.stopped or running.limit >= running.entry.times:
            return False
        return running.limit < running.due

    def refs(self) -> list[Ref]:
        """Loops that were entered and have not ended."""
        return [running.ref for running in self._running.values()]

    def calls(self, event: CallDone) -> list[int]:
        """How often a loop that has ended called each of its uses."""
        entry, count = self._running[event.ref].entry, event.iterations
        found = [0] * len(entry.table.uses)
        for one, active in zip(entry.unrolled.order, entry.masks, strict=True):
            found[one.place] += count if active is None else sum(active[:count])
        return found

    def end(self, event: CallDone) -> dict[str, Any] | ErrorInfo:
        """The outputs of the standing use for the walker, or the error that ends the run."""
        running = self._running.pop(event.ref)
        if event.error is not None:
            return event.error
        entry, times = running.entry, event.iterations
        if entry.bound is not None and times >= entry.bound.at and not event.stopped:
            return entry.bound.info
        running.judge(times, stopped=event.stopped)
        uses = {out.key: out.use for out in running.loop.outputs.values() if out.kind == "collect"}
        given, found = event.outputs or {}, dict[str, Any]()
        for port in {edge.source.port for edge in running.use.outputs}:
            key = port.removeprefix(PARTS)
            places = entry.unrolled.of(uses[key]) if key in uses else ()
            value = _gathered(given, key, [entry.masks[at] for at in places], times)
            if value is not None:
                found[port] = _collected(value, port, running.loop.gathers[key]) if key in uses else value
        return found


def _by_key(emits: Sequence[EdgePlan], wanted: Mapping[int, Mask]) -> dict[str, Mask]:
    """Output -> iterations in which some edge reads it; without the outputs that are always read."""
    found: dict[str, list[Mask]] = {}
    for edge in emits:
        found.setdefault(edge.source.port, []).append(wanted.get(edge.index, ()))
    return {key: tuple(map(any, zip(*asked, strict=True))) for key, asked in found.items() if all(asked)}


def _pace(emits: Sequence[EdgePlan], streams: Sequence[Outgoing], wanted: Mapping[int, Mask]) -> tuple[int, int]:
    """`grain` and `offset` of a loop that sends on these edges. The client waits for every value, a stream for as many
    as a chunk needs, a follower for those that it reads."""
    if any(edge.target.kind != "stream" and edge.index not in wanted for edge in emits):
        return 1, 0
    paces = {stream.pace for stream in streams if stream.pace[0]}
    if grain := gcd(*(i + 1 for asked in wanted.values() for i, read in enumerate(asked) if read)):
        paces.add((grain, 0))
    return (1, 0) if len(paces) > 1 else next(iter(paces), (0, 0))


def _timed(
    loop: DeviceLoop, emits: Sequence[EdgePlan], streams: Sequence[Outgoing], rank: Rank, grain: int
) -> Timed | None:
    """The playback of what an iteration sends: to streams, or to the client."""
    outputs = [loop.outputs[edge.source.port] for edge in emits if edge.target.kind == "out"]
    played = [loop.nodes[out.use].seconds.get(out.port, 0.0) for out in outputs]
    timed = [stream for stream in streams if stream.plan.seconds]
    seconds = max([*played, *(stream.plan.seconds for stream in timed)], default=0.0)
    if not seconds:
        return None
    passed_on = any(rank in stream.plan.consumers for stream in timed)
    before = max((stream.sent * stream.plan.seconds for stream in timed), default=0.0)
    return Timed(seconds, not passed_on, max(1, grain) * seconds, before)


def _gathered(given: Mapping[str, Any], key: str, parts: Sequence[Mask | None], times: int) -> Any:
    """The value of an output; for several instances of a use, their values in the order of the calls. None if there is
    none."""
    if len(parts) <= 1:
        return given.get(key)
    values = [iter(given.get(part_key(key, number), ())) for number in range(len(parts))]
    called = [one for i in range(times) for one, asked in zip(values, parts, strict=True) if asked is None or asked[i]]
    there = [next(one) for one in called]
    if there and all(isinstance(one, Tensor) for one in there):
        return torch.stack(there)
    return there or None


def _collected(value: Tensor | Sequence[Any], port: str, how: Gather) -> Any:
    """Make one value of collected ones, or parts that an outer loop goes on collecting."""
    parts = port.startswith(PARTS)
    if isinstance(value, Tensor):
        if how == "stack" and not parts:
            return value
        there = list(value.unbind())
    else:
        there = [one for one in value if one is not None]
    if parts:
        return CollectedParts(there)
    return shaping.gather(there, how) if there else ABSENT
