"""Outputs of several ranks under one name arrive in the order of the steps, however their messages interleave."""

import random
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from walkgraph.conductor.runs.ordered_outputs import OrderedOutputs
from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import SendOrder
from walkgraph.wire import messages as m


def emit(name: str, step: int, number: int, rank: int = 0) -> m.Emit:
    value = m.Small(value=number)
    return m.Emit(rank=Rank(rank), run=RunId("r"), name=name, value=value, iteration=(), step=step)


@st.composite
def runs(draw: st.DrawFn) -> tuple[SendOrder, list[int]]:
    """The rank of each step, and how many values it sends."""
    ranks = draw(st.lists(st.integers(0, 2), min_size=2, max_size=6))
    counts = draw(st.lists(st.integers(0, 3), min_size=len(ranks), max_size=len(ranks)))
    steps = tuple(range(0, 3 * len(ranks), 3))
    return SendOrder(output="x", steps=steps, ranks=tuple(Rank(rank) for rank in ranks)), counts


@given(runs(), st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_any_mix_of_the_ranks_gives_one_order(run: tuple[SendOrder, list[int]], chance: random.Random) -> None:
    order, counts = run
    links: dict[int, deque[m.Emit | m.Sent]] = {}
    for step, rank, count in zip(order.steps, order.ranks, counts, strict=True):
        link = links.setdefault(rank, deque())
        link.extend(emit("x", step, 10 * step + i, rank) for i in range(count))
        link.append(m.Sent(rank=rank, run=RunId("r"), step=step))
    line, found = OrderedOutputs([order]), list[m.Emit]()
    while links:
        rank = chance.choice(list(links))
        message = links[rank].popleft()
        found += line.emit(message) if isinstance(message, m.Emit) else line.sent(message.step, message.rank)
        if not links[rank]:
            del links[rank]
    wanted = [(step, 10 * step + i) for step, count in zip(order.steps, counts, strict=True) for i in range(count)]
    assert [(one.step, one.value.value) for one in found if isinstance(one.value, m.Small)] == wanted


def test_what_the_step_sends_whose_turn_it_is_leaves_at_once() -> None:
    line = OrderedOutputs([SendOrder(output="x", steps=(1, 4), ranks=(Rank(0), Rank(1)))])
    assert line.emit(emit("x", 4, 0)) == []
    assert line.emit(emit("x", 1, 1)) == [emit("x", 1, 1)]
    assert line.emit(emit("y", 4, 2)) == [emit("y", 4, 2)], "of another output"
    assert line.emit(emit("x", 7, 3)) == [emit("x", 7, 3)], "of another list of steps"
    assert line.sent(1, Rank(0)) == [emit("x", 4, 0)]
    assert line.emit(emit("x", 4, 4)) == [emit("x", 4, 4)]
    assert line.sent(4, Rank(1)) == []


def test_branches_on_several_ranks_take_turns_by_iteration() -> None:
    """Rank 1 takes one value an iteration, rank 2 several in a loop of its own; each reports where it has none."""
    turns = SendOrder(output="x", steps=(0, 0, 3), ranks=(Rank(1), Rank(2), Rank(0)))
    one = [branch("x", (0,), 1), branch("x", (1,), 1, 10), branch("x", (2,), 1)]
    two = [branch("x", (0, 0), 2, 0), branch("x", (0, 1), 2, 1), branch("x", (1,), 2), branch("x", (2, 0), 2, 20)]
    for first in range(2**7):
        line, found, links = OrderedOutputs([turns]), list[m.Emit](), [deque(one), deque(two)]
        for turn in range(7):
            link = links[first >> turn & 1] or links[1 - (first >> turn & 1)]
            found += line.emit(link.popleft())
        assert line.emit(emit("x", 3, 30)) == []
        found += line.sent(0, Rank(1))
        assert [one.iteration for one in found] == [(0, 0), (0, 1), (1,), (2, 0)]
        assert line.sent(0, Rank(2)) == [emit("x", 3, 30)]


def branch(name: str, iteration: tuple[int, ...], rank: int, value: int | None = None) -> m.Emit:
    held = m.Absent() if value is None else m.Small(value=value)
    return m.Emit(rank=Rank(rank), run=RunId("r"), name=name, value=held, iteration=iteration, modality="", step=0)
