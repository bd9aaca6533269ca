"""The scheduler of device loops without a device: entries, priorities, holds, cancels and ends, drawn at random."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from tests.support.loop_calls import TIMED, WrittenUse, written
from walkgraph.engine.loops.launch import DEPTH
from walkgraph.engine.loops.loop_runs import BatchGroup, LoopDone, LoopKey, LoopRun, Stepped
from walkgraph.engine.loops.scheduler import LoopScheduler
from walkgraph.engine.loops.slot_admission import MOST_GROUPS, NoPeers
from walkgraph.engine.loops.spec import Items, LoopCall, LoopOutput, StreamItems
from walkgraph.engine.pacing.playback import Playbacks
from walkgraph.errors import ErrorInfo

SLOTS = 4
NOTHING = 1 << 40


class Plan(NamedTuple):
    """The work of a loop on the simulated device."""

    key: str
    """Batch key."""
    stops: int = NOTHING
    """The iteration whose `until` is true."""
    unsound: int = NOTHING
    """The iteration that gives NaN."""
    room: int = NOTHING
    """Iterations that its states have room for."""
    refused: bool = False
    shapes: int = NOTHING
    """Iterations before its form changes."""


@dataclass
class Made:
    key: str


class Forms:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def at(self, iteration: int) -> bool:
        return iteration < self._plan.shapes

    def alike(self, iteration: int, most: int) -> int:
        return min(most, self._plan.shapes - iteration) if iteration < self._plan.shapes else most


@dataclass
class Entered:
    times: int
    bound: str
    forms: Forms


class Mark:
    """Reached when the simulated device has come to it."""

    def __init__(self, device: Device, at: int) -> None:
        self._device, self._at = device, at

    def query(self) -> bool:
        return self._device.now >= self._at

    def synchronize(self) -> None:
        self._device.now = max(self._device.now, self._at)

    def wait(self) -> None: ...


@dataclass
class Launched:
    mark: Any
    stops: list[list[bool]]
    sound: list[list[bool]]
    values: Sequence[Sequence[Any]]
    uses: tuple[int, ...] = (0,)

    def read(self) -> tuple[list[list[bool]], list[list[bool]], Mapping[str, Any]]:
        assert self.mark is None or self.mark.query(), "read before it is over"
        return self.stops, self.sound, {"each": self.values, "collect": self.values}

    def span(self, began: float, now: float) -> tuple[float, float]:
        return began, now


@dataclass
class Slots:
    """One iteration counts a cell of its slot up by 1; a slot that has ended changes nothing."""

    plans: Mapping[str, Plan]
    gives: bool = True
    told: Sequence[str] = ()
    read_bytes: Sequence[int] = ()
    sent_bytes: Sequence[int] = ()
    cells: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    unfilled: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])

    def enter(self, run: LoopRun, slot: int) -> Entered:
        plan = self.plans[run.call.run]
        content = {"run": run.call.run, "count": 0, "live": True} if run.cells is None else dict(run.cells)
        assert content["count"] == run.done
        self.unfilled[slot] = content
        return Entered(min(run.call.times, plan.room), "its states are full", Forms(plan))

    def fill(self, runs: Sequence[LoopRun]) -> None:
        assert len(runs) == len(self.unfilled), "runs that enter a group in one turn are filled together"
        for run in runs:
            self.cells[run.slot] = self.unfilled.pop(run.slot)

    def put_items(self, slot: int, items: StreamItems) -> None:
        raise AssertionError("these loops read no streams")

    def link(self, slot: int, links: Sequence[int]) -> None:
        assert links == (1, 2)

    def leave(self, run: LoopRun) -> dict[str, Any]:
        return self.cells.pop(run.slot)

    def end(self, run: LoopRun) -> tuple[dict[str, Any], Mark | None]:
        return {"last": self.cells.pop(run.slot)["count"]}, None


@dataclass
class Graphs:
    device: Device
    slots: Slots
    sizes: tuple[int, ...]
    closed: bool = False

    def expect(self, counts: Sequence[int]) -> None: ...

    def counts(self, runs: Sequence[LoopRun]) -> list[int]:
        return [1, 2, 4]

    def long(self, runs: int) -> bool:
        return False

    def prepare(self, call: LoopCall, progress: Any) -> None: ...

    def close(self) -> None:
        self.closed = True

    def ready(self, runs: Sequence[LoopRun], iterations: int) -> tuple[list[int], int]:
        assert len({run.form for run in runs}) == 1, "they do not do the same"
        assert len({run.slot for run in runs}) == len(runs) <= SLOTS
        assert not self.closed
        return [run.slot for run in runs], iterations

    def replay(self, ready: Any) -> Launched:
        slots, iterations = ready
        stops, sound, values = ([[False] * len(slots) for _ in range(iterations)] for _ in range(3))
        for k in range(iterations):
            for row, slot in enumerate(slots):
                cell = self.slots.cells[slot]
                plan, count = self.slots.plans[cell["run"]], cell["count"]
                sound[k][row] = count != plan.unsound
                stops[k][row] = count == plan.stops
                values[k][row] = (cell["run"], count)  # type: ignore[call-overload]
                if cell["live"]:
                    cell["live"] = sound[k][row] and not stops[k][row]
                    cell["count"] += 1
        self.device.launches += 1
        mark = Mark(self.device, self.device.launches) if self.device.late else None
        return Launched(mark, stops, sound, values)


@dataclass
class Device:
    plans: dict[str, Plan]
    late: bool
    """Launches are over some time after they were made, as on a GPU."""
    spans: bool = False
    """Loops have parts on other ranks."""
    now: int = 0
    launches: int = 0
    opened_groups: list[BatchGroup] = field(default_factory=list[BatchGroup])

    def made(self, call: LoopCall) -> Made:
        if self.plans[call.run].refused:
            raise ValueError("no such shape")
        return Made(self.plans[call.run].key)

    def opened(self, made: Made, call: LoopCall) -> BatchGroup:
        slots = Slots(self.plans)
        sizes = (1,) if self.spans else (1, 2, SLOTS)
        group = BatchGroup(made.key, slots, Graphs(self, slots, sizes), self.spans, list(range(SLOTS)))
        self.opened_groups.append(group)
        return group

    def apart(self, values: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
        return values

    def stacked(self, values: Sequence[Any]) -> list[Any]:
        return list(values)

    def mark(self) -> Mark | None:
        return None

    def failure(self, call: LoopCall, raised: Exception) -> ErrorInfo:
        if isinstance(raised, AssertionError):
            raise raised
        return ErrorInfo(code="node_error", message=str(raised))

    def unsound(self, call: LoopCall, iteration: int, *, spans: bool) -> ErrorInfo:
        return ErrorInfo(code="numeric_error", message="NaN", iteration=(iteration,))


class Watch:
    on = True


def call_of(draw: random.Random, run: str, ready: float) -> LoopCall:
    use = WrittenUse(node="n", inputs=(), params={}, varying={}, states={}, seed=0, name="u")
    outputs = tuple(LoopOutput(kind, 0, "y", kind) for kind in ("each", "last", "collect"))
    times = draw.randrange(1, 20)
    return written(
        run=run, walk="w", step=0, use=0, loop="l", iteration=(), body=(use,), times=times, until=(0, "stop"),
        outputs=outputs, grain=draw.randrange(4), allowed=draw.choice([None, None, draw.randrange(times)]),
        fed=draw.choice([None, None, draw.randrange(times)]),
        priority=draw.choice([0, 0, 0, 3]), ready_at=ready, timed=draw.choice(TIMED),
    )  # fmt: skip


def plan_of(draw: random.Random, keys: int) -> Plan:
    ends = draw.choice(["count", "count", "until", "nan", "full", "refused"])
    return Plan(
        key=f"k{draw.randrange(keys)}",
        stops=draw.randrange(12) if ends == "until" else NOTHING,
        unsound=draw.randrange(12) if ends == "nan" else NOTHING,
        room=draw.randrange(1, 12) if ends == "full" else NOTHING,
        refused=ends == "refused",
        shapes=draw.choice([NOTHING, draw.randrange(1, 8)]),
    )


class Simulation:
    """A scheduler over a simulated device, what was asked of it, and what came of that."""

    def __init__(self, seed: int, *, late: bool, keys: int = 3) -> None:
        self.draw, self.keys, self.time = random.Random(seed), keys, 0.0
        self.device = Device({}, late)
        self.scheduler = LoopScheduler(self.device, Playbacks(self.clock), watch=Watch(), clock=self.clock)
        self.calls: dict[str, LoopCall] = {}
        self.held: set[str] = set()
        self.cancelled: set[str] = set()
        self.done: dict[str, LoopDone] = {}
        self.given: dict[str, list[Any]] = {}
        self.stepped: list[Stepped] = []

    def clock(self) -> float:
        self.time += 0.01
        return self.time

    def add(self) -> None:
        run = f"r{len(self.calls)}"
        self.device.plans[run] = plan_of(self.draw, self.keys)
        self.calls[run] = call_of(self.draw, run, self.clock())
        self.scheduler.add(self.calls[run])

    def disturb(self) -> None:
        """Hold, release, allow or cancel a run."""
        run = self.draw.choice([*self.calls])
        match self.draw.randrange(5):
            case 0 | 1 if run not in self.cancelled:
                self.held.add(run)
                self.scheduler.admission.hold(run)
            case 2:
                self.release(run)
            case 3:
                self.allow(run, self.draw.randrange(20), self.draw.choice([None, self.draw.randrange(20)]))
            case _ if self.draw.random() < 0.3:
                self.cancelled.add(run)
                self.held.discard(run)
                self.scheduler.cancel(run)
            case _:
                pass

    def allow(self, run: str, upto: int, fed: int | None = None) -> None:
        self.scheduler.admission.allow(LoopKey(run, 0, 0, ()), upto, (), fed)

    def release(self, run: str) -> None:
        if run in self.held:
            self.held.discard(run)
            self.scheduler.admission.release(run)

    def step(self) -> None:
        launched = self.scheduler.launch()
        self.device.now += self.draw.randrange(2)
        wait = not launched and self.scheduler.in_flight
        for event in self.scheduler.collect(wait=wait):
            self.take(event)
        assert sum(group.in_flight for group in self.scheduler.groups) <= DEPTH
        for group in self.scheduler.groups:
            taken = [run.slot for run in group.runs]
            assert sorted(taken + group.free) == list(range(SLOTS))

    def take(self, event: Items | LoopDone | Stepped) -> None:
        if isinstance(event, Stepped):
            self.stepped.append(event)
            return
        run = event.call.run
        assert run not in self.done, "something came after its end"
        assert run not in self.cancelled
        if isinstance(event, LoopDone):
            self.done[run] = event
        else:
            given = self.given.setdefault(run, [])
            assert (event.first, event.count) == (len(given), len(event.values["each"]))
            given.extend(event.values["each"])

    def finish(self) -> None:
        for run in self.calls:
            self.release(run)
            self.allow(run, 20)
        for _ in range(10_000):
            if self.scheduler.idle:
                return
            self.step()
        raise AssertionError("it never ends")


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_every_run_ends_once_as_it_must_and_no_slot_is_lost(seed: int, *, late: bool) -> None:
    world = Simulation(seed, late=late)
    for _ in range(200):
        if world.draw.random() < 0.25 or not world.calls:
            world.add()
        if world.draw.random() < 0.2:
            world.disturb()
        world.step()
    world.finish()
    assert world.done.keys() | world.cancelled == world.calls.keys()
    for run, done in world.done.items():
        call, plan = world.calls[run], world.device.plans[run]
        end = min(call.times, plan.stops + 1, plan.unsound, plan.room)
        sound, asked = min(call.times, plan.stops + 1, plan.room), min(call.times, plan.stops + 1)
        unsound = not plan.refused and plan.unsound < sound
        failed = "numeric_error" if unsound else "node_error" if plan.refused or plan.room < asked else None
        assert (done.error.code if done.error else None) == failed, run
        assert done.iterations == (0 if plan.refused else end)
        wanted = [(run, k) for k in range(end)]
        given = world.given.get(run, [])
        assert given == wanted[: len(given)], "items are in order and without gaps"
        if failed is None:
            assert given == wanted
            assert done.outputs == {"collect": wanted, "last": end}
            assert done.stopped == (end == plan.stops + 1)
    for group in world.device.opened_groups:
        assert sorted(group.free) == list(range(SLOTS))
        assert not group.runs
        assert not group.batch.runs, "an idle group keeps what its last runs were entered with"
    assert not world.scheduler.positions()


@pytest.mark.parametrize("seed", range(5))
def test_what_is_reported_of_launches_adds_up_and_its_members_stay_the_same_object(seed: int) -> None:
    world = Simulation(seed, late=True)
    for _ in range(20):
        world.add()
    world.finish()
    made: dict[str, int] = {}
    for one in world.stepped:
        assert len(one.members) == len(one.first) == len(one.ready)
        for member, first in zip(one.members, one.first, strict=True):
            assert first == made.get(member.key.run, 0)
            made[member.key.run] = first + one.iterations
    for run, done in world.done.items():
        assert made.get(run, 0) >= done.iterations
    alone = Simulation(seed, late=True)
    alone.device.plans["a"] = Plan("k")
    alone.calls["a"] = call_of(random.Random(0), "a", 0.0)
    alone.calls["a"].times, alone.calls["a"].allowed = 30, None
    alone.scheduler.add(alone.calls["a"])
    alone.finish()
    assert len({id(one.members) for one in alone.stepped}) == 1
    assert len(alone.stepped) >= 5


class LatePeers(NoPeers):
    """Peers that let a part begin, tell where its values go, and launch, when it pleases them."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.log = draw, list[tuple[str, str]]()
        self.upto: dict[str, int] = {}
        self.ending: list[str] = []

    @property
    def busy(self) -> bool:
        return bool(self.ending)

    def begin(self, call: LoopCall, nbytes: Sequence[int]) -> bool:
        if self.draw.random() < 0.5:
            return False
        self.log.append(("begin", call.run))
        return True

    def follow(self, call: LoopCall) -> Callable[[], int]:
        return lambda: self.upto.setdefault(call.run, 0)

    def links(self, call: LoopCall, nbytes: Sequence[int]) -> Sequence[int] | None:
        return None if self.draw.random() < 0.5 else (1, 2)

    def launching(self, call: LoopCall, upto: int) -> None:
        assert upto <= self.upto[call.run], "more than its leader has launched"
        self.log.append(("launch", call.run))

    def end(self, call: LoopCall, mark: Any, *, halt: bool) -> None:
        self.log.append(("end", call.run))
        self.ending.append(call.run)

    def poll(self) -> bool:
        self.ending, freed = [], bool(self.ending)
        return freed


