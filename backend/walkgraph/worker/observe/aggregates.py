"""Work at level `summary`: calls and launches are added up until the summary leaves."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from walkgraph.engine.calls.chunked_prefill import Forwarded
from walkgraph.engine.loops.loop_runs import LoopDone, LoopKey, LoopMember, Stepped
from walkgraph.engine.loops.spec import LoopCall
from walkgraph.ids import Rank, RunId
from walkgraph.telemetry import events as t
from walkgraph.worker.observe.call_aggregates import CallAggregates, calls_of
from walkgraph.worker.observe.launch_groups import LaunchGroup, LaunchGroups, LaunchUses

MOST = 4096
"""The most transfers, and the most begun loops, held at a time."""


@dataclass(slots=True)
class _LoopAggregate:
    """The launches of loops with one name in one Walk."""

    members: dict[LoopMember, None] = field(default_factory=dict[LoopMember, None])
    latest: LaunchGroup | None = None
    called: LaunchUses | None = None
    """The uses of its latest launch."""
    nodes: dict[str, None] = field(default_factory=dict[str, None])
    uses: dict[str, None] = field(default_factory=dict[str, None])
    launches: int = 0
    calls: int = 0
    busy: float = 0.0
    batch: int = 0
    at: float = 0.0
    spans: bool = False


class Slots(Protocol):
    """The engine, as far as aggregates need it."""

    def positions(self) -> Mapping[LoopKey, int]: ...


class Aggregates:
    def __init__(self, rank: Rank, groups: LaunchGroups, slots: Slots) -> None:
        self._rank, self._groups, self._slots = rank, groups, slots
        self._work = CallAggregates(rank)
        self._loops: dict[tuple[str, str], _LoopAggregate] = {}
        """Aggregates by Walk and loop name."""
        self._begun: dict[LoopKey, tuple[LoopCall, float]] = {}
        self._sent: dict[tuple[RunId, Rank, int, int], t.Transfer] = {}
        self._lost = 0

    @property
    def lost(self) -> int:
        """The number of entries dropped because the aggregates were full."""
        return self._lost + self._work.lost

    def __bool__(self) -> bool:
        return bool(self._work or self._loops or self._begun or self._sent)

    def forwarded(self, event: Forwarded) -> None:
        self._work.forwarded(event)

    def began(self, call: LoopCall) -> None:
        """Note that a device loop has begun; nothing more is known of it until its first launch is over."""
        if len(self._begun) < MOST:
            self._begun[_key(call)] = call, call.ready_at

    def stepped(self, event: Stepped) -> None:
        for group in self._groups.of(event.members):
            place, uses = (group.walk, group.loop), group.uses(event.uses)
            one = self._loops.get(place)
            if one is None:
                one = self._loops[place] = _LoopAggregate(spans=group.spans)
            if group is not one.latest:
                one.latest = group
                one.members.update(dict.fromkeys(group.members))
            if uses is not one.called:
                one.called = uses
                one.nodes.update(dict.fromkeys(uses.nodes))
                one.uses.update(dict.fromkeys(uses.names))
            one.launches += 1
            one.calls += len(group.members) * event.iterations
            one.busy += event.timing.busy
            one.batch, one.at = len(event.members), event.timing.finished

    def ended(self, done: LoopDone, began: float) -> t.LoopWork:
        """The totals of an ended loop. `began`: used if the loop never had a slot."""
        call, counted = done.call, calls_of(done)
        self._begun.pop(_key(call), None)
        return t.LoopWork(
            nodes=tuple([use.node for use, _ in counted]),
            uses=tuple([use.name for use, _ in counted]),
            calls=tuple([calls for _, calls in counted]),
            spans=call.spans,
            busy=done.busy,
            queued=done.queued,
            began=done.began or began,
            batch=done.batch,
        )

    def sent(self, one: t.Transfer) -> None:
        """Add a transfer. Transfers of one edge are summed and reported at the place of the last one."""
        key = (one.run, one.target, -1 if one.stream else one.step, one.edge)
        before = self._sent.pop(key, None)
        if before is None and len(self._sent) >= MOST:
            self._lost += 1
            return
        if before is not None:
            one = t.Transfer(
                run=one.run, source=one.source, target=one.target, walk=one.walk, edge=one.edge, stream=one.stream,
                step=one.step, key=one.key, transport=one.transport, count=before.count + one.count,
                nbytes=before.nbytes + one.nbytes, at=one.at,
            )  # fmt: skip
        self._sent[key] = one

    def take(self) -> Iterable[t.Any]:
        """Remove and return everything added up so far."""
        loops, self._loops = self._loops, {}
        begun, self._begun = self._begun, {}
        for member in [member for one in loops.values() for member in one.members] if begun else ():
            begun.pop(member.key, None)
        sent, self._sent = self._sent, {}
        yield from self._work.take()
        done = self._slots.positions() if loops else {}
        for (_, name), one in loops.items():
            yield self._looping(name, one, done)
        for call, at in begun.values():
            yield self._entered(call, at)
        yield from sent.values()

    def _looping(self, name: str, one: _LoopAggregate, done: Mapping[LoopKey, int]) -> t.Looping:
        here = [member for member in one.members if member.key in done]
        return t.Looping(
            rank=self._rank,
            loop=name,
            nodes=tuple(one.nodes),
            uses=tuple(one.uses),
            spans=one.spans,
            runs=tuple([RunId(member.key.run) for member in here]),
            walks=tuple([member.walk for member in here]),
            iterations=tuple([(*member.key.iteration, done[member.key]) for member in here]),
            launches=one.launches,
            calls=one.calls,
            busy=one.busy,
            batch=one.batch,
            at=one.at,
        )

    def _entered(self, call: LoopCall, at: float) -> t.Looping:
        pairs = zip(call.spec.uses, call.uses, strict=True)
        uses = [use for use, given in pairs if given.active is None or any(given.active)]
        return t.Looping(
            rank=self._rank,
            loop=call.loop,
            nodes=tuple(dict.fromkeys(use.node for use in uses)),
            uses=tuple(dict.fromkeys(use.name for use in uses)),
            spans=call.spans,
            runs=(RunId(call.run),),
            walks=(call.walk,),
            iterations=((*call.iteration, 0),),
            launches=0,
            calls=0,
            busy=0.0,
            batch=0,
            at=at,
        )


def _key(call: LoopCall) -> LoopKey:
    return LoopKey(call.run, call.step, call.use, call.iteration)
