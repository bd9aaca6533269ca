"""Calls of a simulated rank outside device loops: the real schedule and batches, computed in simulated time."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from walkgraph.abi.calls import Call, ChunkInfo
from walkgraph.engine.calls.chunked_prefill import Begun, Done
from walkgraph.engine.calls.finite import FiniteCheck
from walkgraph.engine.calls.inflight import Result
from walkgraph.engine.calls.schedule import MIX, Schedule
from walkgraph.engine.pacing.playback import Playbacks
from walkgraph.errors import ErrorInfo
from walkgraph.simulation.rank.chains import chain_runner
from walkgraph.simulation.rank.device import Serve, SimulatedMark, SimulatedQueue
from walkgraph.simulation.rank.kept import SimulatedKeptCalls
from walkgraph.simulation.simulator import Simulator

CALL_SECONDS = 0.002
"""Mean duration of a batch."""
MOST_BATCHES = 4
"""Most batches in flight."""
BEGUN = 0.3
"""Share of calls whose outputs are passed on while they are in flight."""

_ON_HOST = cast("Any", None)
"""Copies from devices, of which plain numbers need none."""


class CallKey(NamedTuple):
    """Calls with equal keys may form a batch."""

    node: str
    plays: bool
    """Its values are played as they come."""


class ReadPort(NamedTuple):
    """A port that reads a stream."""

    step: int
    use: int
    node: str
    port: str


class CallBatch(NamedTuple):
    """A batch in flight."""

    mark: SimulatedMark
    done: tuple[Done, ...]

    def has(self, run: str) -> bool:
        return any(done.call.run == run for done in self.done)


class CallBatches:
    """The batches in flight, oldest first."""

    def __init__(self) -> None:
        self.batches: deque[CallBatch] = deque()

    def has(self, run: str) -> bool:
        return any(batch.has(run) for batch in self.batches)


class SimulatedCalls:
    def __init__(
        self,
        simulator: Simulator,
        queue: SimulatedQueue,
        functions: Mapping[str, Serve],
        playbacks: Playbacks,
        *,
        kept: SimulatedKeptCalls | None = None,
    ) -> None:
        """`kept`: finds calls that were made before; None where none are kept."""
        self.in_flight = CallBatches()
        self.chunks: dict[str, dict[ReadPort, list[ChunkInfo]]] = {}
        """Stream chunks that uses have read: by run, then by port."""
        self._simulator, self._queue, self._functions = simulator, queue, functions
        self._playbacks = playbacks
        self._schedule, self._kept = Schedule(), kept
        self._chains = chain_runner(functions, self._made, lambda: simulator.now)
        self._begun: list[Begun | Done] = []
        """Events that wait for no batch."""

    def add(self, call: Call) -> None:
        found = None if self._kept is None else self._kept.find(call)
        if found is not None:
            self._begun.append(Done(call, found, None, 0.0, 0.0, 1, kept=True))
            return
        name = f"chain of {call.walk} {call.use}" if call.links else call.node
        # What reads the same picture or prompt waits for the first that does.
        alike = (call.node, repr(call.inputs)) if self._kept is not None else None
        self._schedule.add(call, CallKey(name, call.timed is not None), 1, alike)

    def hold(self, run: str) -> None:
        self._schedule.hold(run)

    def release(self, run: str) -> None:
        self._schedule.release(run)

    def cancel(self, run: str) -> None:
        self._schedule.cancel(run)
        self._begun = [one for one in self._begun if one.call.run != run]
        self.chunks.pop(run, None)

    def launch(self, *, running: bool, since: int, leaves_time: Callable[[float], bool]) -> bool:
        """Launches a batch; returns False if no call waits or enough are in flight. `running`, `since`,
        `leaves_time`: as in `engine.calls.call_scheduler`."""
        batches = self.in_flight.batches
        if not self._schedule or len(batches) >= MOST_BATCHES or not MIX.may(running, since):
            return False
        held = not leaves_time(CALL_SECONDS)
        self._simulator.counts["batches held back"] += held
        batch = self._schedule.next(MIX.rows(running), fits=lambda key: key.plays or not held)
        if batch is None:
            return False
        done = self._served(batch.calls)
        if len(done) > 1:
            self._simulator.counts["batches of several calls"] += 1
        batches.append(CallBatch(self._queue.launch(CALL_SECONDS), done))
        if self._simulator.chance.random() < BEGUN:
            self._begun += [Begun(one.call, one.outputs) for one in done if one.outputs is not None]
        return True

    def collect(self) -> list[Begun | Done]:
        events: list[Begun | Done] = [*self._begun]
        self._begun.clear()
        batches = self.in_flight.batches
        while batches and batches[0].mark.query():
            done = batches.popleft().done
            for one in done:
                self._schedule.settle(one.call, failed=one.error is not None)
                if self._kept is not None and one.outputs is not None:
                    self._kept.note(one.call, one.outputs)
                if (timed := one.call.timed) is not None and timed.plays and one.error is None:
                    self._playbacks.left(one.call.run, timed.seconds)
            events += done
        return events

    @property
    def waiting(self) -> int:
        return len(self._schedule)

    @property
    def leads(self) -> int:
        """Calls under way for which others that are alike may wait."""
        return self._schedule.leads

    @property
    def idle(self) -> bool:
        return not (self.in_flight.batches or self._begun or self._schedule)

    def _served(self, calls: Sequence[Call]) -> tuple[Done, ...]:
        if not calls[0].links:
            return tuple(map(self._serve, calls))
        self._simulator.counts["chains"] += len(calls)
        results = self._chains.run(calls, timed=False).results()
        return tuple(
            Done(call, one.outputs, one.error, one.busy, 0.0, one.batch, links=one.links)
            for call, one in zip(calls, results, strict=True)
        )

    def _serve(self, call: Call) -> Done:
        for port, chunk in call.chunks.items():
            self.chunks.setdefault(call.run, {}).setdefault(ReadPort(call.step, call.use, call.node, port), []).append(
                chunk
            )
            if chunk.closing:
                self._simulator.counts["closing chunks"] += 1
        made = self._made(call)
        return Done(call, made.outputs, made.error, 0.0, 0.0, 1)

    def _made(self, call: Call) -> Result:
        try:
            outputs = self._functions[call.node](call)
        except ValueError as error:
            return Result(None, ErrorInfo(code="node_error", message=str(error), node=call.node), 0.0, 1)
        # Most give no fractions at all.
        port = FiniteCheck((outputs,), _ON_HOST).port(0) if float in map(type, outputs.values()) else None
        if port is None:
            return Result(outputs, None, 0.0, 1)
        self._simulator.counts["calls that give no number"] += 1
        return Result(None, ErrorInfo(code="numeric_error", message=f"`{port}` is no number", node=call.node), 0.0, 1)
