"""Faults to plant in the parts of a world or in the product. Each must be found within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from tests.unit.simulation.faulty_parts import (
    BeginsAnew,
    CancelsFirst,
    EndsTwice,
    Forgetful,
    KeepsPages,
    KeepsSlots,
    LosesCalls,
    LosesOpenings,
    LosesStops,
    LostPeer,
    NoClosingChunk,
    OutlivesGraphs,
    Reorders,
    Repeats,
    SaysSentAtOnce,
    TakesMorePages,
    WithoutDeadlines,
    losing,
)
from walkgraph.abi.calls import Call
from walkgraph.conductor import queue_order
from walkgraph.conductor.events import Command as Ordered
from walkgraph.conductor.events import ToRank, ToService
from walkgraph.conductor.itinerary_cache import CachedItinerary
from walkgraph.conductor.ranks import LoadOrders
from walkgraph.conductor.replicas.choice import ReplicaChoice
from walkgraph.conductor.runs.ordered_outputs import OrderedOutputs
from walkgraph.conductor.runs.records import RunRecord, RunTable
from walkgraph.conductor.runs.sessions import Sessions
from walkgraph.conductor.taking_up import ServedPlan, TakingUp
from walkgraph.engine.calls import schedule
from walkgraph.engine.calls.call_chains import ChainRunner, LaunchedChain, _ChainProgress
from walkgraph.engine.calls.call_scheduler import CallScheduler
from walkgraph.engine.calls.deferred_calls import DeferredCalls
from walkgraph.engine.calls.finite import FiniteCheck
from walkgraph.engine.calls.inflight import InFlightBatches
from walkgraph.engine.calls.memo import KeptCalls
from walkgraph.engine.calls.schedule import Schedule
from walkgraph.engine.kv.allocator import PageAllocator
from walkgraph.engine.kv.departure import Departure
from walkgraph.engine.kv.limits import StateLimits
from walkgraph.ids import Rank
from walkgraph.simulation.client import Chances
from walkgraph.simulation.processes import REAL_PARTS, WorldParts
from walkgraph.simulation.rank.kept import SimulatedKeptCalls
from walkgraph.wire import messages as m
from walkgraph.wire.questions import QueuedRun
from walkgraph.worker.events import CallBegun, CallDone, Command, Event
from walkgraph.worker.io.moving import StateMoves
from walkgraph.worker.io.outbox import Outbox, OutgoingMessage
from walkgraph.worker.io.peers import Peers
from walkgraph.worker.loops.device_loops import _ItemReader
from walkgraph.worker.state_parts import StateParts
from walkgraph.worker.suspension import Suspension
from walkgraph.worker.walk import local_run
from walkgraph.worker.walk.local_run import LocalRun
from walkgraph.worker.walk.run_streams import Incoming, Outgoing, Streams


class Patch(NamedTuple):
    """A function of the product that is replaced."""

    owner: Any
    name: str
    by: Any


def _no_chunk_on_a_border(whole: Callable[..., Any]) -> Callable[..., Any]:
    """A stream that ends where a chunk ends has no closing chunk if its end comes after that chunk was taken."""

    def chunk(self: Incoming, use: int, place: Any) -> Any:
        fresh, found = whole(self, use, place)
        if found is not None and found[1].closing and found[1].valid == 0:
            return False, None
        return fresh, found

    return chunk


def _endless(whole: Callable[..., Any]) -> Callable[..., Any]:
    """A loop isn't told that a stream has no more items."""

    def take(self: _ItemReader, *given: Any) -> Any:
        found = whole(self, *given)
        self.ended = False
        return found

    return take


def _skips(whole: Callable[..., Any]) -> Callable[..., Any]:
    """Items that come together reach the loop in the wrong order."""

    def take(self: _ItemReader, *given: Any) -> Any:
        found = whole(self, *given)
        return found and found._replace(values=found.values.flip(0))

    return take


def _forget_events(self: Suspension, run: str) -> list[Event]:
    self._kept.pop(run, None)
    return []


