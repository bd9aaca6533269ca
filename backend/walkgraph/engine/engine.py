"""The engine of one rank: schedule, launch, collect. Everything that a rank computes goes through `step`.

It knows calls and states, not runs' ways: which call comes next, and where values go, is the worker's.

    add ──> schedule ──> a batch ──> Launched ──┐
        └─> resident ──> a launch of a loop ────┴──> collect ──> Done, Items, LoopDone
    suspend, resume ──> swap ──> Swapped

A batch and a step of the loops on the device are launched in turn, as `Mix` says; on a GPU, what was launched before is
collected while the next is under way.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, Scalar, StateKey
from walkgraph.engine.build import Machine, Maker, Progress
from walkgraph.engine.calls.batches import Batches
from walkgraph.engine.calls.chunked_prefill import Begun, Done, Forwarded
from walkgraph.engine.calls.schedule import MIX, Mix
from walkgraph.engine.device.clocks import Stopwatch
from walkgraph.engine.gauges import Gauges, memory
from walkgraph.engine.kv.pool import PoolInfo, infos
from walkgraph.engine.kv.prefix import PrefixStats
from walkgraph.engine.kv.states import Kept
from walkgraph.engine.kv.swap import Swap, Swapped
from walkgraph.engine.load import rank_plan
from walkgraph.engine.loops.examples import with_examples
from walkgraph.engine.loops.loop_peers import LoopPeers, PeerMemory, PeerWorker
from walkgraph.engine.loops.loop_runs import LoopDone, LoopKey, Stepped
from walkgraph.engine.loops.scheduler import LoopScheduler
from walkgraph.engine.loops.spec import Items, LoopCall
from walkgraph.errors import InvalidInput
from walkgraph.ids import Rank
from walkgraph.layers import invariance
from walkgraph.placement.capacity.demand import state_tokens
from walkgraph.placement.tables import Plan

Event = Begun | Done | Forwarded | Items | LoopDone | Stepped | Swapped


class Engine:
    def __init__(  # noqa: PLR0913 - what a rank is started with, each by its name
        self,
        plan: Plan,
        rank: Rank,
        *,
        weights_roots: Sequence[Path] = (),
        threads: int | None = None,
        mix: Mix = MIX,
        capture: bool = True,
        prefix_cache: bool = True,
        batch_invariant: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`threads`: torch's on this rank's CPU; None leaves its choice. `mix`: how many rows batches have.
        `capture`: record the steps of loops as CUDA graphs. `prefix_cache`: what runs have in common from their
        beginning is computed once. `batch_invariant`: a run's numbers don't depend on the runs beside it or before it:
        calls are served one by one and share no beginnings, and a loop has one row a launch unless its steps are
        `invariant`. It holds for one number of `threads`.
        Nothing is loaded before `load`."""
        if threads is not None:
            torch.set_num_threads(threads)
        self._plan, self._clock, self._invariant = plan, clock, batch_invariant
        here = rank_plan(plan, rank)
        self._device = torch.device(here.device)
        self._watch = Stopwatch(self._device, clock)
        self._stopped: set[str] = set()
        """Runs whose loops are held."""
        self._maker = Maker(
            plan,
            here,
            weights_roots,
            mix=mix,
            capture=capture,
            prefix_cache=prefix_cache,
            batch_invariant=batch_invariant,
            watch=self._watch,
            in_memory=lambda run: self._swap.here(run),  # noqa: PLW0108 - the swap is made once this is
            clock=clock,
        )
        self._use(self._maker.machine({}, {}))

    def load(self, progress: Progress = lambda what, done: None) -> None:
        """Operators, then caches, then a warm-up through `step`. `progress`: what is going on, and its share done.

        Raises `Refused`, `NotFound`, `InvalidInput` for what can't be loaded, `RunFailed` for a warm-up that fails.
        """
        machine = self._maker.load(progress)
        self._use(machine)
        self._maker.warm(self, machine, progress)

    def _use(self, machine: Machine) -> None:
        self._nodes, self._states = machine.nodes, machine.states
        self._batches, self._resident = machine.batches, machine.resident
        self._pools = tuple(set(machine.states.pools.values()))
        self._swap = Swap(self._states, self._hold, self._quiet, self._release, self._resident.admission.cells)

    def admit(self, run: str, params: Mapping[str, Scalar]) -> None:
        """Hold a run (or the owner of a session's states) to its states' capacities, by the task's parameters: what was
        promised to others stays theirs. A run that was not admitted has no bound but the pools'."""
        most: dict[str, int] = {}
        for state in self._plan.states:
            if state.capacity is not None and state.name in self._states.pools:
                # Where the task lacks a parameter of the expression, it doesn't use the state either.
                with suppress(InvalidInput):
                    most[state.name] = state_tokens(state.name, state.capacity, state.width, params)
        self._states.limit(run, most)

    def add(self, call: Call) -> None:
        """Queue a call that has all it needs. Its tensors may lie on any device."""
        call.ready_at = call.ready_at or self._clock()
        self._batches.add(call)

    def add_loop(self, call: LoopCall) -> None:
        """Queue a loop that is run whole."""
        call.ready_at = call.ready_at or self._clock()
        self._batches.lead(call.run)
        self._resident.add(call)

    def prepare(self, call: LoopCall, progress: Progress = lambda what, done: None) -> None:
        """Make ready for loops like this one, whose entering values its operators' examples stand for: capture the
        steps of every batch size. A loop without examples is made ready when the first one comes."""
        for one in with_examples(call, lambda node: self._nodes[node]):
            with invariance.batch_invariant(self._invariant):
                self._resident.prepare(one, lambda done: progress(f"capture of `{call.loop}` in `{call.walk}`", done))

    def allow(self, run: str, step: int, use: int, iteration: tuple[int, ...], upto: int) -> None:
        """Let a loop launch iterations up to this many."""
        self._resident.admission.allow(LoopKey(run, step, use, iteration), upto)

    @property
    def batches(self) -> Batches:
        """Its calls outside loops on the device."""
        return self._batches

    @property
    def resident(self) -> LoopScheduler:
        """Its loops on the device; where they `wait_for_peers`, `step` waits for nothing."""
        return self._resident

    def connect_peers(self, memory: PeerMemory, worker: PeerWorker) -> None:
        """From now on loops may have parts on other ranks, whose devices write into this memory."""
        self._resident.connect_peers(LoopPeers(memory, worker))

    def positions(self) -> Mapping[LoopKey, int]:
        """Iterations done of the loops that are in slots now."""
        return self._resident.positions()

    def time_steps(self, *, on: bool) -> None:
        """Whether `step` tells of every batch and of every launch of the loops, as `Forwarded` and `Stepped`."""
        self._watch.switch(on=on)

    def step(self) -> list[Event]:
        """Launch what can be, and give what is done; empty when nothing waits."""
        batches = self._batches
        while not batches.over:
            # One of each in turn: a prefill waits for one step of the loops, and they for one part of it.
            with invariance.batch_invariant(self._invariant):
                batch = batches.launch(running=self._resident.running)
                stepped = self._resident.launch()
                beside = batches.launch_beside()
            batches.since = 0 if stepped else batches.since + batch
            if not (stepped or batch or beside):
                break
        events = self._collected() + self._swap.advance()
        if not events and (batches.under_way or self._resident.in_flight):
            # Nothing can be launched before something has come back.
            events = self._waited()
        elif not events:
            self._swap.wait()
        return events

    @property
    def idle(self) -> bool:
        """Nothing can be launched or collected."""
        return self._batches.idle and self._swap.idle and self._resident.idle

    def fork(self, source: StateKey, target: StateKey, width: int | None = None) -> None:
        """Copy-on-write; replaces the target. `width`: sequences of the target, where it is wider than the source."""
        self._states.fork(source, target, width)
        self._watch.stamp(self._device)

    def export(self, key: StateKey) -> dict[str, Tensor]:
        """For `import_state` on another rank; empty for a state that holds nothing."""
        with torch.inference_mode():
            found = self._states.export(key)
        self._watch.stamp(self._device)
        return found

    def import_state(self, key: StateKey, value: Mapping[str, Tensor]) -> None:
        """Raises `OutOfPages` (`out_of_memory`) when there is no room."""
        with torch.inference_mode():
            self._states.import_state(key, value)
        # What is launched next starts when the copies are over: they are nobody's compute.
        self._watch.stamp(self._device)

    def suspend(self, run: str) -> None:
        """Launch nothing more of a run and bring what it holds to the host's memory; `Swapped` tells when its pages are
        free. Calls that are added meanwhile wait."""
        self._swap.suspend(run)

    def resume(self, run: str) -> None:
        """Bring a suspended run back, to go on where it was; `Swapped` tells when it does."""
        self._swap.resume(run)

    def hold(self, run: str) -> None:
        """Launch nothing more of a run's loops until `release`: they leave their rows. Its calls go on."""
        self._stopped.add(run)
        self._resident.admission.hold(run)

    def release(self, run: str) -> None:
        self._stopped.discard(run)
        if not self._swap.away(run):
            self._resident.admission.release(run)

    def glance(self, key: StateKey) -> Kept | Tensor | None:
        """What a state holds now, for who looks at it."""
        return self._states.glance(key)

    def drop(self, run: str) -> None:
        """Forget a run: its waiting calls and its states."""
        self.cancel(run)
        self._states.drop_run(run)

    def drop_states(self, keys: Iterable[StateKey]) -> None:
        self._states.drop(keys)

    def cancel(self, run: str) -> list[Call]:
        """Take a run's calls and loops out; its states stay until `drop`."""
        self._stopped.discard(run)
        self._resident.cancel(run)
        self._swap.cancel(run)
        return self._batches.cancel(run)

    def pages(self) -> tuple[int, int]:
        """(free, total) of all pools; pages that are only kept for runs to come are free."""
        return sum(pool.pages.free for pool in self._pools), sum(pool.pages.total for pool in self._pools)

    def gauges(self) -> Gauges:
        """What it has to do, and to do it with."""
        under_way = [at for at in (self._batches.since_when, self._resident.launcher.since) if at is not None]
        return Gauges(
            self._batches.waiting + self._resident.admission.waiting,
            self._watch.busy.share(self._clock(), min(under_way, default=None)),
            *memory(self._device),
            *self.pages(),
            self._states.prefix_stats.tokens,
            self._states.prefix_stats.saved,
        )

    def prefixes(self) -> PrefixStats:
        """What sharing pages by prefix has saved."""
        return self._states.prefix_stats

    def pools(self) -> list[PoolInfo]:
        """The paged pools, for whoever promises their pages to runs."""
        return infos(self._states.pools)

    def audit(self) -> None:
        """The integrity check for idle moments: raises `PageFault` for a page that is lost or held twice."""
        self._states.audit()

    # ── helpers ──

    def _hold(self, run: str) -> None:
        self._batches.hold(run)
        self._resident.admission.hold(run)

    def _quiet(self, run: str) -> bool:
        """Nothing of a held run is under way."""
        return not (self._resident.admission.occupies(run) or self._batches.rides(run))

    def _release(self, run: str) -> None:
        self._batches.release(run)
        if run in self._stopped:
            self._resident.admission.wake()
        else:
            self._resident.admission.release(run)

    def _collected(self) -> list[Event]:
        return [*self._batches.collect(), *self._resident.collect(wait=False)]

    def _waited(self) -> list[Event]:
        if self._resident.waits_for_peers:
            return self._collected()
        if self._resident.launcher.full or not self._batches.wait(turns=True):
            if self._resident.in_flight:
                return [*self._resident.collect(wait=True)]
            self._batches.wait(turns=False)
        return self._collected()
