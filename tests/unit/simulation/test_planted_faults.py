"""A world finds what is planted at its seams, and finds nothing in the same seeds without it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from walkgraph.abi.calls import Call, StateKey
from walkgraph.conductor.core import Conductor
from walkgraph.conductor.events import Command as Ordered
from walkgraph.conductor.events import Event as Heard
from walkgraph.conductor.events import FromService
from walkgraph.engine.loops.loop_runs import BatchGroup, LoopDone, LoopRun
from walkgraph.ids import Rank
from walkgraph.simulation.client import Chances
from walkgraph.simulation.device import SimulatedDevice
from walkgraph.simulation.engine import SimulatedEngine
from walkgraph.simulation.links import SimulatedLinks
from walkgraph.simulation.network import Network, Packet, Process
from walkgraph.simulation.scenarios import Scenario, scenarios
from walkgraph.simulation.states import StateStore
from walkgraph.simulation.violations import Violation
from walkgraph.simulation.world import PARTS, Parts, World
from walkgraph.wire import messages as m
from walkgraph.worker.core import Core
from walkgraph.worker.events import CallDone, Cancelled, Command, Event, Release, Report, Started

SEEDS = 120
"""In which a fault must be found."""


# ── faults ──────────────────────────────────────────────────────────────────────────────────────


class LostPeer(SimulatedLinks):
    """A rank that was started anew isn't connected again, and says that it was."""

    def set_peers(self, peers: dict[Rank, m.Peer]) -> None:
        super().set_peers(self.peers.known | peers if not self.peers.known else peers | self.peers.known)
        starts = {rank: peer.start for rank, peer in peers.items() if rank != self._here.rank}
        self._report(m.Connected(rank=Rank(self._here.rank), peers=starts), None)


class NoClosingChunk(SimulatedEngine):
    """A consumer isn't run for the chunk that closes its stream."""

    def add(self, call: Call) -> None:
        if any(chunk.closing for chunk in call.chunks.values()):
            call.chunks = {}
        super().add(call)


class EndsTwice(SimulatedEngine):
    """What has ended ends again."""

    def step(self) -> list[Any]:
        events = super().step()
        ends = [event for event in events if isinstance(event, CallDone | LoopDone)]
        return [*events, *ends[:1]]


class LosesCalls(SimulatedEngine):
    """A call is never made."""

    def add(self, call: Call) -> None:
        if call.iteration[-1:] != (1,):
            super().add(call)


class KeepsPages(StateStore):
    """What is dropped last stays."""

    def drop(self, keys: Iterable[StateKey]) -> None:
        super().drop([*keys][:-1])


class TakesMorePages(StateStore):
    """A state takes more pages than its tokens need."""

    def write(self, key: StateKey, contents: Any) -> None:
        tokens = contents.get("tokens", [])
        super().write(key, {**contents, "tokens": [*tokens, *tokens, *tokens]} if len(tokens) < 40 else contents)


class StuckGroup(BatchGroup):
    def free_slot(self, run: LoopRun) -> None:
        slot = run.slot
        super().free_slot(run)
        self.free.remove(slot)


class KeepsSlots(SimulatedDevice):
    """A loop that has ended keeps its slot."""

    def opened(self, made: Any, call: Any) -> BatchGroup:
        group = super().opened(made, call)
        return StuckGroup(group.key, group.slots, group.graphs, group.spans, group.free)


class Loses(Network):
    """A kind of message is lost."""

    kind: Any = None

    def passed(self, source: Process, target: Process, packet: Packet) -> Sequence[Packet]:
        return () if self.lost(packet.message) else (packet,)

    def lost(self, message: Any) -> bool:
        return isinstance(message, self.kind)


def losing(kind: Any) -> Parts:
    return Parts(network=type(f"Loses{kind.__name__}", (Loses,), {"kind": kind}))


class LosesStops(Loses):
    """An `until` that ends a loop isn't heard by the other ranks."""

    def lost(self, message: Any) -> bool:
        return isinstance(message, m.Until) and message.stop


class LosesOpenings(Loses):
    """A gate isn't opened."""

    def lost(self, message: Any) -> bool:
        return isinstance(message, m.Gate) and message.mode == "open"


class Repeats(Network):
    """A value is sent twice."""

    def passed(self, source: Process, target: Process, packet: Packet) -> Sequence[Packet]:
        return (packet, packet) if isinstance(packet.message, m.Emit) else (packet,)


