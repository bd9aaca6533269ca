"""Spoken answers of many clients on one simulated device: first audio, underruns and throughput, with deadlines and
without.

The schedulers of loops and calls are the engine's; the device takes the seconds that it is given. A client's question
is read (a prompt of 100 tokens), its answer written (100 tokens) and spoken (375 frames of 80 ms, one word a frame),
and frames become sound in chunks, the first of 5 frames. The client asks again when it has all of it. Beside them,
prompts of clients who only read may keep the device busy.
"""

import argparse
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from _common import show, spread, write

from walkgraph.abi.calls import Call, Outputs, Timed
from walkgraph.engine.calls.schedule import MIX, Schedule
from walkgraph.engine.device.marks import Mark
from walkgraph.engine.loops.loop_runs import BatchGroup, LoopRun
from walkgraph.engine.loops.scheduler import LoopScheduler
from walkgraph.engine.loops.spec import Items, LoopCall, LoopOutput, LoopSpec, StreamItems
from walkgraph.engine.pacing.playback import Playbacks
from walkgraph.engine.pacing.turns import StepTimes
from walkgraph.errors import ErrorInfo

FRAME, FIRST = 0.08, 5
"""Seconds of a frame, and frames of the first chunk."""
SIZES = (1, 2, 4, 8, 16, 32)
PROMPT, ROWS = 100, 512
"""Rows of a prompt, and the most in a batch beside loops."""
LOOPS = ("thinker", "talker")
TURNS = 4
"""Batches of calls in flight."""


class Costs(NamedTuple):
    """Seconds of launches by batch size."""

    thinker: Sequence[float] = (0.0016, 0.003, 0.005, 0.008, 0.011, 0.014)
    talker: Sequence[float] = (0.0024, 0.0025, 0.0027, 0.0029, 0.0032, 0.0042)
    vocoder: Sequence[float] = (0.0006, 0.0009, 0.0016, 0.0028, 0.005, 0.010)
    prompts: float = 0.015
    """Seconds of a batch of prompts, which reads all weights, and for each row in it."""
    row: float = 0.00001


FLAT = Costs((0.014,) * 6, (0.004,) * 6, (0.005,) * 6)
"""A launch takes as long for one row as for many."""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class DeviceMark:
    clock: Clock
    at: float

    def query(self) -> bool:
        return self.clock.now >= self.at

    def synchronize(self) -> None: ...

    def wait(self) -> None: ...


class Always:
    """The one form of all iterations."""

    def at(self, iteration: int) -> int:
        return 0

    def alike(self, iteration: int, most: int) -> int:
        return most


class EnteredLoop(NamedTuple):
    times: int
    bound: str = ""
    forms: Any = Always()


@dataclass
class LoopLaunch:
    rows: int
    mark: Mark
    uses: tuple[int, ...] = (0,)

    def read(self) -> tuple[list[list[bool]], list[list[bool]], Mapping[str, Any]]:
        return [[False] * self.rows], [[True] * self.rows], {}

    def span(self, began: float, now: float) -> tuple[float, float]:
        return began, now


@dataclass
class Slots:
    gives: bool = True
    told: Sequence[str] = ()
    read_bytes: Sequence[int] = ()
    sent_bytes: Sequence[int] = ()

    def enter(self, run: LoopRun, slot: int) -> EnteredLoop:
        return EnteredLoop(run.call.times)

    def fill(self, runs: Sequence[LoopRun]) -> None: ...

    def put_items(self, slot: int, items: StreamItems) -> None: ...

    def link(self, slot: int, links: Sequence[int]) -> None: ...

    def leave(self, run: LoopRun) -> dict[Any, Any]:
        return {}

    def end(self, run: LoopRun) -> tuple[Outputs, Mark | None]:
        return {}, None


@dataclass
class Graphs:
    device: "Device"
    seconds: Sequence[float]
    sizes: tuple[int, ...] = SIZES

    def expect(self, counts: Sequence[int]) -> None: ...

    def counts(self, runs: Sequence[LoopRun]) -> list[int]:
        return [1]

    def long(self, runs: int) -> bool:
        return False

    def prepare(self, call: LoopCall, progress: Any) -> None: ...

    def close(self) -> None: ...

    def ready(self, runs: Sequence[LoopRun], iterations: int) -> int:
        return len(runs)

    def replay(self, ready: int) -> LoopLaunch:
        return LoopLaunch(ready, self.device.launch(_by_size(self.seconds, ready)))


def _by_size(seconds: Sequence[float], rows: int) -> float:
    return next(taken for size, taken in zip(SIZES, seconds, strict=True) if size >= rows)


