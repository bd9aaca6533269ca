"""Collects launches: values to hand out, ended loops, failures."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from walkgraph.abi.calls import CallFailed
from walkgraph.engine.device.marks import Mark, Timing
from walkgraph.engine.loops.launch import InFlight, Launcher, Watch
from walkgraph.engine.loops.loop_runs import (
    BatchGroup,
    LaunchBatch,
    LaunchValues,
    LoopDeviceLike,
    LoopDone,
    LoopRun,
    Stepped,
)
from walkgraph.engine.loops.slot_admission import SlotAdmission
from walkgraph.engine.loops.spec import Items
from walkgraph.engine.pacing.playback import Playbacks


class Collector:
    def __init__(
        self,
        device: LoopDeviceLike,
        admission: SlotAdmission,
        launcher: Launcher,
        events: list[Items | LoopDone | Stepped],
        watch: Watch,
        clock: Callable[[], float],
        playbacks: Playbacks,
    ) -> None:
        """`events`: the list that events are put in until `collect` returns them; admission shares it."""
        self._playbacks = playbacks
        self._device, self._admission, self._launcher, self._watch = device, admission, launcher, watch
        self._events, self._clock = events, clock
        self._copying: deque[tuple[Mark, LoopDone]] = deque()
        """Ended loops whose last values are still being copied to the host."""
        self._ended = 0.0

    @property
    def ready(self) -> bool:
        return bool(self._events)

    @property
    def copying(self) -> bool:
        return bool(self._copying)

    def collect(self, *, wait: bool) -> list[Items | LoopDone | Stepped]:
        """Return the events of finished launches; with `wait`, wait for the oldest one."""
        waits = wait
        while (flight := self._launcher.take(wait=waits)) is not None:
            self._settle(flight)
            waits = False
        if waits and self._copying:
            self._copying[0][0].synchronize()
        while self._copying and self._copying[0][0].query():
            self._events.append(self._copying.popleft()[1])
        events = self._events[:]
        self._events.clear()
        return events

    def forget(self, run: str) -> None:
        """Discard the events of a run."""
        self._copying = deque(one for one in self._copying if one[1].call.run != run)
        self._events[:] = [one for one in self._events if isinstance(one, Stepped) or one.call.run != run]

    def _settle(self, flight: InFlight) -> None:
        group, timing = flight.group, self._timing(flight)
        stops, sound, values = flight.launched.read()
        told = {key: values[key].tolist() if key in values else None for key in group.slots.told}
        given = {key: self._device.apart(value) for key, value in values.items()} if group.slots.gives else {}
        busy, finished = timing.busy, timing.finished
        group.note(len(flight.batch.runs), (flight.took or busy) / len(stops))
        if self._watch.on:
            self._events.append(stepped(flight.batch, flight.launched.uses, len(stops), timing))
        # By row instead of by iteration.
        flags = list(zip(zip(*stops, strict=True), zip(*sound, strict=True), strict=True))
        for row, run in enumerate(flight.batch.runs):
            if run.slot < 0:
                continue
            run.busy += busy
            run.since = max(run.since, finished)
            for key, numbers in told.items():
                known = run.told.setdefault(key, [])
                known += [None] * len(stops) if numbers is None else [rows[row][0] for rows in numbers]
            try:
                self._advance(group, run, *flags[row], given, row)
            except Exception as raised:  # noqa: BLE001 (a failed exit from a slot ends only that run)
                self._admission.fail(group, run, raised)
            if run.leaving:
                self._admission.leave(group, run)

    def _timing(self, flight: InFlight) -> Timing:
        """The times of a finished launch."""
        now = flight.handed if flight.launched.mark is None and flight.handed else self._clock()
        began = max(flight.began, self._ended)
        if self._watch.on:
            began, now = flight.launched.span(began, now)
        self._ended = now
        return Timing(flight.taken or began, flight.handed or began, began, now)

    def _advance(
        self,
        group: BatchGroup,
        run: LoopRun,
        stopped: Sequence[bool],
        sound: Sequence[bool],
        values: Mapping[str, LaunchValues],
        row: int,
    ) -> None:
        """Take a run's part of a finished launch. `stopped`, `sound`: for each iteration, whether `until` was raised
        and whether all numbers were finite."""
        due, gives = 0, group.slots.gives
        for k, (stops, sounds) in enumerate(zip(stopped, sound, strict=True)):
            if not sounds:
                self._hand_out(run, due)
                error = self._device.unsound(run.call, run.done, spans=group.spans)
                self._admission.end(group, run, halt=True)
                self._events.append(run.ended(None, error))
                break
            run.done += 1
            if gives:
                run.pieces.append((values, k, row))
            if stops or run.done >= run.times:
                self._end(group, run, stopped=stops)
                break
            due = run.done if gives and due_now(run) else due
        else:
            self._hand_out(run, due)

    def _hand_out(self, run: LoopRun, upto: int, *, stopped: bool = False) -> None:
        """Hand out the values of iterations up to `upto` that were not handed out yet."""
        count = upto - run.handed
        if count <= 0:
            return
        timed = run.call.timed
        if timed is not None and timed.plays:
            self._playbacks.left(run.call.run, count * timed.seconds)
        pieces, run.pieces = run.pieces[:count], run.pieces[count:]
        spec = run.call.spec
        if spec.each:
            values = {
                key: [given[key][k][row] if key in given else None for given, k, row in pieces] for key in spec.each
            }
            self._events.append(Items(run.call, run.handed, count, values, stopped))
        for out in spec.collects:
            kept = run.collected.setdefault(out.key, [])
            wanted = pieces[:-1] if stopped and out.drops else pieces
            kept.extend(found[out.key][k][row] for found, k, row in wanted if out.key in found)
        run.handed = upto

    def _end(self, group: BatchGroup, run: LoopRun, *, stopped: bool) -> None:
        self._hand_out(run, run.done, stopped=stopped)
        if not stopped and run.done < run.call.times:
            self._admission.fail(group, run, CallFailed(run.entered.bound, code="invalid_input"))
            return
        last, mark = group.slots.end(run)
        collected = {key: self._device.stacked(values) for key, values in run.collected.items() if values}
        done = run.ended({**collected, **last}, None, stopped=stopped)
        self._admission.end(group, run, halt=False)
        if mark is None:
            self._events.append(done)
        else:
            self._copying.append((mark, done))


def due_now(run: LoopRun) -> bool:
    """True if the values of a run so far must be handed out now."""
    grain = run.call.grain
    at_most = run.allowed is not None and run.done >= run.allowed
    return at_most or (grain > 0 and (run.call.offset + run.done) % grain == 0)


def stepped(batch: LaunchBatch, uses: tuple[int, ...], iterations: int, timing: Timing) -> Stepped:
    """The report of a finished launch, made before its runs advance. Runs that have left their slots are not in it."""
    runs, members = batch.runs, batch.members
    if any(run.slot < 0 for run in runs):
        runs = tuple([run for run in runs if run.slot >= 0])
        members = tuple([run.member for run in runs])
    first, ready = [run.done for run in runs], [run.ready for run in runs]
    return Stepped(members, first, ready, uses, iterations, timing)