def _left_waiting(whole: Callable[..., Any]) -> Callable[..., Any]:
    """A rank that can't go back to the former plan is left to wait for an order that never comes."""

    def loaded(self: TakingUp, rank: Rank, message: m.Ready | m.LoadFailed, now: float) -> list[Ordered]:
        commands: list[Ordered] = whole(self, rank, message, now)
        return [] if commands == [ToRank(rank, m.Stop())] else commands

    return loaded


def _untold(whole: Callable[..., Any]) -> Callable[..., Any]:
    """A change of the graph that came about isn't answered."""

    def go_on(self: TakingUp) -> list[Ordered]:
        commands: list[Ordered] = whole(self)
        return [one for one in commands if not (isinstance(one, ToService) and isinstance(one.message, m.TakenUp))]

    return go_on


def _judged_by_the_former(self: TakingUp, plan: ServedPlan) -> list[Ordered]:
    """The processes load another plan, and requests are judged by the graph before."""
    return self._ranks.load(plan.plan, plan.name)


def _told_and_not_made(self: RunTable, asked: m.AskQueue) -> m.QueueTold:
    """A move in the queue is told, and nothing is moved."""
    runs = tuple(QueuedRun(run=run.id, priority=run.submit.priority, session=run.session) for run in self.queued())
    return m.QueueTold(number=asked.number, runs=runs, moved=asked.move is not None)


def _of_nobody(whole: Callable[..., Any]) -> Callable[..., Any]:
    """Calls are kept without their owners."""

    def key(self: KeptCalls, loaded: Any, call: Call) -> bytes | None:
        self._owner = lambda run: ""
        return whole(self, loaded, call)

    return key


def _of_any_node(whole: Callable[..., Any]) -> Callable[..., Any]:
    """Calls are kept without what computes them."""
    return lambda self, loaded, call: whole(self, loaded._replace(content=""), call)


def _by_name(whole: Callable[..., Any]) -> Callable[..., Any]:
    """Calls are kept under the name of their node, whatever it was before the graph changed."""

    def begin(self: SimulatedKeptCalls, *given: Any) -> None:
        whole(self, *given)
        self._contents = {name: name for name in self._contents}

    return begin


def _exchanged(whole: Callable[..., Any]) -> Callable[..., Any]:
    """Chains that are made together give each other's values."""

    def run(self: ChainRunner, chains: Sequence[Call], *, timed: bool) -> LaunchedChain:
        made = whole(self, chains, timed=timed)
        return LaunchedChain([*reversed(made.results())], made.forwarded)

    return run


def _goes_on(whole: Callable[..., Any]) -> Callable[..., Any]:
    """A chain whose call has failed gives what the call before gave."""

    def result(self: _ChainProgress) -> Any:
        self.error = None
        return whole(self)

    return result


def _unnamed(whole: Callable[..., Any]) -> Callable[..., Any]:
    """The error of a chain names the call that stands for it, not the one that failed."""

    def result(self: _ChainProgress) -> Any:
        if self.error is not None:
            self.error = replace(self.error, node=self.chain.node)
        return whole(self)

    return result


def _shares_what_may_go(self: PageAllocator, pages: Iterable[int]) -> None:
    """A page that is found by its tokens may be evicted as before, though a sequence holds it."""
    for page in pages:
        self._holders[page] += 1


def _forgets_without_release(self: PageAllocator, page: int) -> None:
    """A page that is evicted isn't free afterwards."""
    self._kept.remove(page)
    self._idle.pop(page, None)
    if self._holders[page] > 1:
        self.release((page,))


def _in_another_order(whole: Callable[..., Any]) -> Callable[..., Any]:
    """Deferred calls go in the wrong order."""
    return lambda deferred, used: whole(deferred, used)[::-1]


def _told_twice(whole: Callable[..., Any]) -> Callable[..., Any]:
    """A call gives its value to a stream twice, after its run went on without it."""

    def called(self: LocalRun, event: CallBegun | CallDone) -> list[Command]:
        if isinstance(event, CallDone) and event.ref in self._begun and event.outputs:
            table = self._tables[self.steps.all[event.ref.step].walk].use(event.ref.use)
            for edge in table.outputs:
                if edge.target.kind == "stream" and edge.source.port in event.outputs:
                    self._streams.give(event.ref.step, edge, (event.outputs[edge.source.port],))
        return whole(self, event)

    return called


