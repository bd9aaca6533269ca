"""Measures a worker's CPU time to report a step: microseconds, including encoding, at each telemetry level.

    python benchmarks/telling.py [--runs 32] [--steps 3000] [--out FILE] [--check]

`launch`: a launch of a loop of three nodes with this many runs; `forwards`: three batches of as many calls. Steps
follow each other every 4 ms of a simulated clock, so packets leave as in a real worker. `stamp`: on a GPU, an event
recorded behind a launch, whose time is queried after it was reached, timed and untimed, including the host's wait.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _common import ROOT, Row, show, write
from _runtime import device_name

from tests.support.loop_calls import WrittenUse, written
from walkgraph.abi.calls import Call
from walkgraph.engine.calls.chunked_prefill import Forwarded
from walkgraph.engine.device.clocks import Stopwatch
from walkgraph.engine.device.marks import Timing
from walkgraph.engine.gauges import Gauges
from walkgraph.engine.loops.collection import stepped
from walkgraph.engine.loops.loop_runs import LaunchBatch, LoopKey, LoopRun, Stepped
from walkgraph.ids import Rank
from walkgraph.telemetry.emit import Buffered
from walkgraph.wire.watching import Level
from walkgraph.worker.observe.work_telemetry import WorkTelemetry

RESULTS = ROOT / "benchmarks" / "results" / "telling.json"
LEVELS: tuple[Level, ...] = ("off", "summary", "full")
NODES = ("embed", "blocks", "head")
STEP = 0.004
"""Seconds."""
ROUNDS = 5
HERE: dict[LoopKey, LoopRun] = {}
"""Loops in slots."""
Step = Callable[[float], Sequence[Forwarded | Stepped]]
"""The engine's report of a step that ends then."""


class Idle:
    """An engine, and links, that have nothing to tell but that they are there."""

    tickets_out = rejected = 0

    @property
    def pools(self) -> "Idle":
        return self

    def pages(self) -> tuple[int, int]:
        return 1000, 2000

    def gauges(self) -> Gauges:
        return Gauges(0, 0.5, 1, 2, 1000, 2000, 0, 0)

    def time_steps(self, *, on: bool) -> None: ...

    def positions(self) -> Mapping[LoopKey, int]:
        return {key: run.done for key, run in HERE.items()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=32)
    arguments.add_argument("--steps", type=int, default=3000)
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run few steps and write nothing")
    given = arguments.parse_args()
    steps = 50 if given.check else given.steps
    made: dict[str, Step] = {"launch": launches(given.runs), "forwards": forwards(given.runs)}
    rows = [cost(what, level, step, steps) for what, step in made.items() for level in LEVELS]
    show(f"telling of a step, {given.runs} runs, {len(NODES)} nodes", rows)
    device = device_name()
    stamps = [] if device == "cpu" else [stamped(torch.device(device), on, steps) for on in (False, True)]
    show("timing a launch", stamps)
    write(None if given.check else given.out, device, {"runs": given.runs, "telling": rows, "stamps": stamps})


def launches(count: int) -> Step:
    body = tuple(WrittenUse(node, (), {}, {}, {}, 0, name=node) for node in NODES)
    runs, places = list[LoopRun](), tuple(range(len(NODES)))
    for row in range(count):
        call = written(
            run=f"run_{row:020}", walk="speak", step=0, use=0, loop="decode", iteration=(), body=body,
            times=1 << 40, until=None, outputs=(),
        )  # fmt: skip
        runs.append(LoopRun(call, 0.0, row, None, slot=row))
    batch = LaunchBatch(runs)
    HERE.update({run.key: run for run in runs})

    def step(now: float) -> Sequence[Stepped]:
        event = stepped(batch, places, 1, Timing(now - STEP, now - STEP, now - STEP, now))
        for run in runs:
            run.done += 1
        return [event]

    return step


def forwards(count: int) -> Step:
    batches = [[call(f"run_{row:020}", node) for row in range(count)] for node in NODES]
    ready = [1.0] * count

    def step(now: float) -> Sequence[Forwarded]:
        timing = Timing(now - STEP, now - STEP, now - STEP, now)
        return [Forwarded(calls, ready, (), timing) for calls in batches]

    return step


def call(run: str, node: str) -> Call:
    return Call(
        run=run, walk="speak", node=node, step=0, use=0, iteration=(5,), inputs={}, params={}, states={}, seed=0,
        ready_at=1.0, name=node,
    )  # fmt: skip


def cost(what: str, level: Level, step: Step, steps: int) -> Row:
    """The least of some rounds, less what it takes to make the events."""
    now, sent, best = 100.0, 0, float("inf")

    def send(frame: bytes) -> bool:
        nonlocal sent
        sent += len(frame)
        return True

    emitter = Buffered("bench", "rank 0.1", level, send)
    teller = WorkTelemetry(Rank(0), emitter, lambda: now, Idle(), Idle())
    for _ in range(ROUNDS):
        began = time.thread_time()
        for _ in range(steps):
            now += STEP
            step(now)
        alone = time.thread_time() - began
        began = time.thread_time()
        for _ in range(steps):
            now += STEP
            events = step(now)
            for event in events if level != "off" else ():
                teller.worked(event)
            teller.flush(1)
        best = min(best, (time.thread_time() - began - alone) / steps)
    share = best / STEP
    return {
        "what": what, "level": level, "us a step": 1e6 * best, "of a step, %": 100 * share,
        "bytes a step": sent / ROUNDS / steps, "dropped": emitter.dropped,
    }  # fmt: skip


def stamped(device: torch.device, on: bool, steps: int) -> Row:
    watch, best = Stopwatch(device), float("inf")
    watch.switch(on=on)
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(steps):
            mark = watch.mark(device)
            mark.synchronize()
            if on:
                watch.span(device, mark, 0.0, 0.0)
        best = min(best, (time.perf_counter() - began) / steps)
    return {"timed": on, "us a launch": 1e6 * best}


if __name__ == "__main__":
    main()
