"""A trace contains only its run's events and says what is missing; memory is bounded."""

from __future__ import annotations

import gc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.telling import (
    WALL,
    A,
    B,
    C,
    activity,
    arrival,
    forward,
    gauge,
    launch,
    loop_ended,
    loop_work,
    looping,
    packet,
    phase,
    sample,
    transfer,
)
from walkgraph.ids import Rank, RunId
from walkgraph.telemetry import events as e
from walkgraph.telemetry import keeping
from walkgraph.telemetry.assembling import PAUSE_EVENTS, assemble
from walkgraph.telemetry.keeping import LATE_SECONDS, Keeper
from walkgraph.telemetry.places import Places
from walkgraph.telemetry.trace import CALL, FOLDED, LAUNCH, RankPart, Trace
from walkgraph.wire.processes.host_clocks import Alignment


class World:
    """A keeper, and sources that number what they tell."""

    def __init__(self, **bounds: int) -> None:
        self.keeper = Keeper(Places(devices=("cuda:0", "cpu")), **bounds)
        self.numbers: dict[str, int] = {}

    def tell(
        self,
        source: str,
        *told: e.Any,
        now: float,
        missing: int = 0,
        nbytes: int = 100,
        clock: Alignment | None = None,
    ) -> None:
        first = self.numbers.get(source, 0) + missing
        self.keeper.take(msgspec.structs.replace(packet(source, first, *told), clock=clock), nbytes, now)
        self.numbers[source] = first + len(told)

    def trace(self, run: RunId, now: float = 100.0) -> Trace:
        draft = self.keeper.draft(run, now)
        assert draft is not None
        return assemble(draft, "shapes")


def begun(**bounds: int) -> World:
    """A run that came at 10 s and is being done since 10.5 s."""
    world = World(**bounds)
    world.tell("conductor", phase(A, "queued", 10.0), phase(A, "started", 10.5), now=10.5)
    return world


def shard(number: int, began: float, *, rank: int = 1) -> e.ShardWork:
    return e.ShardWork(rank=Rank(rank), of=Rank(0), number=number, started=began, finished=began + 0.25)


def test_parts_of_other_shards_are_those_of_the_runs_batches() -> None:
    world = begun()
    world.keeper.places = Places(devices=("cuda:0", "cuda:1", "cuda:2"), serving=(0, 0, 0))
    # A shard's packet may come before the first one's.
    world.tell("rank 1.1", shard(7, 10.5), shard(8, 11.0), shard(9, 11.5), now=11.8)
    batch = {"runs": (A, A), "nodes": ("llm", "sampler")}
    told = [forward((10.5, 10.5, 10.5, 10.75), number=7), forward((11.0, 11.0, 11.0, 11.25), (B,), number=8)]
    world.tell("rank 0.1", *told, forward((11.5, 11.5, 11.5, 11.75), **batch, number=9), now=11.9)
    # Its number was given once before, by the same rank before it was started anew.
    world.tell("rank 2.1", shard(7, 9.0, rank=2), shard(9, 11.5, rank=2), now=12.0)
    world.tell("rank 2.1", gauge(2, 13.0), now=13.0)
    trace = world.trace(A)
    found = trace.shards
    rows = zip(found.rank, found.of, found.number, found.started, found.finished, strict=True)
    assert list(rows) == [
        (1, 0, 7, 500_000, 750_000),
        (1, 0, 9, 1_500_000, 1_750_000),
        (2, 0, 9, 1_500_000, 1_750_000),
    ]
    assert len(trace.blocks.lane) == 3, "work is counted once"
    assert trace.serving == (0, 0, 0)
    assert trace.counters.rank == (2,)


def test_recordings_of_all_runs_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    picked = len(sample(A, 1.0).picked)
    monkeypatch.setattr(keeping, "ALL_NUMBERS", 3 * picked)
    world.tell("rank 0.1", sample(A, 1.0), sample(A, 1.1), sample(B, 1.2), sample(B, 1.3), now=2.0)
    drafts = [world.keeper.draft(run, 3.0) for run in (A, B)]
    assert [(len(found.recorded), found.cut) for found in drafts if found] == [(2, False), (1, True)]
    # What is kept makes room.
    world.keeper.forget(A)
    monkeypatch.setattr(keeping, "ALL_SAMPLES", 2)
    world.tell("rank 0.1", sample(C, 4.0), sample(C, 4.1), now=5.0)
    found = world.keeper.draft(C, 5.0)
    assert found is not None
    assert (len(found.recorded), found.cut) == (1, True)


