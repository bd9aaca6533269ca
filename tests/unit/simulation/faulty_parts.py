"""Faulty parts of a world: networks, engines, cores and states that do one thing wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from walkgraph.abi.calls import Call, StateKey
from walkgraph.conductor.core import Conductor
from walkgraph.conductor.events import Command as Ordered
from walkgraph.conductor.events import Event as Heard
from walkgraph.conductor.events import FromService
from walkgraph.engine.loops.loop_runs import BatchGroup, LoopDone, LoopRun
from walkgraph.ids import Rank
from walkgraph.simulation.network import CONDUCTOR, Endpoint, Frames, Network
from walkgraph.simulation.processes import WorldParts
from walkgraph.simulation.rank.device import SimulatedDevice
from walkgraph.simulation.rank.engine import SimulatedEngine
from walkgraph.simulation.rank.states import StateStore
from walkgraph.wire import codec
from walkgraph.wire import messages as m
from walkgraph.worker.core import Core
from walkgraph.worker.events import Cancelled, Command, Event, Release, Report, Started
from walkgraph.worker.io.links import Links


class LostPeer(Links):
    """A rank that was started anew isn't connected again, and the conductor is told that it was."""

    def set_peers(self, peers: dict[Rank, m.Peer]) -> None:
        super().set_peers({**peers, **self.peers.known})
        starts = {rank: peer.start for rank, peer in peers.items() if rank != self._rank}
        self.conductor.send(m.Connected(rank=self._rank, peers=starts))


class NoClosingChunk(SimulatedEngine):
    """A consumer isn't run for the chunk that closes its stream."""

    def add(self, call: Call) -> None:
        if any(chunk.closing for chunk in call.chunks.values()):
            call.chunks = {}
        super().add(call)


class EndsTwice(SimulatedEngine):
    """A run that has ended ends again."""

    def step(self) -> list[Any]:
        events = super().step()
        ends = [event for event in events if isinstance(event, LoopDone) or hasattr(event, "busy")]
        return [*events, *ends[:1]]


class LosesCalls(SimulatedEngine):
    """A call is never made."""

    def add(self, call: Call) -> None:
        if call.iteration[-1:] != (1,):
            super().add(call)


class KeepsPages(StateStore):
    """The state that is dropped last is kept."""

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


def decoded(source: Endpoint, target: Endpoint, frames: Frames) -> list[Any]:
    if target == CONDUCTOR:
        return [*codec.from_worker.decode_all(frames[0])]
    return [*(codec.to_worker if source == CONDUCTOR else codec.between_workers).decode_all(frames[-1])]


class Loses(Network):
    """A kind of message is lost."""

    kind: Any = None

    def passed(self, source: Endpoint, target: Endpoint, frames: Frames) -> Sequence[Frames]:
        messages = decoded(source, target, frames)
        kept = [codec.encode(message) for message in messages if not self.lost(message)]
        if len(kept) == len(messages):
            return (frames,)
        return ([*frames[:-1], codec.together(kept)[1]],) if kept else ()

    def lost(self, message: Any) -> bool:
        return isinstance(message, self.kind)


def losing(kind: Any) -> WorldParts:
    return WorldParts(network=type(f"Loses{kind.__name__}", (Loses,), {"kind": kind}))


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

    def passed(self, source: Endpoint, target: Endpoint, frames: Frames) -> Sequence[Frames]:
        twice = any(isinstance(message, m.Emit) for message in decoded(source, target, frames))
        return (frames, frames) if twice else (frames,)


class Reorders(Network):
    """Messages of one sender overtake each other."""

    def arrival(self, source: Endpoint, target: Endpoint, frames: Frames) -> float:
        self._last.clear()
        return super().arrival(source, target, frames)


class CancelsFirst(Network):
    """A cancel overtakes its start."""

    def arrival(self, source: Endpoint, target: Endpoint, frames: Frames) -> float:
        at = super().arrival(source, target, frames)
        late = any(isinstance(message, m.Start) for message in decoded(source, target, frames))
        return at + 0.5 if late else at


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
        if isinstance(event, Started) and event.itinerary.send_orders:
            commands = [Report(m.Sent(rank=self.rank, run=event.run, step=0)), *commands]
        return commands


class BeginsAnew(Conductor):
    """The steps behind an approval begin the run anew."""

    def handle_all(self, events: Iterable[Heard], now: float) -> list[Ordered]:
        return super().handle_all([self._first(event) for event in events], now)

    @staticmethod
    def _first(event: Heard) -> Heard:
        if isinstance(event, FromService) and isinstance(event.message, m.Submit):
            return FromService(replace(event.message, resumed=None))
        return event


class OutlivesGraphs(StateStore):
    """A session keeps its states when the graph changes."""

    def __init__(self, simulator: Any, paged: tuple[str, ...], pages: int) -> None:
        super().__init__(simulator, paged, pages)
        former = getattr(simulator, "former_states", None)
        if former is not None:
            of_sessions = [key for key in former._here if key.run.startswith("session:")]
            for key in of_sessions:
                self.write(key, former._here[key])
        simulator.former_states = self


class WithoutDeadlines(Conductor):
    """It never looks at the time of a run."""

    def handle_all(self, events: Iterable[Heard], now: float) -> list[Ordered]:
        return super().handle_all([self._endless(event) for event in events], now)

    @staticmethod
    def _endless(event: Heard) -> Heard:
        if isinstance(event, FromService) and isinstance(event.message, m.Submit):
            return FromService(replace(event.message, deadline=None))
        return event
