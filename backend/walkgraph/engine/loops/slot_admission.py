"""Decides which loop runs get a slot, and which leave one.

The run that is due first gets the next slot. A run may leave its slot before its loop ends, once nothing of it is in
flight: for a queued run of higher priority, or because it is held. It is queued again, and goes on in any slot from
where it was.
"""

import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Hashable, Iterator, MutableMapping, Sequence
from operator import attrgetter
from typing import Any

from walkgraph.abi.calls import CallFailed
from walkgraph.engine.device.marks import Mark
from walkgraph.engine.loops.loop_runs import (
    BatchGroup,
    LoopDeviceLike,
    LoopDone,
    LoopKey,
    LoopRun,
    Stepped,
)
from walkgraph.engine.loops.spec import Items, LoopCall, StreamItems
from walkgraph.engine.pacing.playback import Playbacks
from walkgraph.ids import Rank

MOST_GROUPS = 16
"""The most batch groups kept ready; the least recently launched go first."""


class SlotAdmission:
    def __init__(
        self,
        device: LoopDeviceLike,
        groups: "BatchGroups",
        events: list[Items | LoopDone | Stepped],
        *,
        here: Callable[[str], bool] = lambda run: True,
        clock: Callable[[], float] = time.monotonic,
        playbacks: Playbacks,
    ) -> None:
        """`events`: the list that ended loops are added to. `here`: true if the states of a run are in device
        memory."""
        self.peers = NoPeers()
        self._device, self._groups, self._events, self._clock = device, groups, events, clock
        self._queue = LoopQueue(lambda call: self.peers.owes(call) and here(call.run), playbacks)
        self._changed = False
        """True if a queued run may find a slot that was not free before."""

    # ── the queue ──

    def add(self, call: LoopCall) -> None:
        self._queue.add(call)
        self._changed = True

    def hold(self, run: str) -> None:
        """Make a run's loops leave their slots, and give them none until `release`. `occupies` is false once they have
        left."""
        self._queue.hold(run)
        self.peers.hold(run)
        for group, one in self._groups.placed(run):
            one.leaving = True
            self.leave(group, one)

    def release(self, run: str) -> None:
        """Queue held loops again, in their former places."""
        for one in self._queue.held(run):
            if one.entered is not None:
                one.since = self._clock()
        self._queue.release(run)
        self.peers.release(run)
        self._changed = True

    def occupies(self, run: str) -> bool:
        """True if a loop of the run has a slot, or still needs one for its peers."""
        owing = any(one.call.run == run and not self.peers.may_leave(one.call) for one in self._queue.all())
        return owing or any(self._groups.placed(run))

    def cells(self, run: str) -> Iterator[MutableMapping[Any, Any]]:
        """The slot contents of a run's held loops, so that they can be moved to other memory and back."""
        return (one.cells for one in self._queue.held(run) if one.cells is not None)

    def allow(self, key: LoopKey, upto: int, items: Sequence[StreamItems] = (), fed: int | None = None) -> None:
        """Allow a loop to launch iterations up to this count, once it has these items of streams. `fed`: as that of
        `LoopCall`, with them."""
        for one in [one for one in self._queue.all() if one.key == key]:
            one.allowed, one.fed = upto, fed
            one.items += items
        for group in self._groups:
            one = group.placed.get(key)
            if one is not None:
                for part in items:
                    group.slots.put_items(one.slot, part)
                if one.reach <= 0:
                    one.since = self._clock()
                one.allowed, one.fed = upto, fed

    def wake(self) -> None:
        """Check again what can go on, after a peer's message, or when a held run's memory is back."""
        self._changed = True
        self._queue.recall()
        self._connect()
        for group in self._groups:
            for one in [one for one in group.runs if one.leaving]:
                self.leave(group, one)

    def cancel(self, run: str) -> None:
        """Remove a run's loops."""
        self._queue.cancel(run)
        for group, one in self._groups.placed(run):
            self._free(group, one)
        self.peers.cancel(run, self._device.mark())

    @property
    def waiting(self) -> int:
        """Loops that wait for a slot."""
        return len(self._queue)

    @property
    def ready(self) -> bool:
        """True if a queued run may find a slot."""
        return self._changed and len(self._queue) > 0

    # ── slots ──

    def admit(self) -> None:
        """Give slots to queued runs, the earliest due first."""
        self._connect()
        if not self._changed:
            return
        self._changed = False
        short: dict[BatchGroup, list[LoopRun]] = {}
        entered: dict[BatchGroup, list[LoopRun]] = {}
        for run in self._queue.take():
            try:
                group = self._groups.of(run)
                if group.spans and not self.peers.begin(run.call, group.slots.read_bytes):
                    self._queue.put(run)
                elif group.free:
                    self._enter(group, run)
                    entered.setdefault(group, []).append(run)
                else:
                    short.setdefault(group, []).append(run)
            except Exception as raised:  # noqa: BLE001 (a failed entry ends only that run)
                self.peers.end(run.call, None, halt=True)
                error = self._device.failure(run.call, raised)
                self._events.append(LoopDone(run.call, None, error, 0, False, 0.0, 0.0, 1))
        for group, runs in entered.items():
            self._fill(group, runs)
        for group, queued in short.items():
            for run in queued:
                self._queue.put(run)
            for run in () if group.spans else to_leave(group.runs, queued):
                run.leaving = True
                self.leave(group, run)

    def leave(self, group: BatchGroup, run: LoopRun) -> None:
        """Take a run out of its slot, if it is to leave and nothing of it is in flight."""
        if not run.leaving or run.slot < 0 or run.done < run.launched or not self.peers.may_leave(run.call):
            return
        try:
            run.cells = group.slots.leave(run)
        except Exception as raised:  # noqa: BLE001 (a failed exit from a slot ends only that run)
            self.fail(group, run, raised)
            return
        self._free(group, run)
        self._queue.put(run)

    def fail(self, group: BatchGroup, run: LoopRun, raised: Exception) -> None:
        self.end(group, run, halt=True)
        self._events.append(run.ended(None, self._device.failure(run.call, raised)))

    def end(self, group: BatchGroup, run: LoopRun, *, halt: bool) -> None:
        """Take a run out of its slot for good. `halt`: end the waits of its peers' work on the device."""
        self._free(group, run)
        if group.spans:
            self.peers.end(run.call, self._device.mark(), halt=halt)

    def _enter(self, group: BatchGroup, run: LoopRun) -> None:
        slot = group.free[-1]
        entered = group.slots.enter(run, slot)
        run.enter(entered, self._clock())
        run.leaving = self._queue.holds(run.call.run)
        if group.spans:
            run.linked, run.follows = False, self.peers.follow(run.call)
            self._link(group, run, slot)
        group.take_slot(run, slot)

    def _fill(self, group: BatchGroup, runs: Sequence[LoopRun]) -> None:
        """Fill the slots of runs that have entered: together, because each copy takes the host longer than the
        device."""
        try:
            group.slots.fill(runs)
        except Exception as raised:  # noqa: BLE001 (a slot that can't be filled ends only its run)
            if len(runs) == 1:
                self.fail(group, runs[0], raised)
                return
            for run in runs:
                self._fill(group, [run])

    def _free(self, group: BatchGroup, run: LoopRun) -> None:
        group.free_slot(run)
        self._changed = True

    # ── peers ──

    def _connect(self) -> None:
        """Close ended parts, and link runs whose peers' inboxes have become known."""
        self._changed |= self.peers.poll()
        for group in [group for group in self._groups if group.spans]:
            for run in [run for run in group.runs if not run.linked]:
                try:
                    self._link(group, run, run.slot)
                except CallFailed as raised:
                    self.fail(group, run, raised)

    def _link(self, group: BatchGroup, run: LoopRun, slot: int) -> None:
        """Link a run to its peers, if their inboxes are known. Raises CallFailed."""
        links = self.peers.links(run.call, group.slots.sent_bytes)
        if links is not None:
            group.slots.link(slot, links)
            run.linked = True


