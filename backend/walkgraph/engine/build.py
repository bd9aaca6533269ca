"""What an engine is made of, put together before the first request: operators, caches, and who launches what."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from walkgraph.abi.operator import Capture
from walkgraph.engine.calls.batches import Batches
from walkgraph.engine.calls.captured_step import Singles
from walkgraph.engine.calls.readback import chained, host_ports
from walkgraph.engine.calls.runner import Runner
from walkgraph.engine.calls.schedule import Mix
from walkgraph.engine.device.capture import Capturer
from walkgraph.engine.device.clocks import Stopwatch
from walkgraph.engine.failures import is_memory
from walkgraph.engine.kv.paged_attention import Contexts
from walkgraph.engine.kv.pool import Pool
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.load import load_operators, make_pools, nodes_here
from walkgraph.engine.loops.bodies import Loaded
from walkgraph.engine.loops.graphs import LoopDevice
from walkgraph.engine.loops.scheduler import LoopScheduler
from walkgraph.engine.warmup import Serving, capture_singles, warm_up
from walkgraph.errors import Refused
from walkgraph.layers import invariance
from walkgraph.placement.tables import Plan, RankPlan

Progress = Callable[[str, float], None]
"""What is going on, and its share done."""


@dataclass(frozen=True)
class Machine:
    """Of one rank."""

    nodes: Mapping[str, Loaded]
    states: StateTable
    batches: Batches
    resident: LoopScheduler
    singles: Callable[[torch.device], Singles | None]


class Maker:
    def __init__(  # noqa: PLR0913 - as `Engine`, each by its name
        self,
        plan: Plan,
        here: RankPlan,
        roots: Sequence[Path],
        *,
        mix: Mix,
        capture: bool,
        prefix_cache: bool,
        batch_invariant: bool,
        watch: Stopwatch,
        in_memory: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        """As `Engine` has them. `roots`: where weights lie. `in_memory`: whether what a run holds is there."""
        self._plan, self._here, self._roots, self._capture = plan, here, roots, capture
        self._mix = mix._replace(single=mix.single or batch_invariant)
        self._prefix_cache, self._invariant = prefix_cache and not batch_invariant, batch_invariant
        self._watch, self._in_memory, self._clock = watch, in_memory, clock
        self._capturer = cache(lambda device: Capturer(device, enabled=capture, priority=-1))

    def load(self, progress: Progress) -> Machine:
        """Operators, then caches. Raises `Refused`, `NotFound`, `InvalidInput` for what can't be loaded."""
        try:
            nodes = load_operators(self._plan, self._here, self._roots, progress, self._capture_of)
            return self.machine(nodes, make_pools(self._plan, self._here, nodes))
        except Exception as raised:
            if not is_memory(raised):
                raise
            message = f"rank {self._here.rank} has too little memory for its nodes; place fewer on it"
            raise Refused(message) from raised

    def machine(self, nodes: Mapping[str, Loaded], pools: Mapping[str, Pool]) -> Machine:
        ports, device = host_ports(self._plan, self._here), torch.device(self._here.device)
        states, singles = StateTable(pools, Contexts(), prefix_cache=self._prefix_cache), cache(self.singles)
        runner = Runner(
            states, self._here.rank, host_ports=lambda call: ports.get(call.node, ()), stamp=self._watch.stamp
        )
        batches = Batches(
            nodes,
            runner,
            singles,
            chained=chained(self._plan, self._here),
            mix=self._mix,
            device=device,
            watch=self._watch,
            clock=self._clock,
        )
        loops = LoopDevice(
            states,
            lambda node: nodes[node],
            runner.failures,
            watch=self._watch,
            host_ports=lambda node: ports.get(node, ()),
            capturer=self._capturer,
        )
        resident = LoopScheduler(loops, watch=self._watch, here=self._in_memory, clock=self._clock)
        return Machine(nodes, states, batches, resident, singles)

    def warm(self, engine: Serving, machine: Machine, progress: Progress) -> None:
        """Through its `step`. Raises `RunFailed`."""
        warm_up(engine, self._plan, nodes_here(self._plan, self._here), machine.nodes, progress)
        with invariance.batch_invariant(self._invariant):
            capture_singles(machine.nodes, machine.singles, progress)

    def _capture_of(self, device: torch.device) -> Capture | None:
        return self._capturer(device) if self._capturer(device).enabled else None

    def singles(self, device: torch.device) -> Singles | None:
        """What captures steps on a device, if anything."""
        capturer = Capturer(device, enabled=self._capture)
        most = 1 if self._invariant else None
        return Singles(capturer, most=most, marks=self._watch.mark) if capturer.enabled else None
