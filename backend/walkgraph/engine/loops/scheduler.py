"""The scheduler of device loops: slots, launches, and collection.

LoopCall ──> admission: queue ──> batch group, slot ──> launch, launch, ... ──> collection: Items ... LoopDone
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from walkgraph.engine.loops.collection import Collector
from walkgraph.engine.loops.launch import Launcher, Watch
from walkgraph.engine.loops.loop_runs import LoopDeviceLike, LoopDone, LoopKey, Stepped
from walkgraph.engine.loops.loop_turns import LoopTurns
from walkgraph.engine.loops.slot_admission import BatchGroups, NoPeers, SlotAdmission
from walkgraph.engine.loops.spec import Items, LoopCall, StreamItems
from walkgraph.engine.pacing.backlog import Backlog
from walkgraph.engine.pacing.playback import Playbacks
from walkgraph.ids import Rank
from walkgraph.wire.fault_points import FaultPoints


class LoopScheduler:
    """The loops of one rank's devices."""

    def __init__(
        self,
        device: LoopDeviceLike,
        playbacks: Playbacks,
        *,
        watch: Watch,
        here: Callable[[str], bool] = lambda run: True,
        clock: Callable[[], float] = time.monotonic,
        faults: FaultPoints | None = None,
        backlog: Backlog | None = None,
    ) -> None:
        """`playbacks`: those of this rank's runs; calls are noted there too. `watch`: while it is on, each launch is
        reported as `Stepped`. `here`: true if the states of a run are in device memory. `backlog`: that of the device's
        launches, of loops and calls."""
        events: list[Items | LoopDone | Stepped] = []
        self.groups, self.playbacks = BatchGroups(device), playbacks
        self.admission = SlotAdmission(device, self.groups, events, here=here, clock=clock, playbacks=self.playbacks)
        self.turns = LoopTurns(self.groups, self.playbacks, clock)
        self.launcher = Launcher(self.admission, self.groups, self.turns, watch, clock, faults, backlog)
        self.collector = Collector(device, self.admission, self.launcher, events, watch, clock, self.playbacks)

    def connect_peers(self, peers: NoPeers) -> None:
        """Let loops have parts on other ranks."""
        self.admission.peers = peers

    def receive(self, rank: Rank, word: Any) -> None:
        """Handle a peer's message about its parts of loops."""
        if self.admission.peers.receive(rank, word):
            self.admission.wake()

    def gone(self, rank: Rank) -> None:
        """Handle the death of a peer. Work that touches its memory is over when this returns."""
        if self.admission.peers.gone(rank):
            self.admission.wake()
        self.launcher.settle()

    def add(self, call: LoopCall) -> None:
        self.admission.add(call)

    def allow(
        self,
        run: str,
        step: int,
        use: int,
        iteration: tuple[int, ...],
        upto: int,
        items: Sequence[StreamItems] = (),
        fed: int | None = None,
    ) -> None:
        """Allow a loop to launch iterations up to this count. `items`: what streams have brought for these and later
        ones. `fed`: as that of `LoopCall`, with them."""
        self.admission.allow(LoopKey(run, step, use, iteration), upto, items, fed)

    def cancel(self, run: str) -> None:
        """Remove a run's loops. Their work in flight has no further effect."""
        self.admission.cancel(run)
        self.collector.forget(run)

    def leaves_time(self, seconds: float) -> bool:
        """True if a batch of calls may take the device for so long before the loops go on."""
        return self.turns.leaves_time(seconds)

    def launch(self) -> bool:
        """Launch the next group that has something to launch; False if none has, or enough is in flight."""
        self.admission.admit()
        return self.launcher.launch()

    def collect(self, *, wait: bool) -> list[Items | LoopDone | Stepped]:
        """Return the events of finished launches; with `wait`, wait for the oldest one unless it may need a peer."""
        return self.collector.collect(wait=wait and not self.waits_for_peers)

    def prepare(self, call: LoopCall, progress: Callable[[float], None] = lambda done: None) -> None:
        """Open the batch group of such loops, and capture their launches through the real step."""
        self.groups.open(call).graphs.prepare(call, progress)

    def positions(self) -> dict[LoopKey, int]:
        """Iterations done by each loop that has a slot."""
        return {run.key: run.done for run in self.groups.runs()}

    @property
    def idle(self) -> bool:
        """True if nothing can be launched or collected."""
        return not (self.in_flight or self.collector.ready or self.admission.ready or self.running)

    @property
    def running(self) -> bool:
        """True if a loop has something to launch."""
        return self.groups.next() is not None

    def runs(self) -> set[str]:
        """The runs with a loop that has something to launch."""
        return {run.key.run for run in self.groups.runs() if run.wants}

    @property
    def in_flight(self) -> bool:
        return self.launcher.busy or self.collector.copying or self.waits_for_peers

    @property
    def waits_for_peers(self) -> bool:
        """True if work in flight may wait for other ranks, so that their messages must be read meanwhile."""
        return self.admission.peers.busy or self.launcher.spans
