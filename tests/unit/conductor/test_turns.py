"""Outputs of several ranks under one name arrive in the order of the steps, however their messages interleave."""

import random
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from walkgraph.conductor.runs.ordered_outputs import OrderedOutputs
from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import Turns
from walkgraph.wire import messages as m


def emit(name: str, step: int, number: int, rank: int = 0) -> m.Emit:
    value = m.Small(value=number)
    return m.Emit(rank=Rank(rank), run=RunId("r"), name=name, value=value, iteration=(), step=step)


@st.composite
def runs(draw: st.DrawFn) -> tuple[Turns, list[int]]:
    """The rank of each step, and how many values it sends."""
    ranks = draw(st.lists(st.integers(0, 2), min_size=2, max_size=6))
    counts = draw(st.lists(st.integers(0, 3), min_size=len(ranks), max_size=len(ranks)))
    steps = tuple(range(0, 3 * len(ranks), 3))
    return Turns(output="x", steps=steps, ranks=tuple(Rank(rank) for rank in ranks)), counts


@given(runs(), st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_any_mix_of_the_ranks_gives_one_order(run: tuple[Turns, list[int]], chance: random.Random) -> None:
    turns, counts = run
    links: dict[int, deque[m.Emit | m.Sent]] = {}
    for step, rank, count in zip(turns.steps, turns.ranks, counts, strict=True):
        link = links.setdefault(rank, deque())
        link.extend(emit("x", step, 10 * step + i, rank) for i in range(count))
        link.append(m.Sent(rank=rank, run=RunId("r"), step=step))
    line, found = OrderedOutputs([turns]), list[m.Emit]()
    while links:
        rank = chance.choice(list(links))
        message = links[rank].popleft()
        found += line.emit(message) if isinstance(message, m.Emit) else line.sent(message.step)
        if not links[rank]:
            del links[rank]
    wanted = [(step, 10 * step + i) for step, count in zip(turns.steps, counts, strict=True) for i in range(count)]
    assert [(one.step, one.value.value) for one in found if isinstance(one.value, m.Small)] == wanted


def test_what_the_step_sends_whose_turn_it_is_leaves_at_once() -> None:
    line = OrderedOutputs([Turns(output="x", steps=(1, 4), ranks=(Rank(0), Rank(1)))])
    assert line.emit(emit("x", 4, 0)) == []
    assert line.emit(emit("x", 1, 1)) == [emit("x", 1, 1)]
    assert line.emit(emit("y", 4, 2)) == [emit("y", 4, 2)], "of another output"
    assert line.emit(emit("x", 7, 3)) == [emit("x", 7, 3)], "of another list of steps"
    assert line.sent(1) == [emit("x", 4, 0)]
    assert line.emit(emit("x", 4, 4)) == [emit("x", 4, 4)]
    assert line.sent(4) == []
