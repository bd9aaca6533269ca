"""The engine of one rank: schedule, launch, collect. Everything that a rank computes goes through `step`.

It knows calls and states, not the Walks of runs: the worker decides which call comes next and where values go.

    add ──────> calls ──> a batch ──────────────┐
    add_loop ─> loops ──> a launch of a loop ───┴──> collect ──> Done, Items, LoopDone
    swap.suspend, swap.resume ─────────────────────────────────> Swapped

Batches and steps of the device loops are launched in turn, as `Mix` says, and a batch waits for loops that playback is
about to reach (`pacing`). Loops that are over in one launch may wait for runs that are about to enter them (`joining`).
On a GPU, one launch is collected while the next is in flight.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Unpack

import torch

from walkgraph.abi.calls import Call
from walkgraph.engine.build import EngineBuilder, EngineOptions, Progress
from walkgraph.engine.calls.chunked_prefill import Begun, Done, Forwarded
from walkgraph.engine.device_wait import DeviceWait
from walkgraph.engine.figures import FigureReader
from walkgraph.engine.gauges import Gauges, memory
from walkgraph.engine.kv.swap import Swapped
from walkgraph.engine.load import rank_plan
from walkgraph.engine.loops.examples import with_examples
from walkgraph.engine.loops.loop_peers import LoopPeers, PeerMemory, PeerWorker
from walkgraph.engine.loops.loop_runs import LoopDone, LoopKey, Stepped
from walkgraph.engine.loops.spec import Items, LoopCall
from walkgraph.ids import Rank
from walkgraph.layers import invariance
from walkgraph.placement.tables import Plan

PUT_OFF = 8
"""The most times in a row that a batch waits for what quick and answered calls lead to."""

Event = Begun | Done | Forwarded | Items | LoopDone | Stepped | Swapped


class Engine:
    def __init__(self, plan: Plan, rank: Rank, *, threads: int | None = None, **options: Unpack[EngineOptions]) -> None:
        """`threads`: torch's threads on this rank's CPU; None leaves the number to torch. Nothing is loaded before
        `load`."""
        if threads is not None:
            torch.set_num_threads(threads)
        here = rank_plan(plan, rank)
        self._device = torch.device(here.device)
        self._builder = EngineBuilder(plan, here, **options)
        self._clock, self._invariant, hears = self._builder.clock, self._builder.invariant, self._builder.hears
        self._watch, self._parts = self._builder.watch, self._builder.parts()
        parts = self._parts
        self.calls, self.loops = parts.calls, parts.loops
        """Calls outside device loops, and device loops. While the loops `wait_for_peers`, `step` waits for nothing."""
        self.states, self.transfers = parts.states, parts.transfers
        """The states of its runs, and copies of them to other runs and ranks."""
        self.pools, self.limits = parts.states.pools, parts.states.limits
        """The pages of its caches, and the limits on the tokens of a run's states."""
        self.swap, self.holds = parts.swap, parts.holds
        """Suspends and resumes runs; holds the loops of single runs."""
        self._wait = DeviceWait(parts.calls, parts.loops, self._clock, hears)
        self._figures = FigureReader(parts.nodes)
        self._spent = 0.0
        """Seconds of the batches launched since the last step of the loops."""
        self._put_off = 0
        """Times in a row that a batch has waited for what quick and answered calls lead to."""

    def load(self, progress: Progress = lambda what, done: None) -> None:
        """Load operators, make the pools, and warm up through `step`. `progress` gets what is going on, and the share
        done.

        Raises `Refused`, `NotFound` or `InvalidInput` if something can't be loaded, `RunFailed` if the warm-up fails.
        """
        self._builder.load(self._parts, progress)
        self._builder.warm(self, self._parts, progress)
        self._figures.clear()

    def prepare(self, call: LoopCall, progress: Progress = lambda what, done: None) -> None:
        """Capture the steps of every batch size for loops like this one. The examples of its operators stand for the
        values that enter. A loop without examples is captured when the first one comes."""
        nodes = self._parts.nodes
        for one in with_examples(call, lambda node: nodes[node]):
            with invariance.batch_invariant(self._invariant):
                self.loops.prepare(one, lambda done: progress(f"capture of `{call.loop}` in `{call.walk}`", done))
        self._figures.clear()

    def add(self, call: Call) -> None:
        """Queue a call whose inputs are complete. Its tensors may be on any device."""
        self.calls.add(call)

    def add_loop(self, call: LoopCall) -> None:
        """Queue a device loop."""
        call.ready_at = call.ready_at or self._clock()
        self.calls.make_deferred(call.states.values())
        self.calls.in_flight.fence(call.run)
        self.loops.add(call)

    def connect_peers(self, memory: PeerMemory, worker: PeerWorker) -> None:
        """Let loops have parts on other ranks, whose devices write into `memory`."""
        self.loops.connect_peers(LoopPeers(memory, worker))

    def positions(self) -> Mapping[LoopKey, int]:
        """Iterations done by each loop that has a slot now."""
        return self.loops.positions()

    def step(self) -> list[Event]:
        """Launch what can be launched and return what is done; empty if there is nothing to do."""
        calls, loops = self.calls, self.loops
        while not calls.in_flight.over:
            # In turn: a prefill waits for one step of the loops, and the loops for one part of a prefill, or for some
            # short batches.
            with invariance.batch_invariant() if self._invariant else nullcontext():
                threads = calls.launch_threads()
                quick = calls.launch_quick()
                leading = [*[done.call for done in calls.answered], *quick]
                self._put_off = self._put_off + 1 if self._worth_waiting_for(leading) else 0
                batch = 0.0 if self._put_off else calls.launch(loops, spent=self._spent)
                stepped = loops.launch()
                beside = calls.launch_beside()
            self._spent = 0.0 if stepped else self._spent + batch
            if calls.answered or not (stepped or batch or beside or quick or threads):
                break
        events = self._collected() + self.swap.advance()
        if not events and calls.deferred.restless:
            return []
        if not events and (calls.in_flight.any or loops.in_flight):
            # Nothing can be launched before something in flight is over.
            events = self._collected(wait=self._wait.wait())
        elif not events:
            self.swap.wait()
        return events

    def _worth_waiting_for(self, calls: Sequence[Call]) -> bool:
        """True if a batch is to wait for what these calls lead to: it may be larger then, and takes the host far longer
        to launch. It doesn't wait for calls of loops, which come with every iteration."""
        return self._put_off < PUT_OFF and any(not call.iteration for call in calls)

    @property
    def idle(self) -> bool:
        """True if nothing can be launched or collected."""
        return self.calls.idle and self.swap.idle and self.loops.idle

    @property
    def resting(self) -> bool:
        """True if there is nothing to do before something is added, or `wakes` is readable."""
        return self.calls.resting and self.swap.idle and self.loops.idle

    @property
    def wakes(self) -> int | None:
        """The descriptor of a file that is readable once a thread has made a call; None if none makes any."""
        return self._wait.wakes

    def cancel(self, run: str) -> list[Call]:
        """Remove a run's calls and loops and return the calls that had not begun. Its states stay until `drop`."""
        self.holds.forget(run)
        self.loops.cancel(run)
        self.swap.cancel(run)
        return self.calls.cancel(run)

    def drop(self, run: str) -> None:
        """Forget a run: its waiting calls and its states."""
        self.cancel(run)
        self.loops.playbacks.forget(run)
        self.states.drop_run(run)

    def time_steps(self, *, on: bool) -> None:
        """Switch the reports of every batch and loop launch in `step`'s events (`Forwarded`, `Stepped`) on or off."""
        self._watch.switch(on=on)
        self._figures.clear()

    def gauges(self) -> Gauges:
        """The queue, the device's busy share, memory, pages and prefix cache at this moment, and the figures of its
        operators since the last time."""
        since = [at for at in (self.calls.in_flight.since, self.loops.launcher.since) if at is not None]
        prefixes = self.pools.prefix_stats()
        return Gauges(
            self.calls.waiting + self.loops.admission.waiting,
            self._watch.share(min(since, default=None)),
            *memory(self._device),
            *self.pools.pages(),
            prefixes.tokens,
            prefixes.saved,
            self._figures.read(),
        )

    def _collected(self, *, wait: bool = False) -> list[Event]:
        """`wait`: for a launch of the loops."""
        # Loops are asked first and told last: a call that was launched before a loop, and may have failed, is done
        # before what the loop made of its states is known.
        ended = self.loops.collect(wait=wait)
        return [*self.calls.collect(), *ended]
