"""Calls of a simulated rank outside device loops: the real scheduler of calls, over functions in place of forwards."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from walkgraph.abi.calls import Call, ChunkInfo, Outputs, StateKey
from walkgraph.engine.calls.call_scheduler import CallScheduler
from walkgraph.engine.calls.finite import FiniteCheck
from walkgraph.engine.calls.inflight import Launched, Result
from walkgraph.engine.calls.readback import WalkUse
from walkgraph.engine.calls.schedule import MIX
from walkgraph.engine.calls.threads import Threads
from walkgraph.engine.device.clocks import Stopwatch
from walkgraph.engine.loops.body import Loaded
from walkgraph.engine.pacing.playback import Playbacks
from walkgraph.errors import ErrorInfo
from walkgraph.simulation.rank.device import Serve, SimulatedMark, SimulatedQueue, StepWatch
from walkgraph.simulation.rank.kept import SimulatedKeptCalls
from walkgraph.simulation.rank.operators import SimulatedOperator
from walkgraph.simulation.simulator import Simulator

CALL_SECONDS = 0.002
"""Mean duration of a batch."""
THREAD_SECONDS = 0.004
"""Mean duration of a call that a thread makes."""
THREADED = 0.2
"""Share of nodes without states whose calls threads make."""
BEGUN = 0.3
"""Share of batches whose outputs are passed on while they are in flight."""


class _Host(NamedTuple):
    """Stands for the device of a node."""

    type: str = "cpu"


_HOST = cast("Any", _Host())
_ON_HOST = cast("Any", None)
"""Copies from devices, of which plain numbers need none."""


class ReadPort(NamedTuple):
    """A port that reads a stream."""

    step: int
    use: int
    node: str
    port: str


Chunks = dict[str, dict[ReadPort, list[ChunkInfo]]]
"""Stream chunks that uses have read: by run, then by port."""


class SimulatedRunner:
    """Stands for `engine.calls.runner.Runner`, also as its failures and its digests, of which there are none."""

    def __init__(self, simulator: Simulator, queue: SimulatedQueue, chunks: Chunks) -> None:
        self._simulator, self._queue, self._chunks = simulator, queue, chunks
        self.failures = self.digests = self

    def launch(self, operator: SimulatedOperator, device: object, calls: Sequence[Call]) -> Launched:
        simulator, began, count = self._simulator, self._simulator.now, len(calls)
        for call in calls:
            if call.chunks:
                self._note_chunks(call)
        if operator.deferring and not any(one.awaited for one in calls):
            simulator.counts["deferred calls made alone"] += len(calls)
        made = self._made(operator, calls)
        if count > 1:
            simulator.counts["batches of several calls"] += 1
        mark = self._queue.launch(CALL_SECONDS)
        begun = simulator.chance.random() < BEGUN

        def results() -> list[Result]:
            took = simulator.now - began
            return [Result(outputs, error, took, count) for outputs, error in made]

        return Launched(mark, results, [outputs if begun else None for outputs, _ in made])

    def start(self, threads: object, operator: SimulatedOperator, device: object, call: Call) -> Launched:
        """Make a call beside the device's queue."""
        simulator, began = self._simulator, self._simulator.now
        simulator.counts["calls made by threads"] += 1
        if call.chunks:
            self._note_chunks(call)
        [made] = self._made(operator, [call])
        mark = SimulatedMark(simulator, began + 2 * THREAD_SECONDS * simulator.apart.random())
        return Launched(mark, lambda: [Result(*made, mark.at - began, 1)], [None], times=lambda: (began, mark.at))

    def made(self, operator: SimulatedOperator, device: object, calls: Sequence[Call]) -> list[Result]:
        """Makes links of chains."""
        return [Result(outputs, error, 0.0, len(calls)) for outputs, error in self._made(operator, calls)]

    def _made(
        self, operator: SimulatedOperator, calls: Sequence[Call]
    ) -> list[tuple[Outputs | None, ErrorInfo | None]]:
        try:
            found = operator.forward(calls)
        except ValueError as raised:
            if len(calls) == 1:
                return [(None, self.of(calls[0], raised))]
            half = len(calls) // 2
            return self._made(operator, calls[:half]) + self._made(operator, calls[half:])
        return [self._checked(call, outputs) for call, outputs in zip(calls, found, strict=True)]

    def _checked(self, call: Call, outputs: Outputs) -> tuple[Outputs | None, ErrorInfo | None]:
        # Most give no fractions at all.
        port = FiniteCheck((outputs,), _ON_HOST).port(0) if float in map(type, outputs.values()) else None
        if port is None:
            return outputs, None
        self._simulator.counts["calls that give no number"] += 1
        return None, ErrorInfo(code="numeric_error", message=f"`{port}` is no number", node=call.node)

    def _note_chunks(self, call: Call) -> None:
        read = self._chunks.setdefault(call.run, {})
        for port, chunk in call.chunks.items():
            read.setdefault(ReadPort(call.step, call.use, call.node, port), []).append(chunk)
            if chunk.closing:
                self._simulator.counts["closing chunks"] += 1

    # ── failures and digests ──

    def of(self, call: Call, raised: Exception) -> ErrorInfo:
        return ErrorInfo(code="node_error", message=str(raised), node=call.node)

    def lacking(self, call: Call, port: str) -> ErrorInfo:
        return ErrorInfo(code="node_error", message=f"`{port}` has no value", node=call.node)

    def note(self, operator: SimulatedOperator, call: Call, outputs: Outputs) -> None: ...


