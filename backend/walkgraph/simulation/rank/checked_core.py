"""The core of a rank; checks its events and commands against the calls and loops in the engine."""

from walkgraph.engine.loops.spec import Items
from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan
from walkgraph.simulation.rank.calls import SimulatedCalls
from walkgraph.simulation.simulator import Simulator
from walkgraph.wire import messages as m
from walkgraph.wire.standing import Standing
from walkgraph.worker.events import (
    CallBegun,
    CallDone,
    Command,
    Event,
    HoldLoops,
    MoveState,
    PieceCame,
    Ref,
    Release,
    Report,
    RunCall,
    RunLoop,
)
from walkgraph.worker.interfaces import CoreLike

_OF_CALLS = frozenset({CallBegun, CallDone, Items, PieceCame})
"""Events about calls and loops in the engine."""
_CHECKED = frozenset({HoldLoops, MoveState, Release, Report, RunCall, RunLoop})
"""Commands that are looked at; the others come as often."""


class CheckedCore:
    """Implements `worker.interfaces.CoreLike`."""

    def __init__(self, simulator: Simulator, rank: Rank, plan: Plan, core: CoreLike, calls: SimulatedCalls) -> None:
        self.in_flight: set[Ref] = set()
        """Calls and loops that the engine has not ended yet."""
        self._simulator, self._rank, self._core, self._calls = simulator, rank, core, calls
        self._leavable = {
            (plan.nodes[walk.uses[edge.target.use].node].name, edge.target.port)
            for walk in plan.walks
            for edge in walk.edges
            if edge.source.kind == "stream" and plan.streams[edge.source.index].continue_after_done
        }
        """(node, port) of streams that a loop may read to the end, beyond it, or not so far."""

    @property
    def runs(self) -> tuple[str, ...]:
        return self._core.runs

    def standing(self, run: str) -> Standing | None:
        return self._core.standing(run)

    def handle(self, event: Event) -> list[Command]:
        if type(event) in _OF_CALLS:
            self._came(event)
        commands = self._core.handle(event)
        for command in commands:
            if type(command) in _CHECKED:
                self._leaves(command)
        return commands

    def _came(self, event: Event) -> None:
        match event:
            case CallBegun(ref=ref) | PieceCame(ref=ref):
                self._check_in_flight(ref)
            case CallDone(ref=ref):
                self._check_in_flight(ref)
                self.in_flight.discard(ref)
            case Items(call=call):
                self._check_in_flight(Ref(call.run, call.step, call.use, call.iteration))
            case _:
                pass

    def _leaves(self, command: Command) -> None:
        match command:
            case RunCall(call=call) | RunLoop(call=call):
                self._begins(Ref(call.run, call.step, call.use, call.iteration))
            case MoveState(ref=ref):
                self._begins(ref)
            case HoldLoops():
                self._simulator.counts["device loops held"] += 1
            case Report(message=m.LegDone(run=run)):
                self._check_at_rest(run)
            case Report(message=m.RankDone(run=run)):
                self._check_done(run)
            case Release(run=run):
                self.in_flight = {ref for ref in self.in_flight if ref.run != run}
            case _:
                pass

    def _begins(self, ref: Ref) -> None:
        if ref in self.in_flight:
            raise self._simulator.fail(f"rank {self._rank} makes {ref} twice", ref.run)
        self.in_flight.add(ref)

    def _check_in_flight(self, ref: Ref) -> None:
        if ref not in self.in_flight and ref.run in self._core.runs:
            raise self._simulator.fail(f"on rank {self._rank} something comes of {ref} after its end", ref.run)

    def _check_at_rest(self, run: str) -> None:
        left = [ref for ref in self.in_flight if ref.run == run]
        if left:
            raise self._simulator.fail(f"rank {self._rank} is done with {left[0]} in flight", run)

    def _check_done(self, run: str) -> None:
        """Checks that nothing is in flight, and that each stream was read to its end, which came once."""
        self._check_at_rest(run)
        for (_, _, node, port), chunks in self._calls.chunks.get(run, {}).items():
            indices, lasts = [chunk.index for chunk in chunks], [chunk.last for chunk in chunks]
            after = chunks[lasts.index(True) + 1 :] if True in lasts else []
            absent = all(chunk.valid == 0 for chunk in after)
            ends = lasts.count(True)
            ended = ends == 1 or (ends == 0 and (node, port) in self._leavable)
            if indices != [*range(len(indices))] or not ended or not absent:
                raise self._simulator.fail(f"`{port}` on rank {self._rank} reads chunks {indices}, last {lasts}", run)
