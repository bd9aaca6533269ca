"""Wires the parts of an engine before anything is loaded: states, schedulers, holds, swap and state transfers."""

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypedDict

import torch

from walkgraph.abi.operator import Capture
from walkgraph.collectives.base import WHOLE, Shard
from walkgraph.engine.calls.call_scheduler import CallScheduler
from walkgraph.engine.calls.captured_step import CapturedSteps
from walkgraph.engine.calls.digested import digested
from walkgraph.engine.calls.memo import KeptCalls, Memo, Sharing
from walkgraph.engine.calls.readback import chained, host_ports, read_of
from walkgraph.engine.calls.runner import Runner
from walkgraph.engine.calls.schedule import MIX, Mix
from walkgraph.engine.calls.threads import Threads
from walkgraph.engine.device.capture import Capturer, MakeCapturer
from walkgraph.engine.device.clocks import Stopwatch
from walkgraph.engine.device.outside import FIRSTHAND, Outside
from walkgraph.engine.failures import is_memory, too_little
from walkgraph.engine.holds import RunHolds
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.limits import StateLimits
from walkgraph.engine.kv.pool import KVPools
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.kv.swap import SuspendedRuns, Swap
from walkgraph.engine.kv.transfer import StateTransfer
from walkgraph.engine.load import KeptOperators, is_expression, load_operators, make_pools, nodes_here
from walkgraph.engine.loops.body import Loaded
from walkgraph.engine.loops.graphs import LoopDevice
from walkgraph.engine.loops.scheduler import LoopScheduler
from walkgraph.engine.pacing.backlog import Backlog
from walkgraph.engine.pacing.playback import Playbacks
from walkgraph.engine.warmup import WarmableEngine, capture_steps, warm_up
from walkgraph.errors import Refused
from walkgraph.layers import invariance
from walkgraph.placement.tables import Plan, RankPlan
from walkgraph.wire.fault_points import FaultPoints

Progress = Callable[[str, float], None]
"""Takes what is going on, and the share done, 0 to 1."""


class EngineOptions(TypedDict, total=False):
    """The options that a rank's engine is started with."""

    weights_roots: Sequence[Path]
    """The folders that weights are searched in."""
    mix: Mix
    """The number of rows in batches."""
    capture: bool
    """Record the steps of loops as CUDA graphs; true by default."""
    prefix_cache: bool
    """Compute a beginning that sequences share once; true by default."""
    shared_pages: bool
    """Share beginnings also where they are runs of different owners."""
    batch_invariant: bool
    """A run's numbers don't depend on other runs: calls are served one by one, no prefix is shared, and a loop has one
    row a launch unless its steps are `invariant`. That holds for one number of `threads`."""
    threaded: bool
    """Threads make the calls of threaded operators; true by default. Otherwise batches follow from the calls alone, and
    not from how long these take."""
    outside: Outside
    """The clock and the device's progress, which its choices follow from besides its calls."""
    faults: FaultPoints | None
    kept: KeptOperators | None
    """The operators of the plan before."""
    memo: Memo | None
    """Outputs of deterministic calls, which need not be made again."""
    capturer: MakeCapturer
    """Records steps."""
    shard: Shard
    """The rank's place in its group."""


@dataclass(frozen=True)
class EngineParts:
    """The parts of one rank's engine."""

    nodes: dict[str, Loaded]
    """Nodes by name. `load` fills it, and the pools."""
    states: StateTable
    transfers: StateTransfer
    calls: CallScheduler
    loops: LoopScheduler
    holds: RunHolds
    swap: Swap
    captured: Callable[[torch.device], CapturedSteps | None]
    """The captured steps of a device, if it has any."""