class SimulatedCalls(CallScheduler):
    def __init__(
        self,
        simulator: Simulator,
        queue: SimulatedQueue,
        functions: Mapping[str, Serve],
        playbacks: Playbacks,
        watch: StepWatch,
        *,
        chained: Collection[WalkUse] = (),
        kept: SimulatedKeptCalls | None = None,
        stateless: Collection[str] = (),
    ) -> None:
        """`chained`: as in `readback.chained`. `kept`: finds calls that were made before; None where none are kept.
        `stateless`: nodes without states."""
        self.chunks: Chunks = {}
        self._simulator = simulator
        operators = {
            node: serve if isinstance(serve, SimulatedOperator) else SimulatedOperator(serve, alike=kept is not None)
            for node, serve in functions.items()
        }
        for node, operator in operators.items():
            operator.threaded = node in stateless and simulator.apart.random() < THREADED
        numbers: dict[int, int] = {}
        nodes = {
            node: Loaded(cast("Any", operator), _HOST, numbers.setdefault(id(operator), len(numbers)))
            for node, operator in operators.items()
        }
        super().__init__(
            nodes,
            cast("Any", SimulatedRunner(simulator, queue, self.chunks)),
            _captures_nothing,
            # Deferred calls give streams their values when they are done, so what gives streams values behind them
            # may not be followed before it is done.
            follows=lambda call: (call.walk, call.name) in chained or not operators[call.node].deferring,
            mix=MIX,
            device=_HOST,
            watch=cast("Stopwatch", watch),
            clock=lambda: simulator.now,
            kept=cast("Any", kept),
            playbacks=playbacks,
            threads=cast("Threads", _NoThreads()),
        )

    def add(self, call: Call) -> None:
        super().add(call)
        if call.links:
            self._simulator.counts["chains"] += 1
        elif call in self.deferred:
            self._simulator.counts["deferred calls"] += 1

    def make_deferred(self, states: Iterable[StateKey], beside: Any = None) -> None:
        waiting = len(self.schedule) if self.deferred.open else 0
        super().make_deferred(states, beside)
        if waiting:
            self._simulator.counts["deferred calls made early"] += waiting - len(self.schedule)

    def cancel(self, run: str) -> list[Call]:
        self.chunks.pop(run, None)
        return super().cancel(run)

    @property
    def leads(self) -> int:
        """Calls under way for which others that are alike may wait."""
        return self.schedule.leads


class _NoThreads:
    """Stands for `engine.calls.threads.Threads`: what they make is there at its time."""

    def heard(self) -> None: ...


def _captures_nothing(device: object) -> None: ...