def test_calls_that_were_not_made_are_listed_and_take_no_time() -> None:
    world = begun()
    for run, at in ((A, 12.0), (A, 11.0), (B, 11.5)):
        one = e.Kept(run=run, rank=Rank(1), walk="w", node="n", use="n_2", step=3, iteration=(4,), at=at)
        world.tell("rank 1.1", one, now=at)
    found = world.trace(A)
    assert [(one.at, one.rank, one.walk, one.node, one.use, one.step, one.iteration) for one in found.kept] == [
        (1_000_000, 1, "w", "n", "n_2", 3, (4,)),
        (2_000_000, 1, "w", "n", "n_2", 3, (4,)),
    ]
    assert (found.lanes, found.blocks.kind) == ((), ())


def test_each_rank_tells_when_it_had_the_run() -> None:
    world = begun()
    for run, rank in ((A, 1), (B, 0), (A, 0)):
        one = e.RunPart(run=run, rank=Rank(rank), received=10.5 + rank, at=20.0)
        world.tell(f"rank {rank}.1", one, now=20.0)
    assert world.trace(A).parts == (
        RankPart(rank=0, received=500_000, done=10_000_000),
        RankPart(rank=1, received=1_500_000, done=10_000_000),
    )


def test_calls_become_blocks_of_lanes_with_their_times() -> None:
    world = begun()
    call = forward(
        (11.0, 11.01, 11.02, 11.05), (B, A, C), ("llm", "vae", "llm"), ready=(1.0, 10.9, 1.0), number=7, failed=(1,)
    )
    world.tell("rank 0.1", call, now=11.1)
    found = world.trace(A)
    blocks = found.blocks
    lane = found.lanes[blocks.lane[0]]
    assert (blocks.kind, lane.name, lane.rank, lane.loop) == ((CALL,), "vae", 0, False)
    assert (blocks.ready, blocks.taken, blocks.launched) == ((900_000,), (1_000_000,), (1_010_000,))
    assert (blocks.started, blocks.finished) == ((1_020_000,), (1_050_000,))
    assert (blocks.busy, blocks.queued) == ((30_000,), (120_000,))
    assert (blocks.batch, blocks.number, blocks.failed, blocks.pages_free) == ((3,), (7,), (True,), (100,))
    assert {found.names[mate] for mate in blocks.mates[0]} == {B, C}
    assert (found.level, found.state, found.wall) == ("full", "running", WALL + 10.0)
    assert found.phases == {"queued": 0, "started": 500_000}
    assert found.devices == ("cuda:0", "cpu")
    assert found.seconds == 90.0


def test_passes_of_steps_are_in_the_trace() -> None:
    world = begun()
    legs = [(0, ((), (0,)), 10.5), (2, ((1,), (1,)), 11.0)]
    told = [e.RunPasses(run=A, first=first, passes=passes, at=at) for first, passes, at in legs]
    world.tell("conductor", *told, e.RunPasses(run=B, first=0, passes=((5,),), at=11.0), now=11.1)
    found = [(one.at, one.first, one.passes) for one in world.trace(A).passes]
    assert found == [(500_000, 0, ((), (0,))), (1_000_000, 2, ((1,), (1,)))]


def test_launches_have_waited_since_they_could_have_been() -> None:
    world = begun()
    first = launch((11.0, 11.1, 11.2, 11.5), (A, B), first=(0, 8), ready=(10.5, 10.9))
    second = launch((11.1, 11.2, 11.6, 11.9), (B, A), first=(12, 4), number=1, ready=(11.5, 11.5))
    third = launch((11.6, 11.7, 11.9, 12.0), first=(8,), number=2, ready=(11.95,))
    world.tell("rank 0.1", first, second, third, now=12.0)
    found = world.trace(A).blocks
    assert found.kind == (LAUNCH, LAUNCH, LAUNCH)
    assert found.iteration == ((0,), (4,), (8,))
    assert found.ready == (500_000, 1_500_000, 1_900_000)
    assert found.queued == (700_000, 100_000, 0)
    assert found.count == (4, 4, 4)
    assert found.use == (-1, -1, -1)