class CancelsFirst(Network):
    """A cancel overtakes its start."""

    def arrival(self, source: Process, target: Process, packet: Packet) -> float:
        at = super().arrival(source, target, packet)
        return at + 0.5 if isinstance(packet.message, m.Start) else at


class Forgetful(Core):
    """It doesn't remember which runs were cancelled before they came."""

    def handle(self, event: Event) -> list[Command]:
        if isinstance(event, Cancelled) and event.run not in self.runs:
            return [Release(event.run)]
        return super().handle(event)


class SaysSentAtOnce(Core):
    """The first step is told to have sent all before it has: another rank's outputs go before its own."""

    def handle(self, event: Event) -> list[Command]:
        commands = super().handle(event)
        if isinstance(event, Started) and event.itinerary.turns:
            commands = [Report(m.Sent(rank=self.rank, run=event.run, step=0)), *commands]
        return commands


class WithoutDeadlines(Conductor):
    """It never looks at the time of a run."""

    def handle(self, event: Heard, now: float) -> list[Ordered]:
        if isinstance(event, FromService) and isinstance(event.message, m.Submit):
            event = FromService(replace(event.message, deadline=None))
        return super().handle(event, now)


class Fault(NamedTuple):
    parts: Parts
    where: str
    """Scenarios whose names have this."""
    said: str
    """A part of what the world says."""
    chances: Chances = Chances()


OFTEN = Chances(pause=0.8, hold=0.5, kill=0.6, deadline=0.6, most_runs=6)
CROWD = Chances(kill=0.0, hang=0.0, most_runs=8)
FAULTS = {
    "a lost peer": Fault(Parts(links=LostPeer), "/2", "", OFTEN),
    "the border of a stream": Fault(Parts(engine=NoClosingChunk), "streams", "reads chunks"),
    "a credit that is not given back": Fault(losing(m.Credit), "streams/2", "stalled"),
    "a lost Freed": Fault(losing(m.Freed), "ferries", "in the arena"),
    "a slot that is not left": Fault(Parts(device=KeepsSlots), "followed", ""),
    "a duplicate end": Fault(Parts(engine=EndsTwice), "loops", "after its end"),
    "a page that is not returned": Fault(Parts(states=KeepsPages), "states", ""),
    "more pages than were promised": Fault(Parts(states=TakesMorePages), "states", "none is free", CROWD),
    "a cancel that overtakes its start": Fault(Parts(network=CancelsFirst, core=Forgetful), "loops", "in the core"),
    "an unfinished until": Fault(Parts(network=LosesStops), "loops/2", "stalled"),
    "outputs of two ranks in another order": Fault(Parts(core=SaysSentAtOnce), "relay", "by the book"),
    "a gate that isn't opened": Fault(Parts(network=LosesOpenings), "loops/1", "not all runs have ended", OFTEN),
    "a deadline that is not kept": Fault(Parts(conductor=WithoutDeadlines), "streams", "deadline", OFTEN),
    "a run that isn't resumed": Fault(losing(m.Resume), "states", "not all runs have ended", CROWD),
    "a run that isn't released": Fault(losing(m.Released), "loops", ""),
    "a lost output": Fault(losing(m.Emit), "loops", "by the book"),
    "an output twice": Fault(Parts(network=Repeats), "loops", "by the book"),
    "a call that is never made": Fault(Parts(engine=LosesCalls), "loops", ""),
}


@cache
def known() -> tuple[Scenario, ...]:
    return tuple(scenarios())


def found(fault: Fault, parts: Parts) -> tuple[int, str] | None:
    """The first seed in which a world is at fault, and what it says."""
    those = [one for one in known() if fault.where in one.name]
    for seed in range(SEEDS):
        try:
            World(those[seed % len(those)], seed, chances=fault.chances, parts=parts).run()
        except Violation as violation:
            return seed, str(violation)
    return None


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_and_its_seed_named(name: str) -> None:
    fault = FAULTS[name]
    seen = found(fault, fault.parts)
    assert seen is not None
    seed, said = seen
    assert f"seed {seed}, " in said
    assert fault.said in said


@pytest.mark.parametrize("name", ["a lost peer", "a run that isn't resumed", "a gate that isn't opened"])
def test_nothing_is_found_where_nothing_is_planted(name: str) -> None:
    assert found(FAULTS[name], PARTS) is None


def test_a_seed_is_replayed() -> None:
    fault = FAULTS["an unfinished until"]
    assert found(fault, fault.parts) == found(fault, fault.parts)
