"""Loops that run on the device: who is in which slot, what is launched next, what comes back.

LoopCall ──> admission: queue ──> batch group, slot ──> launch, launch, ... ──> collection: Items ... LoopDone
"""

import time
from collections.abc import Callable
from typing import Any

from walkgraph.engine.loops.collection import Collector
from walkgraph.engine.loops.launch import Launcher, Watch
from walkgraph.engine.loops.loop_runs import LoopDeviceLike, LoopDone, LoopKey, Stepped
from walkgraph.engine.loops.slot_admission import BatchGroups, NoPeers, SlotAdmission
from walkgraph.engine.loops.spec import Items, LoopCall
from walkgraph.ids import Rank
from walkgraph.wire.fault_points import FaultPoints


class LoopScheduler:
    """The loops of one rank's devices."""

    def __init__(
        self,
        device: LoopDeviceLike,
        *,
        watch: Watch,
        here: Callable[[str], bool] = lambda run: True,
        clock: Callable[[], float] = time.monotonic,
        faults: FaultPoints | None = None,
    ) -> None:
        """`watch`: while it is on, each launch is reported as `Stepped`. `here`: whether what a run holds is in the
        device's memory."""
        events: list[Items | LoopDone | Stepped] = []
        self.groups = BatchGroups(device)
        self.admission = SlotAdmission(device, self.groups, events, here=here, clock=clock)
        self.launcher = Launcher(self.admission, self.groups, watch, clock, faults)
        self.collector = Collector(device, self.admission, self.launcher, events, watch, clock)

    def connect_peers(self, peers: NoPeers) -> None:
        """From now on loops may have parts on other ranks."""
        self.admission.peers = peers

    def receive(self, rank: Rank, word: Any) -> None:
        """What a peer says of its parts of loops."""
        if self.admission.peers.receive(rank, word):
            self.admission.wake()

    def gone(self, rank: Rank) -> None:
        """A peer is no more; what touches its memory is over when this returns."""
        if self.admission.peers.gone(rank):
            self.admission.wake()
        self.launcher.settle()

    def add(self, call: LoopCall) -> None:
        self.admission.add(call)

    def allow(self, run: str, step: int, use: int, iteration: tuple[int, ...], upto: int) -> None:
        """A loop may launch iterations up to this many."""
        self.admission.allow(LoopKey(run, step, use, iteration), upto)

    def cancel(self, run: str) -> None:
        """Take a run's loops out; what is in flight for them changes nothing that others see."""
        self.admission.cancel(run)
        self.collector.forget(run)

    def launch(self) -> bool:
        """Launch a step of the next group that has one; False where there is none, or enough is in flight."""
        self.admission.admit()
        return self.launcher.launch()

    def collect(self, *, wait: bool) -> list[Items | LoopDone | Stepped]:
        """What has come of the launches that are over; with `wait` the oldest one is waited for, if that needs no
        peer."""
        return self.collector.collect(wait=wait and not self.waits_for_peers)

    def prepare(self, call: LoopCall, progress: Callable[[float], None] = lambda done: None) -> None:
        """Make the batch group of such loops and capture what they are launched with, through the real step."""
        self.groups.open(call).graphs.prepare(call, progress)

    def positions(self) -> dict[LoopKey, int]:
        """Iterations done of the loops in slots."""
        return {run.key: run.done for run in self.groups.runs()}

    @property
    def idle(self) -> bool:
        """Nothing can be launched or collected."""
        return not (self.in_flight or self.collector.ready or self.admission.ready or self.running)

    @property
    def running(self) -> bool:
        """Whether a loop has a step to be launched."""
        return self.groups.next() is not None

    @property
    def in_flight(self) -> bool:
        return self.launcher.busy or self.collector.copying or self.waits_for_peers

    @property
    def waits_for_peers(self) -> bool:
        """What is in flight may need other ranks, so that their messages must be read meanwhile."""
        return self.admission.peers.busy or self.launcher.spans