def test_uses_of_a_node_are_told_apart() -> None:
    world = begun()
    both = forward((11.0,) * 4, (A, A), ("llm", "llm"), uses=("llm", "again"))
    world.tell("rank 0.1", both, activity(A, (11.5, 11.6)), now=12.0)
    found = world.trace(A)
    assert [found.names[use] for use in found.blocks.use] == ["llm", "again", "llm"]
    assert found.blocks.lane == (0, 0, 0)


def test_a_loop_is_one_lane_whatever_its_iterations_call() -> None:
    world = begun()
    world.tell("rank 0.1", launch((11.0,) * 4, nodes=("llm",)), launch((12.0,) * 4, first=(4,)), now=12.0)
    world.tell("rank 1.1", launch((12.0,) * 4, rank=1), now=12.0)
    found = world.trace(A)
    assert [(lane.rank, lane.name, lane.nodes) for lane in found.lanes] == [
        (0, "decode", ("llm", "head")),
        (1, "decode", ("llm", "head")),
    ]
    assert found.blocks.lane == (0, 0, 1)


def test_summaries_are_folded_and_loops_shown_until_they_have_ended() -> None:
    world = begun()
    world.tell("rank 0.1", activity(A, (11.0, 11.2), node="vae"), activity(B, (11.0, 11.2)), now=11.2)
    world.tell("rank 0.1", looping((B, A), 11.5, (9, 4), 0.2), now=11.5)
    world.tell("rank 0.1", looping((A, B), 11.6, (10, 9), 0.05), now=11.6)
    found = world.trace(A)
    blocks = found.blocks
    assert found.level == "summary"
    assert blocks.kind == (FOLDED,) * 3
    assert [found.lanes[lane].name for lane in blocks.lane] == ["vae", "decode", "decode"]
    assert blocks.count == (2, 4, 6)
    assert blocks.started == (1_000_000, 1_300_000, 1_500_000)
    assert blocks.finished == (1_200_000, 1_500_000, 1_600_000)
    assert blocks.busy == (100_000, 200_000, 50_000)
    work = loop_work(11.3, 0.3, {"llm": 12, "head": 6})
    world.tell("rank 0.1", loop_ended(A, 11.7, 12, work), now=11.7)
    found = world.trace(A)
    assert [(found.lanes[lane].name, found.lanes[lane].loop) for lane in found.blocks.lane] == [
        ("vae", False),
        ("decode", True),
    ]
    assert (found.blocks.count[1], found.blocks.busy[1], found.blocks.iteration[1]) == (12, 300_000, (11,))
    assert (found.blocks.started[1], found.blocks.finished[1]) == (1_300_000, 1_700_000)
    assert (found.loops[0].iterations, found.loops[0].at) == (12, 1_700_000)
    # The other one's loop goes on.
    world.tell("conductor", phase(B, "queued", 10.0), now=11.7)
    assert world.trace(B).blocks.count == (2, 9)


def test_hops_have_the_arrival_with_their_key_whichever_is_heard_first() -> None:
    world = begun()
    world.tell("rank 1.1", arrival(A, 11.2, key=(1,)), arrival(B, 11.0, key=(0,)), now=11.3)
    world.tell("rank 0.1", transfer(A, 11.1, key=(1,)), transfer(A, 11.0, key=(0,)), now=11.3)
    found = world.trace(A)
    assert found.hops.sent == (1_000_000, 1_100_000)
    assert found.hops.arrived == (-1, 1_200_000)
    assert [found.names[name] for name in found.hops.edge] == ["edge 1", "edge 1"]


def test_gauges_are_those_of_its_ranks_while_it_ran() -> None:
    world = World()
    world.tell("rank 0.1", gauge(0, 5.0), now=5.0)
    world.tell("rank 0.1", gauge(0, 9.5, queue=4), gauge(1, 9.5), now=9.5)
    world.tell("conductor", phase(A, "queued", 10.0), now=10.0)
    world.tell("rank 0.1", activity(A, (10.1, 10.2)), gauge(0, 10.5, queue=2), now=10.5)
    world.tell("conductor", phase(A, "finished", 11.0), now=11.0)
    world.tell("rank 0.1", gauge(0, 11.5), now=11.5)
    found = world.trace(A).counters
    assert (found.rank, found.at, found.queue, found.pages_used) == ((0, 0), (0, 500_000), (4, 2), (30, 30))