@pytest.mark.parametrize("seed", range(5))
def test_parts_of_loops_begin_and_launch_when_their_peers_let_them(seed: int) -> None:
    world = Simulation(seed, late=True)
    world.device.spans = True
    peers = LatePeers(world.draw)
    world.scheduler.connect_peers(peers)
    for number in range(12):
        run = f"r{number}"
        world.device.plans[run] = Plan("k")
        world.calls[run] = call_of(world.draw, run, float(number) / 100)
        world.calls[run].allowed = world.calls[run].fed = None
        world.scheduler.add(world.calls[run])
    for _ in range(2000):
        for run in world.calls:
            peers.upto[run] = peers.upto.get(run, 0) + world.draw.randrange(2)
        world.scheduler.admission.wake()
        world.step()
        if len(world.done) == len(world.calls):
            break
    assert world.done.keys() == world.calls.keys()
    for run, done in world.done.items():
        assert done.iterations == world.calls[run].times
        mine = [what for what, of in peers.log if of == run]
        assert (mine[0], mine[-1], mine.count("end")) == ("begin", "end", 1)
    world.step()
    assert world.scheduler.idle


def test_without_peers_a_loop_with_parts_elsewhere_ends_with_a_reason() -> None:
    world = Simulation(0, late=False)
    world.device.spans = True
    world.device.plans["r"] = Plan("k")
    world.calls["r"] = call_of(world.draw, "r", 0.0)
    world.scheduler.add(world.calls["r"])
    world.finish()
    error = world.done["r"].error
    assert error is not None
    assert "whose devices this one can't reach" in error.message


