"""Figures of a run with known times, with a device loop and stepped."""

from __future__ import annotations

import pytest

from tests.support.telling import A, activity, forward, launch, loop_ended, loop_work, packet, phase
from walkgraph.ids import Rank
from walkgraph.telemetry import events as e
from walkgraph.telemetry.assembling import assemble
from walkgraph.telemetry.critical import Why, why
from walkgraph.telemetry.keeping import Keeper
from walkgraph.telemetry.places import Places
from walkgraph.telemetry.statistics import NodeFigures, over, partial

STEPS = 10
TOOK = {"llm": 0.012, "llm_cfg": 0.004, "combine": 0.0002}
"""Seconds of a call, in the order of an iteration."""
ONCE = sum(TOOK.values())
BEGAN, LOOP = 10.0, 10.05
"""When it came, and when it has read its inputs and its loop begins."""
END = LOOP + STEPS * ONCE


def figures(*told: e.Any) -> tuple[Why, dict[tuple[str, bool, int], NodeFigures]]:
    """By name, whether it is a loop, and rank."""
    keeper = Keeper(Places())
    keeper.take(packet("conductor", 0, phase(A, "queued", BEGAN), phase(A, "started", BEGAN)), 100, BEGAN)
    keeper.take(packet("rank 0.1", 0, *told), 100, END)
    keeper.take(packet("conductor", 2, phase(A, "finished", END)), 100, END)
    draft = keeper.draft(A, END)
    assert draft is not None
    trace = assemble(draft, "shapes")
    because = why(trace)
    return because, {(one.node, one.loop, one.rank): one for one in over([partial(trace, because)]).nodes}


def stepped() -> list[e.Any]:
    """Each call by itself, one after the other."""
    told, at = list[e.Any](), LOOP
    for step in range(STEPS):
        for node, seconds in TOOK.items():
            told.append(forward((at, at, at, at + seconds), nodes=(node,), iteration=(step,)))
            at += seconds
    return told


def launched(rank: int = 0, *, spans: bool = False) -> list[e.Any]:
    """A launch for each iteration."""
    at = [LOOP + step * ONCE for step in range(STEPS)]
    return [
        launch((one, one, one, one + ONCE), count=1, first=(k,), nodes=tuple(TOOK), rank=rank, number=k, spans=spans)
        for k, one in enumerate(at)
    ]


def summed(rank: int = 0, *, spans: bool = False) -> list[e.Any]:
    work = loop_work(LOOP, STEPS * ONCE, dict.fromkeys(TOOK, STEPS), spans=spans)
    return [loop_ended(A, END, STEPS, work, rank=rank)]


def reading(level: str) -> e.Any:
    if level == "full":
        return forward((BEGAN, BEGAN, BEGAN, LOOP), nodes=("llm",))
    return activity(A, (BEGAN, LOOP), node="llm", calls=1)


def test_stepped_nodes_have_the_time_that_they_took() -> None:
    _, found = figures(*stepped())
    assert {name: one.p50 for (name, _, _), one in found.items()} == pytest.approx(
        {name: 1000 * seconds for name, seconds in TOOK.items()}, abs=0.002
    )


@pytest.mark.parametrize("level", ["full", "summary"])
def test_a_loop_that_a_device_ran_whole_has_its_time_and_its_nodes_have_none_of_it(level: str) -> None:
    because, found = figures(reading(level), *(launched() if level == "full" else summed()))
    assert set(found) == {("llm", False, 0), ("decode", True, 0)}
    loop, node = found["decode", True, 0], found["llm", False, 0]
    assert (loop.calls, loop.nodes) == (STEPS, tuple(TOOK))
    assert loop.p50 == pytest.approx(1000 * ONCE, abs=0.01)
    assert loop.busy == pytest.approx(STEPS * ONCE, abs=1e-4)
    assert node.calls == 1, "those in the loop are the loop's"
    assert because.bottleneck is not None
    assert (because.bottleneck.lane, because.bottleneck.loop) == ("decode", True)
    assert because.bottleneck.seconds == pytest.approx(STEPS * ONCE, abs=1e-4)
    assert "the loop `decode` on rank 0 computing" in because.says
    assert "so the times of `llm`, `llm_cfg`, `combine` in it are unknown" in because.says


@pytest.mark.parametrize("level", ["full", "summary"])
def test_a_part_of_a_loop_on_several_ranks_charges_nobodys_wait_to_a_node(level: str) -> None:
    told = [one for rank in (0, 1) for one in (launched if level == "full" else summed)(rank, spans=True)]
    because, found = figures(*told)
    assert set(found) == {("decode", True, 0), ("decode", True, 1)}
    assert "their waits for each other are included in that time" in because.says


def test_a_node_that_is_named_as_a_loop_is_another() -> None:
    because, found = figures(activity(A, (BEGAN, LOOP), node="decode", calls=1), *summed())
    assert found["decode", False, 0].calls == 1
    assert because.bottleneck is not None
    assert because.bottleneck.seconds == pytest.approx(STEPS * ONCE, abs=1e-4)


def test_a_level_that_changes_in_a_loop_loses_nothing_of_it() -> None:
    """It was summed up at first, and ended where launches are told."""
    half = STEPS // 2
    before = e.Looping(
        rank=Rank(0), loop="decode", nodes=tuple(TOOK), uses=tuple(TOOK), runs=(A,), walks=("draw",),
        iterations=((half,),), launches=half, calls=half, busy=half * ONCE, batch=1, at=LOOP + half * ONCE,
    )  # fmt: skip
    _, found = figures(before, *launched()[half:], loop_ended(A, END, STEPS))
    assert found["decode", True, 0].calls == STEPS
    assert found["decode", True, 0].busy == pytest.approx(STEPS * ONCE, abs=1e-4)