def test_what_was_lost_while_it_ran_is_counted() -> None:
    world = World()
    world.tell("rank 0.1", gauge(0, 9.0), now=9.0, missing=3)
    world.tell("conductor", phase(A, "queued", 10.0), now=10.0)
    world.tell("rank 0.1", gauge(0, 11.0), now=11.0, missing=5)
    assert world.trace(A).lost == 5
    # A source that begins again has lost nothing.
    world.numbers["rank 0.1"] = 0
    world.tell("rank 0.1", gauge(0, 12.0), now=12.0)
    assert world.trace(A).lost == 5
    world.tell("conductor", phase(A, "finished", 12.0), now=12.0)
    assert world.keeper.due(12.0 + LATE_SECONDS) == [A]
    world.tell("rank 0.1", gauge(0, 13.0), now=13.0, missing=7)
    assert world.trace(A).lost == 5


def test_a_run_is_complete_once_every_source_has_told_something_later() -> None:
    world = begun()
    world.tell("rank 0.1", activity(A, (11.0, 11.2)), now=11.2)
    world.tell("rank 1.1", activity(A, (11.0, 11.2), rank=1), now=11.2)
    world.tell("conductor", phase(A, "finished", 11.3), phase(B, "queued", 11.35), now=11.31)
    assert world.keeper.due(11.32) == []
    world.tell("rank 0.1", gauge(0, 11.4), now=11.4)
    assert world.keeper.due(11.41) == []
    world.tell("rank 1.1", activity(A, (11.25, 11.29), rank=1), now=11.42)
    assert world.keeper.due(11.43) == []
    world.tell("rank 1.1", gauge(1, 11.5), now=11.5)
    assert world.keeper.due(11.5) == [A]
    found = world.trace(A)
    assert (found.state, found.seconds, len(found.blocks.kind)) == ("done", 1.3, 3)
    world.keeper.forget(A)
    assert world.keeper.due(20.0) == []
    # What comes late would be another, empty trace of it.
    world.tell("rank 1.1", sample(A, 11.2), now=12.0)
    world.tell("conductor", phase(A, "finished", 11.3), now=12.0)
    assert world.keeper.draft(A, 20.0) is None


def test_a_source_that_is_silent_is_waited_for_only_a_while() -> None:
    world = begun()
    world.tell("rank 0.1", activity(A, (11.0, 11.2)), now=11.2)
    world.tell("conductor", phase(A, "finished", 11.3, "out_of_memory"), now=11.3)
    assert world.keeper.due(11.3 + LATE_SECONDS - 0.01) == []
    assert world.keeper.due(11.3 + LATE_SECONDS) == [A]
    assert (world.trace(A).state, world.trace(A).error) == ("failed", "out_of_memory")


def test_earlier_starts_of_a_rank_are_forgotten_but_the_last_of_them() -> None:
    """Its packets may come after the first one of the next start, and aren't lost."""
    world = World()
    world.tell("conductor", phase(A, "queued", 1.0), now=1.0)
    for start in range(1, 50):
        for rank in (0, 1):
            world.tell(f"rank {rank}.{start}", gauge(rank, 1.0 + start), now=1.0 + start)
    assert len(world.keeper.sources) == 5
    world.tell("rank 0.48", gauge(0, 51.0), now=51.0)
    world.tell("rank 0.49", gauge(0, 51.0), now=51.0)
    assert (len(world.keeper.sources), world.keeper.sources.lost) == (5, 0)


def test_a_run_whose_conductor_died_is_closed_by_who_knows() -> None:
    world = begun()
    assert world.keeper.open == [A]
    world.keeper.close(A, 12.0, "worker_lost")
    world.tell("conductor", phase(A, "finished", 13.0), now=13.0)
    found = world.trace(A)
    assert (found.state, found.error, found.seconds) == ("failed", "worker_lost", 2.0)
    assert world.keeper.open == []
    world.keeper.close(B, 12.0, None)
    assert world.keeper.draft(B, 12.0) is None


