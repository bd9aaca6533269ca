"""Parts of a loop that spans ranks: their reports say that their time includes waits."""

from tests.support.loop_calls import WrittenSend, rewritten
from tests.unit.worker.test_telling import World, loop_call, loop_run
from walkgraph.engine.device.marks import Timing
from walkgraph.engine.loops.collection import stepped
from walkgraph.engine.loops.loop_runs import LaunchBatch, LoopDone
from walkgraph.engine.loops.spec import Channel
from walkgraph.ids import Rank
from walkgraph.telemetry import events as e
from walkgraph.wire.watching import Level


def test_a_part_of_a_loop_says_that_it_waits_for_others() -> None:
    channel = Channel(1, Rank(1))
    levels: tuple[Level, ...] = ("summary", "full")
    for level in levels:
        world, of = World(level), rewritten(loop_call("r"), sends=(WrittenSend(0, "out", channel, None),))
        world.teller.began(of)
        world.teller.worked(stepped(LaunchBatch([loop_run(of)]), (0,), 1, Timing(1, 2, 3, 4)))
        world.teller.ended(LoopDone(of, {}, None, 8, False, 1.0, 0.5, 2))
        assert all(one.spans for one in [*world.told(e.Launch), *world.told(e.Looping)])
        assert [one.work.spans for one in world.told(e.LoopEnded) if one.work] == [True] * (level == "summary")
