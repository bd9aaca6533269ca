"""Loops that run on the device: who is in which row, what is launched next, what comes back.

    LoopCall ──> lane (loops of one body) ──> row ──> launch, launch, ... ──> Items ... ──> LoopDone

A lane's launches follow each other without waiting: which rows are in one is known before the results of the one
before. What ends a loop is decided on the device, which turns the row off; the host learns of it one launch late.

A loop may leave its row before its end, once nothing is under way for it: for one of higher priority that finds no row,
or because its run is suspended. It waits again, and goes on in any row from where it was.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, MutableMapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from walkgraph.abi.calls import CallFailed, Outputs
from walkgraph.engine.device.capture import Capturer
from walkgraph.engine.device.clocks import Stopwatch, Timing
from walkgraph.engine.device.streams import Lines, Mark
from walkgraph.engine.failures import Failures
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.loops.bodies import Loaded
from walkgraph.engine.loops.body import Place
from walkgraph.engine.loops.crossing import Crossing
from walkgraph.engine.loops.entering import Entrance
from walkgraph.engine.loops.lanes import Flight, Graph, Lane, Rooms, rows_of, sizes_of
from walkgraph.engine.loops.program import Program
from walkgraph.engine.loops.riders import LoopDone, Queue, Rider, Stepped, Waiting, row_of, stepped, to_leave
from walkgraph.engine.loops.spanning import ROWS as SPANNING_ROWS
from walkgraph.engine.loops.spec import Items, LoopCall
from walkgraph.errors import ErrorInfo

ROWS = 64
DEPTH = 2
"""Launches under way."""
MOST_LANES = 16
"""Loops of different bodies or shapes that are kept ready; those that were not used for longest go first."""


class Resident:
    def __init__(
        self,
        states: StateTable,
        loaded: Callable[[str], Loaded],
        failures: Failures,
        *,
        host_ports: Callable[[str], Collection[str]] = lambda node: (),
        capturer: Callable[[torch.device], Capturer] = Capturer,
        rows: int = ROWS,
        watch: Stopwatch,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`loaded`: a node's operator and device. `watch`: while it is on, each launch is told, as `Stepped`."""
        self._states, self._failures, self._clock, self._rows = states, failures, clock, rows
        self._watch = watch
        self.crossing = Crossing()
        self._entrance = Entrance(states, loaded)
        self._host_ports, self._capturers = host_ports, capturer
        self._lanes: dict[Hashable, Lane] = {}
        self._known: dict[int, tuple[LoopCall, Hashable]] = {}
        """By the identity of calls that wait: a body takes long to make, and the calls may be many."""
        self._rooms = Rooms()
        self.here: Callable[[str], bool] = lambda run: True
        """Whether what a run holds is where it is used."""
        self._queue = Queue(lambda call: self.crossing.owes(call) and self.here(call.run))
        self._flights: deque[Flight] = deque()
        self._leaving: deque[tuple[Any, LoopDone]] = deque()
        self._turn: deque[Hashable] = deque()
        self._events: list[Items | LoopDone | Stepped] = []
        self._lines: dict[torch.device, Lines] = {}
        self._ended = 0.0
        self._news = False
        """Whether a loop that waits may find a row that it didn't find before."""

    # ── in ──

    def add(self, call: LoopCall) -> None:
        self._queue.add(call)
        self._news = True

    def hold(self, run: str) -> None:
        """Launch nothing more of a run until `release` or `cancel`; its loops leave their rows, which `rides` tells."""
        self._queue.hold(run)
        self.crossing.hold(run)
        for lane in self._lanes.values():
            for rider in [rider for rider in lane.riders if rider.call.run == run]:
                rider.leaving = True
                self._leave(lane, rider)

    def rides(self, run: str) -> bool:
        """Whether a loop of the run is in a row, or must have one yet."""
        waiting = any(call.run == run and not self.crossing.may_leave(call) for call in self._queue.calls())
        return waiting or any(rider.call.run == run for rider in self.riders())

    def cells(self, run: str) -> Iterator[MutableMapping[Place, Tensor]]:
        """What the rows of a run's held loops contained, for who moves it to other memory and back."""
        for one in self._queue.held(run):
            if one.rider is not None and one.rider.cells is not None:
                yield one.rider.cells

    def release(self, run: str) -> None:
        """Loops that were held wait for rows again, in the places that they had."""
        for rider in [one.rider for one in self._queue.held(run) if one.rider is not None]:
            rider.since = self._clock()
        self._queue.release(run)
        self.crossing.release(run)
        self._news = True

    def news(self) -> None:
        """A peer has told of something by which parts of loops may go on, or a held run is back."""
        self._news = True
        self._queue.call_up()
        self._link()
        for lane in self._lanes.values():
            for rider in [rider for rider in lane.riders if rider.leaving]:
                self._leave(lane, rider)

    def allow(self, run: str, step: int, use: int, iteration: tuple[int, ...], upto: int) -> None:
        """A loop may launch iterations up to this many."""
        named = attrgetter("run", "step", "use", "iteration")
        riders = [rider for rider in self.riders() if named(rider.call) == (run, step, use, iteration)]
        for rider in [rider for rider in riders if rider.reach <= 0]:
            rider.since = self._clock()
        for call in (*self._queue.calls(), *(rider.call for rider in riders)):
            if named(call) == (run, step, use, iteration):
                call.allowed = upto

    def cancel(self, run: str) -> None:
        """Take a run's loops out; what is under way for them changes nothing that others see."""
        self._queue.cancel(run)
        for lane in self._lanes.values():
            for rider in [r for r in lane.riders if r.call.run == run]:
                self._out(lane, rider)
        self.crossing.cancel(run, self._mark())
        self._leaving = deque(one for one in self._leaving if one[1].call.run != run)
        self._events = [one for one in self._events if isinstance(one, Stepped) or one.call.run != run]

    def settle(self) -> None:
        """Wait for what is under way and waits for peers, whose memory it writes."""
        for mark in [flight.mark for flight in self._flights if flight.lane.spans and flight.mark is not None]:
            mark.synchronize()

    @property
    def idle(self) -> bool:
        """Nothing can be launched or collected."""
        waiting = self._news and len(self._queue)
        return not (self.under_way or self._events or waiting or self._runnable())

    @property
    def running(self) -> bool:
        """Whether a loop has a step to be launched."""
        return self._runnable() is not None

    @property
    def under_way(self) -> bool:
        return bool(self._flights or self._leaving or self.waits_for_peers)

    @property
    def waits_for_peers(self) -> bool:
        """What is under way may need other ranks, so that their messages must be read meanwhile."""
        return self.crossing.busy or any(flight.lane.spans for flight in self._flights)

    @property
    def waiting(self) -> int:
        """Loops that wait for a row."""
        return len(self._queue)

    @property
    def since_when(self) -> float | None:
        """When the oldest launch that is under way was begun."""
        return self._flights[0].began if self._flights else None

    @property
    def full(self) -> bool:
        return len(self._flights) >= DEPTH

    # ── launch ──

    def launch(self) -> bool:
        """Launch a step of the next lane that has one; False where there is none, or enough is under way."""
        self._link()
        self._enter()
        key = self._runnable()
        if key is None or len(self._flights) >= self._depth(self._lanes[key]):
            return False
        self._turn.remove(key)
        self._turn.append(key)
        lane = self._lanes[key]
        riders = lane.batch()
        try:
            self._flights.append(self._launch(lane, riders))
        except Exception as raised:  # noqa: BLE001 (a step that can't be captured or run ends those in it alone)
            for rider in riders:
                self._finish(lane, rider, None, self._failures.of(rider.call, raised))
        return True

    def collect(self, *, wait: bool) -> list[Items | LoopDone | Stepped]:
        """What has come of the launches that are over; with `wait` the oldest one is waited for, if that needs no other
        rank."""
        wait = wait and not self.waits_for_peers
        while self._flights and (wait or _over(self._flights[0].mark)):
            flight = self._flights.popleft()
            if flight.mark is not None:
                flight.mark.synchronize()
            self._settle(flight)
            wait = False
        if wait and self._leaving:
            self._leaving[0][0].synchronize()
        while self._leaving and _over(self._leaving[0][0]):
            self._events.append(self._leaving.popleft()[1])
        events, self._events = self._events, []
        return events

    def prepare(self, call: LoopCall, progress: Callable[[float], None] = lambda done: None) -> None:
        """Make the lane of such loops and capture its forms and batch sizes, through the real step. The forms are those
        of the call's iterations."""
        with torch.inference_mode():
            lane = self._lane(call)
        forms = self._entrance.forms(call, lane.program.body)
        lane.prepare(list(dict.fromkeys(forms.at(k) for k in range(call.times))), progress)

    def _depth(self, lane: Lane) -> int:
        """How many launches may be under way when one of this lane is added."""
        if not self._flights:
            return 1
        return DEPTH if self._flights[0].mark and (lane.spans or not lane.long) else 1

    def _launch(self, lane: Lane, riders: Sequence[Rider]) -> Flight:
        taken = self._clock() if self._watch.on else 0.0
        graph = lane.next(riders)
        lane.show(graph, riders)
        for rider in riders:
            rider.launched += graph.buffers.stopped.shape[0]
            rider.batch = len(riders)
        self.crossing.ride(lane, riders)
        began = self._clock()
        with torch.inference_mode():
            graph.replay()
        host, mark = self._told_by(lane, graph)
        handed = self._clock() if self._watch.on else 0.0
        return Flight(lane, riders, graph.buffers, host, taken, began, handed, mark)

    def riders(self) -> list[Rider]:
        return [rider for lane in self._lanes.values() for rider in lane.riders]

    def _runnable(self) -> Hashable | None:
        return next((key for key in self._turn if any(rider.wants for rider in self._lanes[key].riders)), None)

    def _enter(self) -> None:
        if not self._news:
            return
        self._news = False
        short: dict[Lane, list[Waiting]] = {}
        for one in self._queue.take():
            try:
                with torch.inference_mode():
                    lane = self._lane(one.call)
                    if not self.crossing.begins(lane, one.call):
                        self._queue.put(one)
                    elif lane.free:
                        self._seat(lane, one)
                    else:
                        short.setdefault(lane, []).append(one)
            except Exception as raised:  # noqa: BLE001 (what can't enter ends that run alone)
                self._events.append(self._fell(one.call, raised))
        waits = {id(call) for call in self._queue.calls()} | {id(one.call) for all_ in short.values() for one in all_}
        self._known = {at: found for at, found in self._known.items() if at in waits}
        for lane, waiting in short.items():
            for one in waiting:
                self._queue.put(one)
            for rider in () if lane.spans else to_leave(lane.riders, waiting):
                rider.leaving = True
                self._leave(lane, rider)

    def _seat(self, lane: Lane, one: Waiting) -> None:
        row, rider = lane.free[-1], one.rider
        if rider is None:
            entered = self._entrance.enter(one.call, lane.program, row)
            rider = Rider(one.call, row, entered, max(0.0, self._clock() - one.call.ready_at), one)
        else:
            entered = self._entrance.enter(one.call, lane.program, row, rider.done, rider.cells)
            entered.collected = rider.entered.collected
            rider.row, rider.entered, rider.cells = row, entered, None
            rider.waited += max(0.0, self._clock() - rider.ready)
            rider.over = False
        rider.leaving = self._queue.holds(one.call.run)
        self.crossing.seat(lane, rider)
        lane.riders.append(rider)
        lane.free.pop()

    def _leave(self, lane: Lane, rider: Rider) -> None:
        """Out of its row, if it is to leave and nothing is under way for it."""
        if not rider.leaving or rider.over or rider.done < rider.launched or not self.crossing.may_leave(rider.call):
            return
        try:
            with torch.inference_mode():
                rider.cells = lane.program.cells_of(rider.row)
                self._entrance.leave(lane.program, rider.row, rider.entered, rider.done, over=False)
        except Exception as raised:  # noqa: BLE001 (what can't be taken from its row ends that run alone)
            self._finish(lane, rider, None, self._failures.of(rider.call, raised))
            return
        self._out(lane, rider)
        self._queue.put(rider.place._replace(rider=rider))

    def _link(self) -> None:
        """Go on with what has ended, or has become known, of loops' other parts."""
        self._news |= self.crossing.poll()
        for lane in [lane for lane in self._lanes.values() if lane.spans]:
            for rider in [rider for rider in lane.riders if not rider.linked]:
                try:
                    self.crossing.link(lane, rider)
                except CallFailed as raised:
                    self._finish(lane, rider, None, self._failures.of(rider.call, raised))

    def _mark(self) -> Any:
        """Behind all that was launched; None where that is done already."""
        if not self._flights or self._flights[-1].mark is None:
            return None
        mark = torch.cuda.Event()
        mark.record()
        return mark

    def _fell(self, call: LoopCall, raised: Exception) -> LoopDone:
        self.crossing.end(call, None, halt=True)
        return LoopDone(call, None, self._failures.of(call, raised), 0, False, 0.0, 0.0, 1)

    def _lane(self, call: LoopCall) -> Lane:
        known = self._known.get(id(call))
        if known is not None and known[1] in self._lanes:
            return self._lanes[known[1]]
        key, body, pools, device = self._entrance.made(call)
        self._known[id(call)] = call, key
        if key not in self._lanes:
            rows = SPANNING_ROWS if body.channels else rows_of(body, pools, self._rows)
            outputs = tuple((out.key, (out.use, out.port)) for out in call.outputs if out.kind != "last")
            self._forget()
            lane = Lane(
                Program(body, pools, rows, device),
                outputs,
                self._capturers(device),
                self._rooms,
                sizes_of(body, rows),
                list(range(rows - 1, -1, -1)),
            )
            lane.measure()
            self._lanes[key] = lane
            self._turn.append(key)
        self._lanes[key].usual.update(call.usual)
        return self._lanes[key]

    def _forget(self) -> None:
        """Make room among the lanes: without it, every shape that was ever asked for would keep its tables."""
        flying = [flight.lane for flight in self._flights]
        empty = [key for key in self._turn if not self._lanes[key].riders and self._lanes[key] not in flying]
        for key in empty[: max(0, len(self._lanes) + 1 - MOST_LANES)]:
            self._rooms.forget(self._lanes.pop(key))
            self._turn.remove(key)

    def _told_by(self, lane: Lane, graph: Graph) -> tuple[Tensor, Mark | None]:
        """What a launch tells the host, there once the mark is reached. A few bytes for each row, so they come back on
        the stream of the steps: its own would wait longer."""
        staging = graph.buffers.staging
        if lane.program.device.type == "cpu":
            return staging, None
        host = torch.empty(staging.shape, dtype=torch.uint8, pin_memory=True)
        host.copy_(staging, non_blocking=True)
        return host, self._watch.mark(lane.program.device)

    # ── collect ──

    def _settle(self, flight: Flight) -> None:
        lane, timing = flight.lane, self._timing(flight)
        stops, sound, values = flight.read()
        if self._watch.on:
            self._events.append(stepped(flight.riders, flight.buffers.uses, len(stops), timing))
        for place, rider in enumerate(flight.riders):
            if rider.over:
                continue
            rider.busy += timing.busy
            rider.since = max(rider.since, timing.finished)
            told = [(stop[place], sounds[place]) for stop, sounds in zip(stops, sound, strict=True)]
            try:
                self._went(lane, rider, told, values, place)
            except Exception as raised:  # noqa: BLE001 (what can't be taken from its row ends that run alone)
                self._finish(lane, rider, None, self._failures.of(rider.call, raised))
            self._leave(lane, rider)

    def _timing(self, flight: Flight) -> Timing:
        """Of a launch that is over."""
        now = flight.handed if flight.mark is None and flight.handed else self._clock()
        began = max(flight.began, self._ended)
        if self._watch.on:
            began, now = self._watch.span(flight.lane.program.device, flight.mark, began, now)
        self._ended = now
        return Timing(flight.taken or began, flight.handed or began, began, now)

    def _went(
        self, lane: Lane, rider: Rider, told: Sequence[tuple[bool, bool]], values: Mapping[str, Tensor], place: int
    ) -> None:
        """A loop's part of a launch that is over. `told`: for each iteration, whether it stopped and was sound."""
        due = 0
        for k, (stops, sounds) in enumerate(told):
            if not sounds:
                self._hand_out(rider, due)
                error = self._failures.unsound(rider.call, rider.done, spans=lane.spans)
                self._finish(lane, rider, None, error)
                break
            rider.done += 1
            if lane.outputs:
                rider.pieces.append((values, k, place))
            if stops or rider.done >= rider.entered.times:
                self._end(lane, rider, stopped=stops)
                break
            due = rider.done if lane.outputs and self._due(rider) else due
        else:
            self._hand_out(rider, due)

    def _due(self, rider: Rider) -> bool:
        grain = rider.call.grain
        at_most = rider.call.allowed is not None and rider.done >= rider.call.allowed
        return at_most or (grain > 0 and (rider.call.offset + rider.done) % grain == 0)

    def _hand_out(self, rider: Rider, upto: int, *, stopped: bool = False) -> None:
        """What iterations up to this have given since the last time."""
        count = upto - rider.handed
        if count <= 0:
            return
        pieces, rider.pieces = rider.pieces[:count], rider.pieces[count:]
        keys = [out.key for out in rider.call.outputs if out.kind == "each"]
        if keys:
            values = {key: row_of(pieces, key) for key in keys}
            self._events.append(Items(rider.call, rider.handed, count, values, stopped))
        for out in rider.call.outputs:
            if out.kind == "collect":
                kept = rider.entered.collected.setdefault(out.key, [])
                kept.extend(found[out.key][k, place] for found, k, place in pieces if out.key in found)
        rider.handed = upto

    def _end(self, lane: Lane, rider: Rider, *, stopped: bool) -> None:
        call = rider.call
        self._hand_out(rider, rider.done, stopped=stopped)
        if not stopped and rider.done < call.times:
            self._finish(
                lane, rider, None, self._failures.of(call, CallFailed(rider.entered.bound, code="invalid_input"))
            )
            return
        form = rider.entered.forms.at(rider.done - 1)
        outputs: Outputs = {key: torch.stack(values) for key, values in rider.entered.collected.items() if values}
        lines = self._lines.setdefault(lane.program.device, Lines(lane.program.device))
        moved = False
        with torch.inference_mode():
            for out in call.outputs:
                if out.kind == "last" and form.gives((out.use, out.port)):
                    value = lane.program.value((out.use, out.port), rider.row)
                    moved |= out.port in self._host_ports(call.spec.uses[out.use].node)
                    outputs[out.key] = lines.to_host(value) if moved else value
            self._entrance.leave(lane.program, rider.row, rider.entered, rider.done, over=True)
        self._finish(lane, rider, outputs, None, stopped=stopped, mark=lines.mark() if moved else None)

    def _finish(
        self,
        lane: Lane,
        rider: Rider,
        outputs: Outputs | None,
        error: ErrorInfo | None,
        *,
        stopped: bool = False,
        mark: Any = None,
    ) -> None:
        self._out(lane, rider)
        self.crossing.end(rider.call, self._mark(), halt=error is not None)
        queued, began = rider.queued + rider.waited, rider.call.ready_at + rider.queued
        done = LoopDone(rider.call, outputs, error, rider.done, stopped, rider.busy, queued, rider.batch, began)
        if mark is None:
            self._events.append(done)
        else:
            self._leaving.append((mark, done))

    def _out(self, lane: Lane, rider: Rider) -> None:
        rider.over = True
        lane.riders.remove(rider)
        lane.free.append(rider.row)
        self._news = True


def _over(mark: Any) -> bool:
    return mark is None or mark.query()