class BatchGroups:
    """Batch groups, by batch key and in the order of their turns."""

    def __init__(self, device: LoopDeviceLike) -> None:
        self._device = device
        self._known: dict[Hashable, BatchGroup] = {}
        self._turn: deque[BatchGroup] = deque()

    def __iter__(self) -> Iterator[BatchGroup]:
        return iter(self._turn)

    def __len__(self) -> int:
        return len(self._turn)

    def of(self, run: LoopRun) -> BatchGroup:
        """The group of a run. Raises what ends the run."""
        group = self._known.get(run.batch_key)
        if group is None:
            group = self.open(run.call)
            run.batch_key = group.key
        return group

    def open(self, call: LoopCall) -> BatchGroup:
        """The group of loops like this call. Slow for a new one, because its body must be made."""
        made = self._device.made(call)
        group = self._known.get(made.key)
        if group is None:
            self._forget()
            group = self._known[made.key] = self._device.opened(made, call)
            self._turn.append(group)
        group.graphs.expect(call.spec.usual)
        return group

    def runs(self) -> Iterator[LoopRun]:
        """All runs in slots."""
        return (run for group in self._turn for run in group.runs)

    def placed(self, run: str) -> list[tuple[BatchGroup, LoopRun]]:
        """A run's loops in slots."""
        return [(group, one) for group in self._turn for one in group.runs if one.call.run == run]

    def next(self) -> BatchGroup | None:
        """The first group in turn that has something to launch."""
        return next((group for group in self._turn if any(run.wants for run in group.runs)), None)

    def pass_turn(self, group: BatchGroup) -> None:
        self._turn.remove(group)
        self._turn.append(group)

    def _forget(self) -> None:
        """Close unused groups beyond the limit; otherwise every shape ever used would keep its tables."""
        unused = [group for group in self._turn if not group.runs and not group.in_flight]
        for group in unused[: max(0, len(self._turn) + 1 - MOST_GROUPS)]:
            self._known.pop(group.key).graphs.close()
            self._turn.remove(group)