def test_a_full_ring_forgets_the_oldest_and_says_so() -> None:
    world = begun(max_events=3)
    for number in range(5):
        world.tell("rank 0.1", forward((11.0 + number,) * 4, number=number), now=11.0 + number)
    found = world.trace(A)
    assert found.blocks.number == (2, 3, 4)
    assert found.cut
    world.tell("conductor", phase(B, "queued", 15.0), now=15.0)
    assert not world.trace(B).cut
    small = begun(max_bytes=250)
    for number in range(5):
        small.tell("rank 0.1", forward((11.0 + number,) * 4, number=number), now=11.0 + number)
    assert small.trace(A).blocks.number == (3, 4)


@pytest.mark.safety("R18")
def test_what_no_run_needs_any_more_is_not_kept() -> None:
    """However many runs there were: only those that are known, and the last seconds, count."""
    world = begun()
    world.tell("rank 0.1", forward((11.0,) * 4, number=0), now=11.0)
    for number in range(1, 100):
        at = 11.0 + number
        world.tell("rank 0.1", forward((at,) * 4, (C,), number=number), now=at)
    assert len(world.keeper._ring) == 100, "a run that is open needs all since it began"
    assert not world.trace(A).cut
    world.keeper.forget(A)
    world.tell("rank 0.1", forward((111.0,) * 4, (C,), number=100), now=111.0)
    assert len(world.keeper._ring) <= keeping.UNNAMED_SECONDS + keeping.BEFORE_SECONDS + 1


def test_recorded_values_are_kept_apart_and_others_are_not() -> None:
    world = begun()
    world.tell("rank 0.1", sample(A, 11.0), sample(A, 11.1, why="tap"), sample(B, 11.2, picked=()), now=11.3)
    draft = world.keeper.draft(A, 12.0)
    assert draft is not None
    assert [recorded.whole() for recorded in draft.recorded] == [sample(A, 11.0)]
    other = world.trace(B)
    assert (other.level, other.task, other.phases, other.wall) == ("off", "", {}, WALL + 11.2)


@given(st.lists(st.tuples(st.sampled_from((A, B, C)), st.integers(1, 3), st.booleans()), max_size=30))
def test_a_trace_is_what_its_events_say_one_by_one(told: list[tuple[RunId, int, bool]]) -> None:
    """The naive twin goes through all events and picks the rows of the run."""
    world = begun()
    expected: list[tuple[int, int, int]] = []
    for number, (run, size, looped) in enumerate(told):
        at = 11.0 + number
        runs = (run, *[other for other in (A, B, C) if other != run][: size - 1])
        times = (at, at + 0.1, at + 0.2, at + 0.3)
        event = launch(times, runs, first=(0,) * size, number=number) if looped else forward(times, runs, number=number)
        world.tell("rank 0.1", event, now=at + 0.4)
        if A in runs:
            expected.append((LAUNCH if looped else CALL, number, round((at - 10.0 + 0.2) * 1e6)))
    blocks = world.trace(A).blocks
    assert list(zip(blocks.kind, blocks.number, blocks.started, strict=True)) == expected
    assert all(len(getattr(blocks, name)) == len(expected) for name in blocks.__struct_fields__)


def test_a_full_ring_is_nothing_to_a_garbage_collection() -> None:
    """It would hold up whoever is answered, for a tenth of a second where there are a hundred thousand."""
    world = begun()
    # What other tests have left is not looked at: that would take as long as a hundred tests.
    gc.freeze()
    before = len(gc.get_objects())
    for number in range(500):
        world.tell("rank 0.1", *(forward((11.0,) * 4, (A, B), number=number) for _ in range(4)), now=11.0)
    gc.collect()
    assert len(gc.get_objects()) - before < 100
    assert len(world.trace(A).blocks.kind) == 2000


def test_a_long_trace_lets_others_have_their_turn() -> None:
    world, pauses = begun(), list[None]()
    for number in range(100):
        world.tell("rank 0.1", *(forward((11.0,) * 4, number=number) for _ in range(8)), now=11.0)
    draft = world.keeper.draft(A, 12.0)
    assert draft is not None
    assert assemble(draft, "shapes", "", lambda: pauses.append(None)) == assemble(draft, "shapes")
    assert len(pauses) == 800 // PAUSE_EVENTS