def _unheard(whole: Callable[..., Any]) -> Callable[..., Any]:
    """The error of a call is lost if its run went on without it."""

    def called(self: LocalRun, event: CallBegun | CallDone) -> list[Command]:
        if isinstance(event, CallDone) and event.ref in self._begun:
            event = replace(event, error=None)
        return whole(self, event)

    return called


def _where_it_was(self: ReplicaChoice, run: RunRecord, found: CachedItinerary) -> bool:
    """A run may start on ranks that have ended it."""
    return all(map(self._ready, found.expanded.itinerary.ranks))


def _anywhere(self: ReplicaChoice, run: RunRecord, lost: Rank) -> bool:
    """A run starts again wherever it was before."""
    return True


def _all_of_it(self: Departure, held: int) -> None:
    """A receiver is taken to have all that it is offered."""
    self.tokens[0] = self.before


def _from_anywhere(whole: Callable[..., Any]) -> Callable[..., Any]:
    """A state leaves for the next move from here, though it goes to another rank and comes back before."""

    def move_of(self: StateParts, state: int, begun: int) -> Any:
        moves = [step for step in self._steps.all[begun:] if self._tables[step.walk].parts == state]
        return moves[-1] if moves else whole(self, state, begun)

    return move_of


class Fault(NamedTuple):
    where: str
    """Scenarios whose names have this."""
    said: str
    """A part of what the world says."""
    parts: WorldParts = REAL_PARTS
    patches: Sequence[Patch] = ()
    chances: Chances = Chances()
    draws: bool = False
    """A page changes the graph."""
    keeps: bool = False
    """Outputs of calls are kept."""
    moves: int = 0
    """Moves in the queue."""
    among: tuple[str, ...] = ()
    """The graphs that are drawn are of scenarios with one of these in their names."""