class LoopQueue:
    """Runs without a slot, in the order in which they get one. Held runs get none, unless peers wait for them."""

    def __init__(self, owes: Callable[[LoopCall], bool], playbacks: Playbacks) -> None:
        """`owes`: true if peers wait for launches of the call, even though its run is held."""
        self._owes, self._playbacks = owes, playbacks
        self._waiting: list[LoopRun] = []
        self._held: dict[str, list[LoopRun]] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        """The number of runs that may get a slot."""
        return len(self._waiting)

    def add(self, call: LoopCall) -> None:
        self._arrivals += 1
        run = LoopRun(call, call.ready_at - call.priority, self._arrivals, call.allowed, call.fed)
        if call.timed is not None:
            run.playback = self._playbacks.of(call.run, call.timed.chunk)
        self.put(run)

    def put(self, run: LoopRun) -> None:
        held = self._held.get(run.call.run)
        if held is None or self._owes(run.call):
            insort(self._waiting, run, key=attrgetter("order"))
        else:
            held.append(run)

    def take(self) -> list[LoopRun]:
        """Remove and return all runs that may get a slot; those that get none must be `put` back."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def hold(self, run: str) -> None:
        self._held.setdefault(run, [])
        for one in self.take():
            self.put(one)

    def recall(self) -> None:
        """Queue held runs that peers have begun to wait for."""
        for held in self._held.values():
            for one in [one for one in held if self._owes(one.call)]:
                held.remove(one)
                insort(self._waiting, one, key=attrgetter("order"))

    def holds(self, run: str) -> bool:
        return run in self._held

    def release(self, run: str) -> None:
        for one in self._held.pop(run, ()):
            self.put(one)

    def cancel(self, run: str) -> None:
        self._held.pop(run, None)
        self._waiting = [one for one in self._waiting if one.call.run != run]

    def held(self, run: str) -> Sequence[LoopRun]:
        return self._held.get(run, ())

    def all(self) -> Iterator[LoopRun]:
        """All queued runs, held or not."""
        for waiting in (self._waiting, *self._held.values()):
            yield from waiting


def to_leave(runs: Sequence[LoopRun], short: Sequence[LoopRun]) -> list[LoopRun]:
    """The runs that must leave their slots for queued runs. For each queued run that finds no slot, beyond those
    already leaving, it is the last run of lower priority that is due later. A loop of low priority is thus late, but
    never starved."""
    here = [run for run in runs if not run.leaving]
    lowest = min((run.call.priority for run in here), default=0)
    found: list[LoopRun] = []
    for one in [one for one in short if one.call.priority > lowest][len(runs) - len(here) :]:
        after = [run for run in here if run.call.priority < one.call.priority and run.order > one.order]
        if after:
            found.append(max(after, key=attrgetter("order")))
            here.remove(found[-1])
    return found


class NoPeers:
    """Stands for the peers where no other rank's device can be reached. `LoopPeers` serves the others."""

    @property
    def busy(self) -> bool:
        """True if parts are ending, which needs no message from anyone."""
        return False

    def begin(self, call: LoopCall, nbytes: Sequence[int]) -> bool:
        """True if a part may have a slot now. `nbytes`: bytes of a value of each of the call's `reads`. Raises
        CallFailed if it never may."""
        raise CallFailed(f"`{call.loop}` has parts on other ranks, whose devices this one can't reach")

    def follow(self, call: LoopCall) -> Callable[[], int] | None:
        """Gives the iterations that the loop's leader has launched; None if this part leads."""
        return None

    def links(self, call: LoopCall, nbytes: Sequence[int]) -> Sequence[int] | None:
        """The addresses that a part sends to; None if not known yet. Raises CallFailed."""
        return ()

    def launching(self, call: LoopCall, upto: int) -> None:
        """Note that iterations up to this count are about to be launched here."""

    def may_leave(self, call: LoopCall) -> bool:
        """True if this part may leave its slot when its run is held."""
        return True

    def owes(self, call: LoopCall) -> bool:
        """True if peers wait for launches that this rank has not made yet."""
        return False

    def end(self, call: LoopCall, mark: Mark | None, *, halt: bool) -> None:
        """End a part that has no slot and will get none. `mark`: behind its work in flight, None if there is none.
        `halt`: end its waits on the device at once."""

    def cancel(self, run: str, mark: Mark | None) -> None:
        """Remove a run for good."""

    def hold(self, run: str) -> None:
        """Tell peers that the parts led here launch nothing more, until `release`."""

    def release(self, run: str) -> None: ...

    def poll(self) -> bool:
        """Close ended parts; True if memory was returned."""
        return False

    def receive(self, rank: Rank, word: Any) -> bool:
        """Handle a peer's message. True if loops may go on that could not."""
        return False

    def gone(self, rank: Rank) -> bool:
        """Handle the death of a peer. True if loops may go on that could not."""
        return False
