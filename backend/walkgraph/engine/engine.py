"""The engine of one rank: schedule, launch, collect. Everything that a rank computes goes through `step`.

It knows calls and states, not runs' ways: which call comes next, and where values go, is the worker's.

    add ──> schedule ──> a batch ──> Launched ──┐
        └─> resident ──> a launch of a loop ────┴──> collect ──> Done, Items, LoopDone
    suspend, resume ──> swap ──> Swapped

A batch and a step of the loops on the device are launched in turn, as `Mix` says; on a GPU, what was launched before is
collected while the next is under way.
"""

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from walkgraph.engine.capture import Capturer
from walkgraph.engine.clocks import Timing
from walkgraph.engine.entering import Loaded, with_examples
from walkgraph.engine.load import load_operators, make_pools, nodes_here, rank_plan
from walkgraph.engine.paged_attention import Contexts
from walkgraph.engine.pages import PAGE
from walkgraph.engine.parts import Done, Forwarded, Parts
from walkgraph.engine.pool import Pool, PoolInfo, page_bytes
from walkgraph.engine.prefix import PrefixStats
from walkgraph.engine.reading import host_ports
from walkgraph.engine.resident import LoopDone, Resident, Stepped
from walkgraph.engine.runner import Launched, Result, Runner, is_memory
from walkgraph.engine.schedule import MIX, Mix, Part, Schedule
from walkgraph.engine.single import Singles
from walkgraph.engine.states import Kept, StateTable
from walkgraph.engine.swap import Swap, Swapped
from walkgraph.engine.warming import capture_singles, warm_up
from walkgraph.errors import InvalidInput, Refused
from walkgraph.ids import Rank
from walkgraph.layers import invariance
from walkgraph.networks.base import Call, Capture, Scalar, StateKey
from walkgraph.networks.loops import Items, LoopCall
from walkgraph.placement.demand import state_tokens
from walkgraph.placement.tables import Plan

Event = Done | Forwarded | Items | LoopDone | Stepped | Swapped


class _Batch(NamedTuple):
    calls: Sequence[Call]
    launched: Launched
    began: float
    handed: float


class _Lane(NamedTuple):
    way: Literal["turn", "side", "host"]
    """`turn`: in turn with the steps of loops; `side`: by captured steps beside them; `host`: by a processor next to a
    device, which has its own work meanwhile."""
    operator: int
    bucket: Hashable