def test_batch_groups_that_nobody_uses_make_room_for_others() -> None:
    world = Simulation(1, late=False, keys=4 * MOST_GROUPS)
    for _ in range(200):
        world.add()
        world.finish()
    assert len(world.scheduler.groups) <= MOST_GROUPS
    assert any(group.graphs.closed for group in world.device.opened_groups)  # type: ignore[attr-defined]


def test_a_run_of_higher_priority_gets_the_slot_of_a_lower_one_which_goes_on_later() -> None:
    world = Simulation(0, late=True, keys=1)
    for number in range(SLOTS + 1):
        run = f"r{number}"
        world.device.plans[run] = Plan("k")
        call = call_of(random.Random(number), run, float(number) / 100)
        call.times, call.allowed, call.priority = 12, None, 2 if number == SLOTS else 0
        world.calls[run] = call
        world.scheduler.add(call)
        if number == SLOTS - 1:
            world.step()
    world.finish()
    assert [done.iterations for done in world.done.values()] == [12] * (SLOTS + 1)
    assert next(iter(world.done)) != f"r{SLOTS - 1}"
    assert [*world.done][-1] == f"r{SLOTS - 1}", "the latest of the lower ones has left its slot"


def test_scheduling_imports_no_torch() -> None:
    modules = [f"walkgraph.engine.loops.{name}" for name in ("slot_admission", "launch", "collection", "scheduler")]
    source = f"import importlib, json, sys\nfor name in {modules!r}: importlib.import_module(name)\n"
    source += "print(json.dumps(sorted(set(sys.modules) & {'torch', 'triton', 'flashinfer'})))"
    answer = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=300, check=True)
    assert json.loads(answer.stdout) == []
