"""Sixteen runs at a time through real processes, while somebody pauses, steps, cancels, taps and changes levels at
random: none hangs, none gives other values for it, what they held is free, and a tap that is gone tells nothing."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.deployment import Deployment, deployed, plan_named
from tests.support.hearing import Hearing
from tests.support.yardstick import patience
from walkgraph.conductor.runs.watching import Places
from walkgraph.placement.tables import Plan
from walkgraph.wire import messages as m
from walkgraph.wire.watching import Break, HeldCall, Steer, Tap, Watch

AT_ONCE = 16
LONGEST = 200.0
"""Seconds after which a run hangs, however slow the machine is."""
TASKS: dict[str, list[tuple[str, dict[str, int]]]] = {
    "synthetic_states": [
        ("write", {"prompt": 30, "times": 20}),
        ("part_ways", {"prompt": 7, "times": 5}),
        ("peek", {}),
        ("roll", {}),
    ],
    "synthetic_loops": [("nested", {}), ("climb", {}), ("count", {}), ("skip", {}), ("spin", {"times": 40})],
    "synthetic_streams": [("windows", {}), ("padded", {}), ("chain", {}), ("all", {})],
}
ACTIONS = ("pause", "step", "step", "step", "iteration", "resume")
LEVELS = ("off", "summary", "full")


class Storm:
    """One who does this and that to the runs of a deployment."""

    def __init__(self, here: Deployment, plan: Plan, tasks: list[tuple[str, dict[str, int]]], seed: int) -> None:
        self.here, self.tasks, self.chance = here, tasks, random.Random(seed)
        self.asked: dict[str, tuple[str, dict[str, int]]] = {}
        self.aborted: set[str] = set()
        self.removed: dict[str, int] = {}
        """Tap -> how many runs had been submitted when it was removed."""
        self._paused: dict[str, tuple[HeldCall, ...]] = {}
        self._read = 0
        """Messages that were looked at for it."""
        self._places = Places(plan)
        self._taps: dict[str, Tap] = {}
        self._breaks: dict[str, Break] = {}
        self._names = count()
        self._stale: list[HeldCall] = []

    def paused(self) -> dict[str, tuple[HeldCall, ...]]:
        """Runs -> what is held of them."""
        for message in self.here.messages[self._read :]:
            match message:
                case m.Paused():
                    self._paused[message.run] = message.held
                case m.Resumed() | m.Finished():
                    self._paused.pop(message.run, None)
                case _:
                    pass
        self._read = len(self.here.messages)
        return self._paused

    def under_way(self) -> list[str]:
        return [run for run in self.asked if run not in self.here.finished]

    def act(self) -> None:
        chance = self.chance
        for _ in range(AT_ONCE - len(self.under_way())):
            self._submit()
        paused = self.paused()
        match chance.choice(("steer", "steer", "steer", "steer", "tap", "untap", "break", "unbreak", "level", "abort")):
            case "steer":
                self._steer(chance.choice(list(paused) or self.under_way()), paused)
            case "tap":
                walk = chance.choice(list(self._places.walks))
                source = chance.choice(list(self._places.sources(walk)))
                tap = Tap(id=self._name(), walk=walk, source=source, interval=0.0)
                self._taps[tap.id] = tap
            case "untap" if self._taps:
                self._untap(chance.choice(list(self._taps)))
            case "break":
                walk = chance.choice(list(self._places.walks))
                use = chance.choice(list(self._places.uses(walk)))
                at = chance.choice((None, 1, 3)) if self._places.in_loop(walk, use) else None
                run = m.RunId(chance.choice(list(self.asked)))
                stop = Break(id=self._name(), walk=walk, use=use, iteration=at, run=chance.choice((run, None)))
                self._breaks[stop.id] = stop
            case "unbreak" if self._breaks:
                del self._breaks[chance.choice(list(self._breaks))]
            case "abort":
                self._abort(chance.choice(self.under_way()))
            case _:
                pass
        self._watch(chance.choice(LEVELS))

    async def calm(self, seconds: float) -> None:
        """Nothing is watched any more, and all that is paused goes on."""
        for tap in list(self._taps):
            self._untap(tap)
        self._breaks.clear()
        self._watch("summary")
        try:
            async with asyncio.timeout(seconds):
                while self.under_way():
                    for run in self.paused():
                        self.here.process.send(Steer(run=m.RunId(run), action="resume"))
                    told = len(self.here.messages)
                    await self.here.until(lambda told=told: len(self.here.messages) > told, seconds)
        except TimeoutError:
            pytest.fail(f"{self.under_way()} have not ended; paused: {self.paused()}")

    def submit(self, task: str, params: dict[str, int], **how: Any) -> str:
        run = self.here.submit(task, {"seed": 5, **params}, **how)
        self.asked[run] = task, params
        return run

    def _submit(self) -> None:
        chance = self.chance
        how = {"hold": chance.random() < 0.3, "record": chance.random() < 0.2, "priority": chance.choice((0, 0, 1))}
        self.submit(*chance.choice(self.tasks), **how)

    def _steer(self, run: str, paused: dict[str, tuple[HeldCall, ...]]) -> None:
        """A call may be one that isn't held any more, or one of another run."""
        held = paused.get(run, ())
        self._stale = [*self._stale[-20:], *held]
        call = self.chance.choice([None, *held, *held, *held, *self._stale[-2:]])
        self.here.process.send(Steer(run=m.RunId(run), action=self.chance.choice(ACTIONS), call=call))

    def _abort(self, run: str) -> None:
        self.aborted.add(run)
        self.here.process.send(m.Abort(run=m.RunId(run)))

    def _untap(self, tap: str) -> None:
        del self._taps[tap]
        self.removed[tap] = len(self.asked)

    def _watch(self, level: Any) -> None:
        self.here.process.send(Watch(level=level, taps=(*self._taps.values(),), breaks=(*self._breaks.values(),)))

    def _name(self) -> str:
        return f"w{next(self._names)}"


