"""How long a device probably still works on the oldest launch of its loops."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.unit.engine.test_loop_scheduling import Device, Plan, Watch, call_of
from walkgraph.engine.loops.scheduler import LoopScheduler
from walkgraph.engine.pacing.playback import Playbacks


def test_a_launch_takes_as_long_as_its_iterations_took_before() -> None:
    clock = [0.0]
    device = Device({"r": Plan("k")}, late=True)
    scheduler = LoopScheduler(device, Playbacks(lambda: clock[0]), watch=Watch(), clock=lambda: clock[0])
    left = scheduler.launcher.left
    assert left() == 0, "nothing is in flight"
    scheduler.add(replace(call_of(random.Random(0), "r", 0.0), times=8, allowed=None, grain=0))
    assert scheduler.launch()
    assert left() <= 0, "it was never measured"
    clock[0] = 2.0
    device.now = 1
    assert left() == 0, "it is over"
    scheduler.collect(wait=False)
    [group] = scheduler.groups
    each = group.seconds_of(1)
    assert each == pytest.approx(2.0 / 4)
    assert scheduler.launch()
    clock[0] = 2.5
    assert left() == pytest.approx(4 * each - 0.5)