class Device:
    """One queue of launches. Implements `LoopDeviceLike`."""

    def __init__(self, clock: Clock, costs: Costs) -> None:
        self._clock, self._costs, self._until = clock, costs, 0.0
        self._ends: deque[float] = deque()

    def launch(self, seconds: float) -> DeviceMark:
        self._until = max(self._until, self._clock.now) + seconds
        self._ends.append(self._until)
        return DeviceMark(self._clock, self._until)

    def next(self) -> float:
        """The time at which the next launch is over."""
        while self._ends and self._ends[0] <= self._clock.now:
            self._ends.popleft()
        return self._ends[0] if self._ends else float("inf")

    def made(self, call: LoopCall) -> "Made":
        return Made(call.loop)

    def opened(self, made: "Made", call: LoopCall) -> BatchGroup:
        seconds = self._costs.thinker if made.key == "thinker" else self._costs.talker
        return BatchGroup(made.key, Slots(), Graphs(self, seconds), False, list(range(SIZES[-1])))

    def apart(self, values: Any) -> Any:
        return values

    def stacked(self, values: Sequence[Any]) -> list[Any]:
        return list(values)

    def mark(self) -> Mark | None:
        return None

    def failure(self, call: LoopCall, raised: Exception) -> ErrorInfo:
        raise raised

    def unsound(self, call: LoopCall, iteration: int, *, spans: bool) -> ErrorInfo:
        raise AssertionError


class Made(NamedTuple):
    key: str


class Watch:
    on = False


@dataclass
class Answer:
    """A spoken answer, as its client hears it."""

    client: int
    asked: float
    words: int = 0
    frames: int = 0
    sent: int = 0
    """Frames in chunks that the vocoder has."""
    heard: int = 0
    first: float = 0.0
    until: float = 0.0
    """The time at which the client has played all that has come."""
    stops: int = 0
    """Times that the client had nothing to play."""

    def take(self, frames: int, now: float) -> None:
        if not self.heard:
            self.first, self.until = now, now
        elif now > self.until + 1e-9:
            self.stops, self.until = self.stops + 1, now
        self.heard, self.until = self.heard + frames, self.until + frames * FRAME


def _is_prompt(key: str, _: Iterable[Call]) -> bool:
    return key == "prompt"