OFTEN = Chances(pause=0.8, hold=0.5, kill=0.6, deadline=0.6, most_runs=6)
SHARED = Chances(kill=0.0, hang=0.0, most_runs=8, shares=True)
CROWD = Chances(kill=0.0, hang=0.0, most_runs=8)
FAULTS = {
    "a lost peer": Fault("/2", "", WorldParts(links=LostPeer), chances=OFTEN),
    "messages of peers that aren't named yet": Fault(
        "/2", "", patches=[Patch(Peers, "keep", lambda self, sender, message: None)], chances=OFTEN
    ),
    "the border of a stream": Fault(
        "streams", "", patches=[Patch(Incoming, "chunk", _no_chunk_on_a_border(Incoming.chunk))]
    ),
    "a reader that leaves its stream without a word": Fault(
        "talker", "stalled", patches=[Patch(Streams, "leave", lambda self, step: None)]
    ),
    "a stream whose end a loop isn't told": Fault(
        "talker", "stalled", patches=[Patch(_ItemReader, "take", _endless(_ItemReader.take))]
    ),
    "items of a loop in the wrong order": Fault(
        "talker", "by the book", patches=[Patch(_ItemReader, "take", _skips(_ItemReader.take))]
    ),
    "a closing chunk that isn't read": Fault("streams", "reads chunks", WorldParts(engine=NoClosingChunk)),
    "a credit that is not given back": Fault("streams/2", "stalled", losing(m.Credit)),
    "a credit that is not noted": Fault(
        "streams", "stalled", patches=[Patch(Outgoing, "credited", lambda self, consumer, consumed: None)]
    ),
    "a lost Freed": Fault("ferries", "in the arena", losing(m.Freed)),
    "a Freed behind what waits for space": Fault(
        "ferries", "", patches=[Patch(Outbox, "urge", lambda self, message: self.send(OutgoingMessage(message)))]
    ),
    "a slot that is not left": Fault("followed", "", WorldParts(device=KeepsSlots)),
    "a duplicate end": Fault("loops", "after its end", WorldParts(engine=EndsTwice)),
    "a page that is not returned": Fault("states", "", WorldParts(states=KeepsPages)),
    "more pages than were promised": Fault("states", "none is free", WorldParts(states=TakesMorePages), chances=CROWD),
    "a cancel that overtakes its start": Fault(
        "loops", "in the core", WorldParts(network=CancelsFirst, core=Forgetful)
    ),
    "an unfinished until": Fault("loops/2", "stalled", WorldParts(network=LosesStops)),
    "outputs of two ranks in another order": Fault("relay", "by the book", WorldParts(core=SaysSentAtOnce)),
    "outputs that don't wait for their turn": Fault(
        "relay", "by the book", patches=[Patch(OrderedOutputs, "emit", lambda self, message: [message])]
    ),
    "messages that overtake each other": Fault("/2", "", WorldParts(network=Reorders)),
    "a gate that isn't opened": Fault("loops/1", "not all runs", WorldParts(network=LosesOpenings), chances=OFTEN),
    "a deadline that is not kept": Fault("streams", "deadline", WorldParts(conductor=WithoutDeadlines), chances=OFTEN),
    "a run that isn't resumed": Fault("states", "not all runs have ended", losing(m.Resume), chances=CROWD),
    "events that a suspended run loses": Fault(
        "states",
        "",
        patches=[Patch(Suspension, "end", _forget_events)],
        chances=CROWD,
    ),
    "a run that isn't released": Fault("loops", "", losing(m.Released)),
    "a lost output": Fault("loops", "by the book", losing(m.Emit)),
    "an output twice": Fault("loops", "by the book", WorldParts(network=Repeats)),
    "a rank that waits for an order": Fault(
        "task", "though it answers", patches=[Patch(TakingUp, "loaded", _left_waiting(TakingUp.loaded))], draws=True
    ),
    "news of a former plan's load": Fault(
        "/3", "", patches=[Patch(LoadOrders, "are_for", lambda self, message: True)], draws=True
    ),
    "a change that isn't answered": Fault(
        "task", "not all runs", patches=[Patch(TakingUp, "go_on", _untold(TakingUp.go_on))], draws=True
    ),
    "requests that are judged by the former graph": Fault(
        "walk", "", patches=[Patch(TakingUp, "_load", _judged_by_the_former)], draws=True
    ),
    "a move past another priority": Fault(
        "task", "by the book", patches=[Patch(queue_order, "_alike", lambda stretch: True)], chances=CROWD, moves=8
    ),
    "a move that is told and not made": Fault(
        "task", "by the book", patches=[Patch(RunTable, "tell_queue", _told_and_not_made)], chances=CROWD, moves=8
    ),
    "a kept call that is one of another node": Fault(
        "walk", "by the book", patches=[Patch(KeptCalls, "_key", _of_any_node(KeptCalls._key))], keeps=True
    ),
    "a kept call of another owner": Fault(
        "walk", "is kept for", patches=[Patch(KeptCalls, "_key", _of_nobody(KeptCalls._key))], chances=CROWD, keeps=True
    ),
    "a kept call of a node before it was edited": Fault(
        "chained",
        "",
        patches=[Patch(SimulatedKeptCalls, "__init__", _by_name(SimulatedKeptCalls.__init__))],
        chances=CROWD,
        draws=True,
        keeps=True,
        among=("chained",),
    ),
    "a call that waits for one that is over": Fault(
        "walk", "", patches=[Patch(Schedule, "settle", lambda self, call, failed: None)], chances=CROWD, keeps=True
    ),
    "a chain that gives another run's values": Fault(
        "chained", "by the book", patches=[Patch(ChainRunner, "run", _exchanged(ChainRunner.run))], chances=CROWD
    ),
    "a chain that goes on after a failed call": Fault(
        "chained", "", patches=[Patch(_ChainProgress, "result", _goes_on(_ChainProgress.result))]
    ),
    "a chain that goes on with what is no number": Fault(
        "chained", "", patches=[Patch(FiniteCheck, "port", lambda self, index: None)]
    ),
    "a chain whose failed call isn't named": Fault(
        "chained", "which nothing led to", patches=[Patch(_ChainProgress, "result", _unnamed(_ChainProgress.result))]
    ),
    "a shared page that is written": Fault(
        "states", "by the book", patches=[Patch(PageAllocator, "shared", lambda self, page: False)], chances=SHARED
    ),
    "a page that is evicted while it is read": Fault(
        "states", "", patches=[Patch(PageAllocator, "share", _shares_what_may_go)], chances=SHARED
    ),
    "an evicted page that is lost": Fault(
        "states", "", patches=[Patch(PageAllocator, "unkeep", _forgets_without_release)], chances=SHARED
    ),
    "a prefix of another owner": Fault(
        "states", "begins with pages of", patches=[Patch(StateLimits, "salt", lambda self, run: "")], chances=SHARED
    ),
    "a run that begins anew behind an approval": Fault("asking", "", WorldParts(conductor=BeginsAnew)),
    "a session that outlives its graph": Fault(
        "states", "", WorldParts(states=OutlivesGraphs), chances=CROWD, draws=True, among=("states", "passes")
    ),
    "kept outputs of a suspended run that are lost": Fault(
        "states", "", patches=[Patch(Suspension, "end", _forget_events)], chances=CROWD, keeps=True
    ),
    "a call that a thread has made and nobody collects": Fault(
        "task", "", patches=[Patch(InFlightBatches, "_ended", lambda self: [])]
    ),
    "a deferred call that is never made": Fault(
        "deferring", "not all runs", patches=[Patch(DeferredCalls, "collected", lambda self: None)]
    ),
    "a deferred call that is made after another on its states": Fault(
        "deferring",
        "by the book",
        patches=[Patch(CallScheduler, "make_deferred", lambda self, states, beside=None: None)],
    ),
    "deferred calls in the wrong order": Fault(
        "deferring", "by the book", patches=[Patch(schedule, "_before", _in_another_order(schedule._before))]
    ),
    "a stream that is told twice of a deferred call": Fault(
        "deferring", "", patches=[Patch(LocalRun, "called", _told_twice(LocalRun.called))]
    ),
    "an error of a deferred call that is lost": Fault(
        "deferring", "", patches=[Patch(LocalRun, "called", _unheard(LocalRun.called))]
    ),
    "a state that leaves before deferred calls are done": Fault(
        "deferring", "by the book", patches=[Patch(local_run, "_exports_state", lambda command: False)]
    ),
    "a deferred call that is made twice": Fault(
        "deferring", "", patches=[Patch(Schedule, "remove", lambda self, calls: None)]
    ),
    "a session whose run goes to another replica": Fault(
        "replicated", "by the book", patches=[Patch(Sessions, "alternative", lambda self, name: None)], chances=CROWD
    ),
    "a run that starts again though its client has outputs": Fault(
        "replicated", "", patches=[Patch(RunRecord, "may_restart", True)], chances=OFTEN
    ),
    "a run that starts again on a rank that has ended it": Fault(
        "replicated shared",
        "",
        patches=[Patch(ReplicaChoice, "_can_take", _where_it_was), Patch(ReplicaChoice, "has_another", _anywhere)],
        chances=OFTEN,
    ),
    # A part behind the lost one may tell of it before the run stalls.
    "a lost part of a state": Fault("moving", "", losing(m.StatePart)),
    "a part whose answer is lost": Fault("moving", "stalled", losing(m.PartTaken)),
    "an offer of which all is taken to be there": Fault(
        "moving", "comes behind token", patches=[Patch(Departure, "answer", _all_of_it)], chances=CROWD
    ),
    "parts of a state that leave for a later move": Fault(
        "moving", "", patches=[Patch(StateParts, "_move_of", _from_anywhere(StateParts._move_of))], chances=CROWD
    ),
    "a state that leaves though its run is over": Fault(
        "moving", "states that leave", patches=[Patch(StateMoves, "forget", lambda self, run: None)], chances=OFTEN
    ),
    "a call that is never made": Fault("loops", "", WorldParts(engine=LosesCalls)),
}