BESIDE = 2
"""Batches of captured steps under way: what comes meanwhile forms the next one together."""


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
        calls are served one by one and share no beginnings, and a loop's rows are summed in one order among any others.
        Nothing is loaded before `load`."""
        if threads is not None:
            torch.set_num_threads(threads)
        self._plan, self._rank, self._roots, self._clock = plan, rank, weights_roots, clock
        self._here = rank_plan(plan, rank)
        self._schedule, self._since = Schedule(), 0
        """And the batches launched since the last step of the loops."""
        self._parts, self._mix, self._capture = Parts(), mix._replace(single=mix.single or batch_invariant), capture
        self._timed = False
        self._stopped: set[str] = set()
        """Runs whose loops are held."""
        self._invariant, self._prefix_cache = batch_invariant, prefix_cache and not batch_invariant
        self._nodes: dict[str, Loaded] = {}
        self._unready: list[Done] = []
        self._batches: deque[_Batch] = deque()
        self._beside: deque[_Batch] = deque()
        self._over: list[_Batch] = []
        """Those that were done at once."""
        self._capturer = cache(lambda device: Capturer(device, enabled=capture, priority=-1))
        self._start({})

    def load(self, progress: Callable[[str, float], None] = lambda what, done: None) -> None:
        """Operators, then caches, then a warm-up through `step`. `progress`: what is going on, and its share done.

        Raises `Refused`, `NotFound`, `InvalidInput` for what can't be loaded, `RunFailed` for a warm-up that fails.
        """
        try:
            self._nodes = load_operators(self._plan, self._here, self._roots, progress, self._capture_of)
            self._start(make_pools(self._plan, self._here, self._nodes))
        except Exception as raised:
            if not is_memory(raised):
                raise
            raise Refused(f"rank {self._rank} has too little memory for its nodes; place fewer on it") from raised
        warm_up(self, self._plan, nodes_here(self._plan, self._here), self._nodes, progress)
        with invariance.batch_invariant(self._invariant):
            capture_singles(self._nodes, self._singles, progress)

    def _start(self, pools: Mapping[str, Pool]) -> None:
        ports = host_ports(self._plan, self._here)
        self._states = StateTable(pools, Contexts(), prefix_cache=self._prefix_cache)
        self._singles = cache(self._make_singles)
        self._runner = Runner(self._states, self._rank, host_ports=lambda call: ports.get(call.node, ()))
        self._resident = Resident(
            self._states,
            lambda node: self._nodes[node],
            self._runner.failed,
            host_ports=lambda node: ports.get(node, ()),
            capturer=self._capturer,
            clock=self._clock,
        )
        self._swap = Swap(self._states, self._hold, self._quiet, self._release, self._resident.cells)

    def _capture_of(self, device: torch.device) -> Capture | None:
        return self._capturer(device) if self._capturer(device).enabled else None

    def _make_singles(self, device: torch.device) -> Singles | None:
        capturer = Capturer(device, enabled=self._capture)
        return Singles(capturer, most=1 if self._invariant else None) if capturer.enabled else None

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
        loaded = self._nodes[call.node]
        try:
            ready = self._part(loaded, call)
        except Exception as raised:  # noqa: BLE001 (inputs that an operator can't even sort end that run alone)
            self._unready.append(Done(call, None, self._runner.failed(call, raised), 0.0, 0.0, 1))
            return
        self._schedule.add(*ready)

    def add_loop(self, call: LoopCall) -> None:
        """Queue a loop that is run whole."""
        call.ready_at = call.ready_at or self._clock()
        self._resident.add(call)

    def prepare(self, call: LoopCall, progress: Callable[[str, float], None] = lambda what, done: None) -> None:
        """Make ready for loops like this one, whose entering values its operators' examples stand for: capture the
        steps of every batch size. A loop without examples is made ready when the first one comes."""
        for one in with_examples(call, lambda node: self._nodes[node]):
            with invariance.batch_invariant(self._invariant):
                self._resident.prepare(one, lambda done: progress(f"capture of `{call.loop}` in `{call.walk}`", done))

    def allow(self, run: str, step: int, use: int, iteration: tuple[int, ...], upto: int) -> None:
        """Let a loop launch iterations up to this many."""
        self._resident.allow(run, step, use, iteration, upto)

    @property
    def resident(self) -> Resident:
        """Its loops on the device; where they `wait_for_peers`, `step` waits for nothing."""
        return self._resident

    def time_steps(self, *, on: bool) -> None:
        """Whether `step` tells of every batch and of every launch of the loops, as `Forwarded` and `Stepped`."""
        self._timed = self._resident.timed = on

    def step(self) -> list[Event]:
        """Launch what can be, and give what is done; empty when nothing waits."""
        while not self._over:
            # One of each in turn: a prefill waits for one step of the loops, and they for one part of it.
            with invariance.batch_invariant(self._invariant):
                batch = len(self._batches) < 2 and self._launch()
                stepped = self._resident.launch()
                beside = self._launch_beside()
            self._since = 0 if stepped else self._since + batch
            if not (stepped or batch or beside):
                break
        events = self._collected() + self._swap.advance()
        if not events and (self._batches or self._beside or self._resident.under_way):
            # Nothing can be launched before something has come back.
            events = self._waited()
        elif not events:
            self._swap.wait()
        return events

    @property
    def idle(self) -> bool:
        """Nothing can be launched or collected."""
        return (
            not self._unready
            and not len(self._schedule)
            and not self._batches
            and not self._beside
            and self._swap.idle
            and self._resident.idle
        )

    def fork(self, source: StateKey, target: StateKey, width: int | None = None) -> None:
        """Copy-on-write; replaces the target. `width`: sequences of the target, where it is wider than the source."""
        self._states.fork(source, target, width)

    def export(self, key: StateKey) -> dict[str, Tensor]:
        """For `import_state` on another rank; empty for a state that holds nothing."""
        with torch.inference_mode():
            return self._states.export(key)

    def import_state(self, key: StateKey, value: Mapping[str, Tensor]) -> None:
        """Raises `OutOfPages` (`out_of_memory`) when there is no room."""
        with torch.inference_mode():
            self._states.import_state(key, value)

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
        self._resident.hold(run)

    def release(self, run: str) -> None:
        self._stopped.discard(run)
        if not self._swap.away(run):
            self._resident.release(run)

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
        removed = [one.call for one in self._unready if one.call.run == run]
        self._unready = [one for one in self._unready if one.call.run != run]
        self._stopped.discard(run)
        self._resident.cancel(run)
        self._swap.cancel(run)
        return removed + self._parts.forget(self._schedule.cancel(run))

    def pages(self) -> tuple[int, int]:
        """(free, total) of all pools; pages that are only kept for runs to come are free."""
        pools = set(self._states.pools.values())
        return sum(pool.pages.free for pool in pools), sum(pool.pages.total for pool in pools)

    def prefixes(self) -> PrefixStats:
        """What sharing pages by prefix has saved."""
        return self._states.prefix_stats

    def pools(self) -> list[PoolInfo]:
        """The paged pools, for whoever promises their pages to runs."""
        states: dict[Pool, list[str]] = {}
        for name, pool in self._states.pools.items():
            states.setdefault(pool, []).append(name)
        return [
            PoolInfo(tuple(names), pool.pages.total, PAGE, page_bytes(pool.shape)) for pool, names in states.items()
        ]

    def audit(self) -> None:
        """The integrity check for idle moments: raises `PageFault` for a page that is lost or held twice."""
        self._states.audit()

    # ── batches ──

    def _launch(self) -> bool:
        running = self._resident.running
        if not self._mix.may(running, self._since):
            return False
        batch = self._schedule.next(
            self._mix.rows(running), lambda call, rows: self._cut(call, rows, running), _in_turn
        )
        if batch is None:
            return False
        loaded, began = self._nodes[batch.calls[0].node], self._clock()
        launched = self._runner.launch(loaded.operator, loaded.device, batch.calls)
        self._note(self._batches, _Batch(batch.calls, launched, began, self._clock()))
        return True

    def _launch_beside(self) -> bool:
        """Launch what takes no turn: a batch of captured steps, then one of an operator that has the host to itself."""
        launched, rows = False, self._mix.rows(running=False)
        for way, room in ("side", len(self._beside) < BESIDE), ("host", True):
            batch = self._schedule.next(rows, fits=lambda lane, way=way: lane.way == way) if room else None
            if batch is not None:
                loaded, began = self._nodes[batch.calls[0].node], self._clock()
                singles = self._singles(loaded.device)
                if way == "side" and singles is not None:
                    made = self._runner.launch_beside(singles, loaded.operator, loaded.device, batch.calls)
                else:
                    made = self._runner.launch(loaded.operator, loaded.device, batch.calls)
                self._note(self._beside, _Batch(batch.calls, made, began, self._clock()))
                launched = True
        return launched

    def _note(self, under_way: deque[_Batch], batch: _Batch) -> None:
        (under_way if batch.launched.asynchronous else self._over).append(batch)

    def _part(self, loaded: Loaded, call: Call) -> Part:
        operator, singles = loaded.operator, self._singles(loaded.device)
        key = None if singles is None else singles.lane(operator, call)
        if key is not None:
            return Part(call, _Lane("side", loaded.index, key), operator.rows(call))
        way = "host" if loaded.device.type == "cpu" and self._here.device != "cpu" else "turn"
        return Part(call, _Lane(way, loaded.index, operator.bucket(call)), operator.rows(call))

    def _cut(self, call: Call, rows: int, running: bool) -> Sequence[Part]:
        loaded, most = self._nodes[call.node], self._mix.part(running)
        with suppress(Exception):  # what can't be split says why when it is served whole
            parts = loaded.operator.split(call, most) if rows > most else ()
            ready = [self._part(loaded, part) for part in parts]
            if len(ready) > 1:
                self._parts.add(call, parts)
                return ready
        return ()

    def _hold(self, run: str) -> None:
        self._schedule.hold(run)
        self._resident.hold(run)

    def _quiet(self, run: str) -> bool:
        """Nothing of a held run is under way."""
        return not self._resident.rides(run) and all(
            c.run != run for b in (*self._batches, *self._beside) for c in b.calls
        )

    def _release(self, run: str) -> None:
        self._schedule.release(run)
        if run not in self._stopped:
            self._resident.release(run)

    def _collected(self) -> list[Event]:
        events: list[Event] = [*self._unready]
        self._unready.clear()
        over, self._over = self._over, []
        for under_way in self._batches, self._beside:
            while under_way and under_way[0].launched.ready:
                over.append(under_way.popleft())
        for batch in over:
            events += self._settled(batch)
        return events + self._resident.collect(wait=False)

    def _waited(self) -> list[Event]:
        if self._resident.waits_for_peers:
            return self._collected()
        if self._batches and not self._resident.full:
            self._batches[0].launched.wait()
        elif self._resident.under_way:
            return [*self._resident.collect(wait=True)]
        else:
            self._beside[0].launched.wait()
        return self._collected()

    def _settled(self, batch: _Batch) -> list[Event]:
        done: list[Event] = []
        results = batch.launched.results()
        if self._timed:
            done.append(self._told(batch, results))
        for call, result in zip(batch.calls, results, strict=True):
            queued = max(0.0, batch.began - call.ready_at)
            part = Done(call, result.outputs, result.error, result.busy, queued, result.batch)
            whole, rest = self._parts.settle(part)
            self._schedule.remove(rest)
            done += [] if whole is None else [whole]
        return done

    def _told(self, batch: _Batch, results: Sequence[Result]) -> Forwarded:
        finished = self._clock() if batch.launched.asynchronous else batch.handed
        ready = [self._parts.ready(call) for call in batch.calls]
        for call in batch.calls:
            self._parts.went(call, finished)
        failed = tuple(at for at, result in enumerate(results) if result.error is not None)
        return Forwarded(batch.calls, ready, failed, Timing(batch.began, batch.handed, batch.began, finished))


def _in_turn(lane: _Lane) -> bool:
    return lane.way == "turn"