@asynccontextmanager
async def heard(graph: str, folder: Path) -> AsyncIterator[tuple[Deployment, Plan, Hearing]]:
    drawn, plan = plan_named(graph)
    hearing = Hearing(folder / "t")
    try:
        async with deployed(drawn, plan, telemetry=hearing.address) as here:
            yield here, plan, hearing
    finally:
        hearing.close()


@pytest.mark.parametrize("graph", TASKS)
async def test_runs_that_are_steered_at_random_end_as_if_alone(
    graph: str, tmp_path_factory: pytest.TempPathFactory, storm_seconds: float
) -> None:
    async with heard(graph, tmp_path_factory.mktemp("s")) as (here, plan, hearing):
        storm = Storm(here, plan, TASKS[graph], 20261122)
        first = {task: storm.submit(task, params) for task, params in TASKS[graph]}
        for run in first.values():
            assert (await here.end(run)).error is None
        until = time.monotonic() + storm_seconds / len(TASKS)
        while time.monotonic() < until:
            storm.act()
            await asyncio.sleep(storm.chance.choice((0.0, 0.0, 0.002, 0.01)))  # a random moment is what is tested
        await storm.calm(min(patience(30), LONGEST))
        for task, params in TASKS[graph]:
            await here.end(storm.submit(task, params))
        ended = {run: here.finished[run] for run in storm.asked}
        for run, (task, _) in storm.asked.items():
            error = ended[run].error
            if error is None:
                assert here.outputs[run] == here.outputs[first[task]], run
            else:
                assert (error.code, run in storm.aborted) == ("cancelled", True), error
        assert sum(finished.error is None for finished in ended.values()) > AT_ONCE
        assert not list(late(storm, hearing))
        assert {sample.why for sample in hearing.samples} == {"tap", "held", "record"}
        await here.until(lambda: here.status.running == 0)
        await hearing.all_free(2)
        assert [status.restarts for status in here.status.ranks] == [0, 0]


def late(storm: Storm, hearing: Hearing) -> Iterator[Any]:
    """Samples by taps of runs that began after these had been removed."""
    number = {run: at for at, run in enumerate(storm.asked)}
    for sample in hearing.samples:
        if sample.tap in storm.removed and number.get(sample.run, 0) >= storm.removed[sample.tap]:
            yield sample
