"""On a GPU: times of kernels on the host's clock, within 100 us and without waiting for the device."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import pytest
import torch

from tests.gpu.test_loops import PARAMS, RUNS, TIMES, codes, engine, loop, prefilled, states
from tests.unit.engine.plans import call
from walkgraph.engine.calls.chunked_prefill import Forwarded
from walkgraph.engine.device.clocks import Stamp, Stopwatch
from walkgraph.engine.device.marks import Timing
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.loop_runs import LoopDone, Stepped
from walkgraph.models.orpheus.presets import ORPHEUS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
DEVICE = torch.device("cuda:0")
US = 1e-6
MOST = 100 * US
CYCLES = 4_000_000
"""Cycles of a kernel of about 2 ms."""


@pytest.fixture(autouse=True)
def _two_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ORPHEUS["orpheus-3b"]
    monkeypatch.setitem(ORPHEUS, "orpheus-two-layers", replace(whole, llm=replace(whole.llm, layers=2)))


@pytest.fixture
def watch() -> Stopwatch:
    made = Stopwatch(DEVICE, time.monotonic)
    made.switch(on=True)
    for _ in range(3):  # the first kernel of a process takes longer, and so does a first record
        torch.cuda._sleep(1000)  # pyright: ignore[reportPrivateUsage]
        stamp = stamped(made)
        stamp.synchronize()
        made.span(DEVICE, stamp, 0.0, 0.0)
    torch.cuda.synchronize()
    return made


def stamped(watch: Stopwatch) -> Stamp:
    stamp = watch.stamp(DEVICE)
    assert isinstance(stamp, Stamp)
    return stamp


def spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def seconds_of(cycles: int) -> float:
    """As two events of the stream tell it."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(cycles)  # pyright: ignore[reportPrivateUsage]
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


@pytest.mark.parametrize("late", [0.0, 0.0005, 0.005])
def test_ends_are_those_that_the_host_sees_when_it_looks_at_once(watch: Stopwatch, late: float) -> None:
    """However late the stamp itself is asked."""
    errors: list[float] = []
    lengths: list[float] = []
    usual = seconds_of(CYCLES)
    for _ in range(60):
        began = time.monotonic()
        torch.cuda._sleep(CYCLES)  # pyright: ignore[reportPrivateUsage]
        stamp = stamped(watch)
        behind = torch.cuda.Event()
        behind.record()
        while not behind.query():
            pass
        seen = time.monotonic()
        spin(late)
        started, finished = watch.span(DEVICE, stamp, began, 0.0)
        errors.append(abs(finished - seen))
        lengths.append(abs(finished - started - usual))
    # The machine may be interrupted between two looks.
    assert quantile(errors, 0.9) <= MOST, errors
    assert quantile(lengths, 0.9) <= MOST, lengths


def test_it_is_as_good_beside_the_work_of_other_streams(watch: Stopwatch) -> None:
    """More streams than a device has queues."""
    streams = [torch.cuda.Stream(DEVICE) for _ in range(12)]
    errors: list[float] = []
    for _ in range(40):
        for stream in streams:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(CYCLES * 5)  # pyright: ignore[reportPrivateUsage]
        began = time.monotonic()
        torch.cuda._sleep(CYCLES)  # pyright: ignore[reportPrivateUsage]
        stamp = stamped(watch)
        behind = torch.cuda.Event()
        behind.record()
        while not behind.query():
            pass
        seen = time.monotonic()
        errors.append(abs(watch.span(DEVICE, stamp, began, 0.0)[1] - seen))
    torch.cuda.synchronize()
    assert quantile(errors, 0.9) <= MOST, errors


def test_launches_that_queue_up_follow_each_other(watch: Stopwatch) -> None:
    usual = seconds_of(CYCLES)
    for _ in range(10):
        flights: list[tuple[Stamp, float]] = []
        for _ in range(5):
            began = time.monotonic()
            torch.cuda._sleep(CYCLES)  # pyright: ignore[reportPrivateUsage]
            flights.append((stamped(watch), began))
        flights[-1][0].synchronize()
        spans = [watch.span(DEVICE, stamp, began, 0.0) for stamp, began in flights]
        assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans))
        assert spans[-1][1] <= time.monotonic()
        for started, finished in spans[1:]:
            assert finished - started == pytest.approx(usual, abs=MOST)


def timings(here: Engine) -> tuple[list[Timing], list[Timing]]:
    """The timings of batches and launches while five runs are in loops and five prompts are read."""
    batches: list[Timing] = []
    launches: list[Timing] = []
    tokens = prefilled(here, RUNS)
    here.time_steps(on=True)
    for run, length in RUNS.items():
        here.add_loop(loop(run, tokens[run], TIMES[run], length))
        other, ids = f"{run} again", torch.arange(length)
        here.add(replace(call("llm", {"ids": ids}, run=other, states={}, **PARAMS), states=states(other)))
    while not here.idle:
        for event in here.step():
            assert not (isinstance(event, LoopDone) and event.error), event
            if isinstance(event, Stepped):
                launches.append(event.timing)
            elif isinstance(event, Forwarded):
                assert not event.failed
                batches.append(event.timing)
    return batches, launches


def test_what_an_engine_tells_of_one_stream_does_not_overlap_and_is_in_its_time() -> None:
    here = engine(capture=True)
    codes(here, RUNS, TIMES)
    began = time.monotonic()
    batches, launches = timings(here)
    ended = time.monotonic()
    assert batches
    assert len(launches) >= max(TIMES.values())
    for one in (*batches, *launches):
        assert began <= one.taken <= one.launched <= ended
        assert one.taken <= one.started <= one.finished <= ended
    spans = sorted((one.started, one.finished) for one in (*batches, *launches))
    assert all(one[1] <= two[0] + US for one, two in itertools.pairwise(spans))
    share = here.gauges().busy
    busy = sum(finished - started for started, finished in spans)
    assert 0 < share <= 1
    assert busy <= ended - began
    here.states.audit()


def test_no_step_that_is_timed_waits_for_the_device() -> None:
    here = engine(capture=True)
    here.time_steps(on=True)
    told = codes_timed(here)
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert codes_timed(here) == told
    finally:
        torch.cuda.set_sync_debug_mode("default")


def codes_timed(here: Engine) -> int:
    """Launches told."""
    here.time_steps(on=False)
    tokens = prefilled(here, RUNS)
    here.time_steps(on=True)
    for run, length in RUNS.items():
        here.add_loop(loop(run, tokens[run], TIMES[run], length))
    count = 0
    while not here.idle:
        count += sum(isinstance(event, Stepped) for event in here.step())
    for run in RUNS:
        here.drop(run)
    return count


def test_the_gauges_of_a_gpu_are_those_of_the_driver() -> None:
    here = engine(capture=False)
    told = here.gauges()
    free, total = torch.cuda.mem_get_info(DEVICE)
    assert told.memory_total == total
    assert told.memory_used == pytest.approx(total - free, abs=1 << 28)
    assert told.pages_free == told.pages_total > 0