@dataclass
class World:
    clients: int
    costs: Costs
    deadlines: bool
    readers: float = 0.0
    """Prompts a second of clients who only read."""
    chunk: int = 25
    words: int = 100
    frames: int = 375
    clock: Clock = field(default_factory=Clock)
    done: list[Answer] = field(default_factory=list[Answer])

    def __post_init__(self) -> None:
        self.draw, self.playbacks = random.Random(0), Playbacks(self.clock)
        self.device = Device(self.clock, self.costs)
        self.loops = LoopScheduler(self.device, self.playbacks, watch=Watch(), clock=self.clock)
        self.calls, self.times, self.spent = Schedule(), StepTimes(), 0.0
        self.flight: deque[tuple[DeviceMark, str, list[Call], float]] = deque()
        self.open: dict[str, Answer] = {}
        self.number = 0
        # Clients begin within a second, in no order.
        self.coming = sorted((self.draw.random(), client) for client in range(self.clients))
        self.reader = self.draw.expovariate(self.readers) if self.readers else float("inf")

    def run(self, seconds: float) -> None:
        while self.clock.now < seconds:
            self._arrive()
            while self._step():
                pass
            self.clock.now = self._next()

    def _next(self) -> float:
        """The time of the next event."""
        coming = self.coming[0][0] if self.coming else float("inf")
        return min(self.device.next(), self.reader, coming)

    def _arrive(self) -> None:
        while self.coming and self.coming[0][0] <= self.clock.now:
            self.number += 1
            run, (at, client) = f"spoken {self.number}", self.coming.pop(0)
            self.open[run] = Answer(client, at)
            self._call(run, "prompt", PROMPT)
        while self.reader <= self.clock.now:
            self.number += 1
            self._call(f"read {self.number}", "prompt", ROWS)
            self.reader += self.draw.expovariate(self.readers)

    def _call(self, run: str, node: str, rows: int, timed: Timed | None = None) -> None:
        call = Call(run, node, node, 0, 0, (), {}, {}, {}, 0, ready_at=self.clock.now, timed=timed)
        self.calls.add(call, node, rows)

    def _loop(self, run: str, loop: str, times: int, allowed: int | None, timed: Timed) -> None:
        spec = LoopSpec("answer", LOOPS.index(loop), loop, (), None, (LoopOutput("each", 0, "y", "each"),))
        grain, offset = (self.chunk, self.chunk - FIRST) if loop == "talker" else (1, 0)
        call = LoopCall(spec, run, 0, (), times, (), {}, {}, allowed=allowed, ready_at=self.clock.now)
        call.grain, call.offset, call.timed = grain, offset, timed if self.deadlines else None
        self.loops.add(call)

    # ── the engine's step ──

    def _step(self) -> bool:
        """Launch what can be, and take what is done; False if nothing was."""
        some = False
        while True:
            batch = self._batch()
            stepped = self.loops.launch()
            beside = self._beside()
            self.spent = 0.0 if stepped else self.spent + batch
            if not (stepped or batch or beside):
                break
            some = True
        while self.flight and self.flight[0][0].query():
            _, node, calls, began = self.flight.popleft()
            self.times.note(node, self.clock.now - began)
            some = True
            self._called(node, calls)
        for event in self.loops.collect(wait=False):
            some = True
            if isinstance(event, Items):
                self._given(event)
        return some

    def _batch(self) -> float:
        """Launches a batch of prompts; returns its seconds, 0 for none."""
        running, seconds = self.loops.running, self.times.of("prompt") or MIX.turn
        turns = sum(node == "prompt" for _, node, *_ in self.flight)
        if not self.calls or turns >= TURNS or not MIX.may(running, self.spent, seconds):
            return 0.0
        waiting = {call.run for call in self.calls.ahead(_is_prompt)}
        if not waiting or not self.loops.leaves_time((1 + turns) * self.times.of("prompt")):
            return 0.0
        rows = MIX.rows(self.loops.runs(), waiting) if running else MIX.rows()
        return seconds if self._launch("prompt", rows, self._prompts) else 0.0

    def _prompts(self, calls: Sequence[Call]) -> float:
        read = sum(ROWS if call.run.startswith("read") else PROMPT for call in calls)
        return self.costs.prompts + self.costs.row * read

    def _beside(self) -> bool:
        """The vocoder takes no turn."""
        if sum(node == "vocoder" for _, node, *_ in self.flight) >= 2:
            return False
        return self._launch("vocoder", 16, lambda calls: _by_size(self.costs.vocoder, len(calls)))

    def _launch(self, node: str, rows: int, seconds: Callable[[Sequence[Call]], float]) -> bool:
        batch = self.calls.next(rows, fits=lambda key, _: key == node)
        if batch is None:
            return False
        self.flight.append((self.device.launch(seconds(batch.calls)), node, batch.calls, self.clock.now))
        return True

    # ── what follows ──

    def _called(self, node: str, calls: Sequence[Call]) -> None:
        for call in calls:
            answer = self.open.get(call.run)
            if answer is None:
                continue
            if node == "prompt":
                self._loop(call.run, "thinker", self.words, None, Timed(FRAME, False, FRAME))
                self._loop(call.run, "talker", self.frames, 0, Timed(FRAME, False, self.chunk * FRAME))
                continue
            frames = call.seed
            answer.take(frames, self.clock.now)
            if self.deadlines:
                self.playbacks.left(call.run, frames * FRAME)
            if answer.heard >= self.frames:
                del self.open[call.run]
                self.playbacks.forget(call.run)
                self.done.append(answer)
                self.coming.append((self.clock.now, answer.client))

    def _given(self, event: Items) -> None:
        run = event.call.run
        answer = self.open[run]
        if event.call.loop == "thinker":
            answer.words += event.count
            spoken = self.frames if answer.words >= self.words else answer.words
            self.loops.allow(run, 0, LOOPS.index("talker"), (), spoken)
            return
        answer.frames += event.count
        for frames in self._chunks(answer):
            call = Call(run, "vocoder", "vocode", 0, 0, (), {}, {}, {}, frames, ready_at=self.clock.now)
            self.calls.add(call, "vocoder", 1)

    def _chunks(self, answer: Answer) -> Iterator[int]:
        while answer.sent < answer.frames:
            size = min(self.chunk if answer.sent else FIRST, self.frames - answer.sent)
            if answer.frames - answer.sent < size:
                return
            answer.sent += size
            yield size


def measured(
    clients: int, costs: Costs, *, deadlines: bool, readers: float, seconds: float, chunk: int = 25
) -> dict[str, Any]:
    world = World(clients, costs, deadlines, readers, chunk)
    world.run(seconds)
    answers = [*world.done, *(one for one in world.open.values() if one.heard)]
    first = spread([one.first - one.asked for one in answers], 1e3)
    heard = sum(one.heard for one in answers) * FRAME
    return {
        "chunk": chunk,
        "clients": clients,
        "readers": readers,
        "deadlines": deadlines,
        "answers": len(answers),
        "first median": first.get("median", 0.0),
        "first p95": first.get("p95", 0.0),
        "interrupted": sum(one.stops > 0 for one in answers),
        "interruptions": sum(one.stops for one in answers),
        "audio s/s": heard / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 32])
    parser.add_argument("--readers", type=float, nargs="+", default=[0, 15], help="prompts of 512 rows a second")
    parser.add_argument("--chunks", type=int, nargs="+", default=[25, 10], help="frames of a chunk after the first")
    parser.add_argument("--seconds", type=float, default=10, help="simulated seconds of each row")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true", help="a few seconds, and nothing is written")
    args = parser.parse_args()
    seconds = 4 if args.check else args.seconds
    found: dict[str, list[dict[str, Any]]] = {}
    for name, costs in (("by rows", Costs()), ("flat", FLAT)):
        found[name] = [
            measured(clients, costs, deadlines=deadlines, readers=readers, seconds=seconds, chunk=chunk)
            for chunk in args.chunks
            for readers in args.readers
            for clients in ([2] if args.check else args.clients)
            for deadlines in (False, True)
        ]
        show(f"launches {name}", found[name])
    if not args.check:
        write(args.out, "simulated", found)


if __name__ == "__main__":
    main()
