"""Reports of launches and ends: the run in a slot when it leaves; results for a batch are kept."""

from __future__ import annotations

import random

import pytest

from tests.unit.worker.test_telling import World, loop_call, loop_run
from walkgraph.engine.device.marks import Timing
from walkgraph.engine.loops.collection import stepped
from walkgraph.engine.loops.loop_runs import LaunchBatch, LoopDone
from walkgraph.errors import ErrorInfo
from walkgraph.telemetry import events as e
from walkgraph.wire.watching import Level
from walkgraph.worker.observe.launch_groups import LaunchGroups


def test_the_summary_names_the_loops_that_are_in_slots_when_it_leaves() -> None:
    """With what they have come to: not one that left its slot, or was cancelled, since its last launch."""
    world, runs = World(), [loop_run(loop_call(name), slot) for slot, name in enumerate("abc")]
    world.teller.worked(stepped(LaunchBatch(runs), (0,), 2, Timing(1, 2, 3, 4)))
    world.engine.here = {runs[0].key: 5, runs[2].key: 2}
    (one,) = world.told(e.Looping)
    assert (one.runs, one.iterations, one.batch, one.calls) == (("a", "c"), ((3, 5), (3, 2)), 3, 6)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_found_for_a_batch_is_kept_while_it_is_the_same(seed: int) -> None:
    draw, groups = random.Random(seed), LaunchGroups()
    runs = [loop_run(loop_call(f"r{slot}", draw.choice(["l", "m"])), slot) for slot in range(4)]
    batch = LaunchBatch(runs)
    first = groups.of(stepped(batch, (0,), 1, Timing(1, 2, 3, 4)).members)
    assert groups.of(stepped(batch, (0,), 1, Timing(1, 2, 3, 4)).members) is first
    runs[1].slot = -1
    fewer = groups.of(stepped(batch, (0,), 1, Timing(1, 2, 3, 4)).members)
    assert sum(len(group.members) for group in fewer) == 3


@pytest.mark.parametrize("level", ["summary", "full"])
def test_the_end_of_a_loop_is_told_at_both_levels(level: Level) -> None:
    world = World(level)
    for done in (
        LoopDone(loop_call("a"), {}, None, 8, False, 1.0, 0.5, 2),
        LoopDone(loop_call("b"), {}, None, 3, True, 1.0, 0.5, 2),
        LoopDone(loop_call("c"), None, ErrorInfo(code="node_error", message="no"), 0, False, 0.0, 0.0, 1),
    ):
        world.teller.ended(done)
    ends = world.told(e.LoopEnded)
    assert [(one.run, one.iterations, one.reason) for one in ends] == [
        ("a", 8, "bound"), ("b", 3, "stop"), ("c", 0, "error"),
    ]  # fmt: skip
    assert {(one.walk, one.loop, one.step, one.iteration, one.at) for one in ends} == {("w_l", "l", 1, (3,), 10.0)}