class EngineBuilder:
    def __init__(  # noqa: PLR0913 - what a rank is started with, each by its name
        self,
        plan: Plan,
        here: RankPlan,
        *,
        weights_roots: Sequence[Path] = (),
        mix: Mix = MIX,
        capture: bool = True,
        prefix_cache: bool = True,
        shared_pages: bool = False,
        batch_invariant: bool = False,
        threaded: bool = True,
        outside: Outside = FIRSTHAND,
        faults: FaultPoints | None = None,
        kept: KeptOperators | None = None,
        memo: Memo | None = None,
        capturer: MakeCapturer = Capturer,
        shard: Shard = WHOLE,
    ) -> None:
        """Takes `EngineOptions`."""
        self._plan, self._here, self._roots, self._capture = plan, here, weights_roots, capture
        self._device = torch.device(here.device)
        self._mix = mix._replace(single=mix.single or batch_invariant)
        self._prefix_cache, self.invariant = prefix_cache and not batch_invariant, batch_invariant
        """`invariant`: a run's numbers don't depend on other runs."""
        self.watch = Stopwatch(self._device, outside.own, outside)
        """Times its work."""
        self._outside, self.clock, self._faults, self._kept = outside, outside.time, faults, kept
        self.hears = outside.hears
        """Waits for messages while the device works; None: the engine waits for its device alone."""
        self._memo, self._shared_pages, self._shard = memo, shared_pages, shard
        self._threads = Threads(outside) if threaded else None
        self._make = capturer
        self._capturer = cache(lambda device: capturer(device, enabled=capture, priority=-1))

    def parts(self) -> EngineParts:
        """Make the parts, with nothing loaded."""
        nodes: dict[str, Loaded] = {}
        pools = KVPools(prefix_cache=self._prefix_cache)
        limits = StateLimits(self._plan.states, pools.by_state, shared_pages=self._shared_pages)
        states = StateTable(pools, AttentionBackends(), limits)
        ports, early = host_ports(self._plan, self._here), chained(self._plan, self._here)
        captured = cache(partial(self._captured, states))
        runner = Runner(
            states,
            self._here.rank,
            reads=lambda call: read_of(call, ports.get((call.walk, call.name), ())),
            clock=self.clock,
            marks=self.watch.mark,
            stamp=self.watch.stamp,
            faults=self._faults,
            digested=digested(self._plan, self._here).__contains__,
        )
        playbacks, backlog = Playbacks(self.clock), Backlog()
        calls = CallScheduler(
            nodes,
            runner,
            captured,
            follows=lambda call: (call.walk, call.name) in early,
            mix=self._mix,
            device=self._device,
            watch=self.watch,
            clock=self.clock,
            kept=self._kept_calls(limits),
            playbacks=playbacks,
            threads=self._threads,
            backlog=backlog,
        )
        states.before_use = calls.make_deferred
        device = LoopDevice(
            states,
            lambda node: nodes[node],
            runner.failures,
            watch=self.watch,
            host_ports=lambda use: ports.get(use, ()),
            capturer=self._capturer,
            clock=self.clock,
        )
        suspended = SuspendedRuns()
        loops = LoopScheduler(
            device,
            playbacks,
            watch=self.watch,
            here=suspended.here,
            clock=self.clock,
            faults=self._faults,
            backlog=backlog,
        )
        holds = RunHolds(calls.schedule, calls.in_flight, loops.admission)
        swap = Swap(states, suspended, holds.stop, holds.quiet, holds.go_on, loops.admission.cells, self._outside.mark)
        transfers = StateTransfer(states, lambda: self.watch.stamp(self._device), nodes)
        return EngineParts(nodes, states, transfers, calls, loops, holds, swap, captured)

    def load(self, parts: EngineParts, progress: Progress) -> None:
        """Load operators, then make the pools. Raises `Refused`, `NotFound` or `InvalidInput` if something can't be
        loaded."""
        try:
            if self._faults is not None and self._faults.due("open.weights"):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            nodes = load_operators(
                self._plan, self._here, self._roots, progress, self._capture_of, self._kept, self._shard
            )
            pools = make_pools(self._plan, self._here, nodes, self._faults)
        except Exception as raised:
            if not is_memory(raised):
                raise
            raise Refused(too_little(self._here, "for its nodes")) from raised
        parts.nodes.update(nodes)
        parts.states.pools.add(pools)

    def warm(self, engine: WarmableEngine, parts: EngineParts, progress: Progress) -> None:
        """Warm up through the engine's `step`, then capture steps. Raises `RunFailed`."""
        warm_up(engine, self._plan, nodes_here(self._plan, self._here), parts.nodes, progress)
        with invariance.batch_invariant(self.invariant):
            capture_steps(parts.nodes, parts.captured, progress)

    def _kept_calls(self, limits: StateLimits) -> KeptCalls | None:
        if self._memo is None:
            return None
        nodes = nodes_here(self._plan, self._here)
        sharing: dict[str, Sharing] = {node.name: node.kept for node in nodes if node.kept}
        literal = frozenset(node.name for node in nodes if not any(map(is_expression, node.params.values())))
        return KeptCalls(self._memo, limits.owner, sharing, literal)

    def _capture_of(self, device: torch.device) -> Capture | None:
        return self._capturer(device) if self._capturer(device).enabled else None

    def _captured(self, states: StateTable, device: torch.device) -> CapturedSteps | None:
        capturer = self._make(device, enabled=self._capture, priority=0)
        most = 1 if self.invariant else None
        steps = CapturedSteps(capturer, most=most, marks=self.watch.mark, states=states)
        return steps if capturer.enabled else None
