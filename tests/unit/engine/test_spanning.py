"""Loops with parts on several ranks: the same numbers as on one, whatever is skipped, taken out or late."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from tests.support.loop_calls import LoopInput, WrittenSend, WrittenUse, rewritten, written
from tests.support.spanning import Node, connected, quiet
from tests.unit.engine.plans import engine_of, plan_of
from tests.unit.engine.test_forms import FEEDS, TIMES, Branch, Combine, context, filled, latents, naive
from walkgraph.abi.calls import CallFailed, StateKey
from walkgraph.engine.engine import Engine
from walkgraph.engine.kv.swap import Swapped
from walkgraph.engine.loops.loop_peers import (
    LEADING,
    LaunchOrder,
    LoopPeers,
    PeerMemory,
    key_of,
)
from walkgraph.engine.loops.spec import Channel, LoopCall, LoopOutput
from walkgraph.ids import Rank, RunId
from walkgraph.layers.channels import StopFlags
from walkgraph.models.synthetic import operators as synthetic
from walkgraph.wire.spanning import BetweenParts, InboxesAt, LaunchedTo, LeftLoop, RunRests

Mask = tuple[bool, ...] | None
STATES = ("main", "cfg_text", "cfg_img")
NAMES = ("llm", "text", "img")
OUTPUTS = (LoopOutput("norm", 1, "norm", "each"), LoopOutput("x", 1, "latents", "last"))


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Node]]:
    monkeypatch.setattr(synthetic, "BranchForTest", Branch, raising=False)
    monkeypatch.setattr(synthetic, "CombineForTest", Combine, raising=False)
    found = [Node(rank, engine()) for rank in range(3)]
    connected(*found)
    yield found
    for one in found:
        one.end()


def engine() -> Engine:
    named: dict[str, tuple[str, dict[str, str]]] = {
        name: ("walkgraph.models.synthetic.operators:BranchForTest", {"kv": state})
        for name, state in zip(NAMES, STATES, strict=True)
    }
    return engine_of(
        plan_of({**named, "combine": ("walkgraph.models.synthetic.operators:CombineForTest", {})}, kv_bytes=1 << 18)
    )


def branch(run: str, which: int, port: LoopInput, times: Sequence[float], active: Mask) -> WrittenUse:
    states = {"kv": StateKey(run, STATES[which])}
    return WrittenUse(NAMES[which], (port,), {"together": False}, {"time": tuple(times)}, states, which, active)


def parts(run: str, x: torch.Tensor, times: Sequence[float], masks: Sequence[Mask]) -> list[LoopCall]:
    """`masks`: of the branches on ranks 1 and 2."""
    there = (1, 2)
    ports = [
        LoopInput("latents", "value", x, carried=(1, "latents")),
        LoopInput("velocity", "use", use=0, output=FEEDS[0]),
    ]
    for rank in there:
        ports.append(LoopInput(FEEDS[rank], "channel", channel=Channel(10 + rank, Rank(rank)), comes=masks[rank - 1]))
    mine = LoopInput("latents", "value", x, carried=(1, "latents"))
    body = (branch(run, 0, mine, times, None), WrittenUse("combine", tuple(ports), {}, {}, {}, 0))
    sends = tuple(WrittenSend(1, "latents", Channel(rank, Rank(rank)), wanted(masks[rank - 1])) for rank in there)
    call = written(run, "w", 0, 0, "denoise", (), body, len(times), None, OUTPUTS, grain=1, sends=sends)
    found = [call]
    for rank in there:
        port = LoopInput("latents", "value", x, channel=Channel(rank, Rank(0)), comes=masks[rank - 1])
        use = branch(run, rank, port, times, masks[rank - 1])
        back = WrittenSend(0, "velocity", Channel(10 + rank, Rank(0)), masks[rank - 1])
        found.append(rewritten(call, use=rank, body=(use,), outputs=(), sends=(back,), leads=False))
    return found


def wanted(mask: Mask) -> Mask:
    return None if mask is None else tuple(a or b for a, b in zip(mask, (*mask[1:], False), strict=True))


def fill(nodes: Sequence[Node], runs: dict[str, int]) -> None:
    """The contexts of runs, before any of their loops. `runs`: run -> seed."""
    for run, seed in runs.items():
        for one, state, tokens in zip(nodes, STATES, contexts(seed), strict=True):
            one.do(lambda one=one, run=run, state=state, tokens=tokens: filled(one.engine, run, state, tokens))


def contexts(seed: int) -> list[torch.Tensor]:
    return [context(seed + i, 3 + 7 * i) for i in range(3)]


def given(nodes: Sequence[Node], run: str, seed: int, masks: Sequence[Mask], times: Sequence[float] = TIMES) -> Any:
    """Adds the parts of a run's loop; what it is to give."""
    for call in parts(run, latents(seed), times, masks):
        nodes[call.use].add(call)
    return naive(latents(seed), times, contexts(seed), [None, *masks])


def same(nodes: Sequence[Node], run: str, expected: torch.Tensor) -> None:
    done = nodes[0].done[run]
    assert done.error is None, done.error
    assert done.outputs is not None
    torch.testing.assert_close(done.outputs["x"], expected)


def test_parts_on_three_ranks_give_what_one_rank_gives_whatever_is_skipped(nodes: list[Node]) -> None:
    draw = random.Random(7)
    expected: dict[str, torch.Tensor] = {}
    fill(nodes, {f"r{number}": 5 * number for number in range(12)})
    for number in range(12):
        masks = [tuple(draw.random() < share for _ in TIMES) for share in (0.7, draw.choice([0.0, 0.5, 1.0]))]
        expected[f"r{number}"] = given(nodes, f"r{number}", 5 * number, masks)
    assert quiet(nodes)
    for run, value in expected.items():
        same(nodes, run, value)
    assert next(len(one.done) for one in nodes) == 12


def test_several_runs_ride_in_turn_and_others_follow_the_leaders_order(nodes: list[Node]) -> None:
    fill(nodes, {"a": 1, "b": 2, "c": 3})
    expected = {run: given(nodes, run, seed, [None, None]) for run, seed in (("a", 1), ("b", 2), ("c", 3))}
    assert quiet(nodes)
    for run, value in expected.items():
        same(nodes, run, value)
    assert {nodes[1].done[run].iterations for run in expected} == {len(TIMES)}
    order = [run for run, _ in nodes[0].log[::2]]
    assert any(one != other for one, other in itertools.pairwise(order))


@pytest.mark.parametrize("at", range(len(TIMES) + 1))
def test_a_run_that_is_cancelled_at_any_iteration_leaves_nothing_waiting(nodes: list[Node], at: int) -> None:
    """The others go on, and what it held is free again."""
    nodes[0].engine.loops.connect_peers(one := _Cut(nodes[0], "a", at))
    fill(nodes, {"a": 20, "b": 40})
    other = given(nodes, "b", 40, [None, None], TIMES * 3)
    given(nodes, "a", 20, [None, None])
    for node in nodes:
        node.do(lambda node=node: None)
    if at < len(TIMES):
        assert one.reached.wait(60)
    for node in (nodes[1], nodes[2], nodes[0]):
        node.peers_here.parts.halt("a")
        node.do(lambda node=node: node.engine.drop("a"))
    assert quiet(nodes)
    same(nodes, "b", other)
    for node in nodes:
        node.do(lambda node=node: node.engine.drop("b"))
        node.do(node.engine.states.audit)


class _Cut(LoopPeers):
    """Tells when a run's iteration is launched."""

    def __init__(self, node: Node, run: str, at: int) -> None:
        super().__init__(PeerMemory(node.arena[64:], 64), node)
        self.run, self.at, self.reached = run, at, threading.Event()

    def launching(self, call: LoopCall, upto: int) -> None:
        super().launching(call, upto)
        if call.run == self.run and upto > self.at:
            self.reached.set()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_suspended_run_leaves_its_rows_on_all_ranks_and_goes_on_from_there(
    nodes: list[Node], order: tuple[int, ...]
) -> None:
    """Followers serve what the leader had launched, whoever hears of it first."""
    nodes[0].engine.loops.connect_peers(cut := _Cut(nodes[0], "a", 2))
    fill(nodes, {"a": 20, "b": 40})
    times = TIMES * 20
    expected = {run: given(nodes, run, seed, [None, None], times) for run, seed in (("a", 20), ("b", 40))}
    assert cut.reached.wait(60)
    for at in order:
        nodes[at].do(lambda at=at: nodes[at].engine.swap.suspend("a"))
    assert quiet(nodes, parts=False)
    for node in nodes:
        assert [(e.run, e.out, e.error) for e in node.events if isinstance(e, Swapped)] == [("a", True, None)]
        assert "a" not in node.done, "it was not over when it was suspended"
    same(nodes, "b", expected["b"])
    for at in order:
        nodes[at].do(lambda at=at: nodes[at].engine.swap.resume("a"))
    assert quiet(nodes)
    same(nodes, "a", expected["a"])


def test_a_part_that_fails_ends_its_run_alone(nodes: list[Node]) -> None:
    fill(nodes, {"a": 20, "b": 40})
    expected = given(nodes, "b", 40, [None, None])
    for call in parts("a", latents(20), [*TIMES[:2], float("nan"), *TIMES[3:]], [None, None])[1:]:
        nodes[call.use].add(call)
    nodes[0].add(parts("a", latents(20), TIMES, [None, None])[0])
    for _ in range(400):
        if "a" in nodes[1].done and "a" in nodes[0].done:
            break
        for node in nodes:
            node.do(lambda: None)
            if "a" in nodes[1].done:
                node.peers_here.parts.halt("a")  # as the word of the conductor comes
    for node in nodes:
        error = node.done["a"].error
        assert error is not None
        assert error.code == "numeric_error"
        node.do(lambda node=node: node.engine.drop("a"))
    assert quiet(nodes)
    same(nodes, "b", expected)


def test_a_peer_that_is_gone_holds_nobody_up_and_its_inboxes_are_free(nodes: list[Node]) -> None:
    nodes[0].engine.loops.connect_peers(cut := _Cut(nodes[0], "a", 1))
    fill(nodes, {"a": 20, "b": 40})
    never = (False,) * (len(TIMES) * 12)
    expected = given(nodes, "b", 40, [None, never], TIMES * 12)
    given(nodes, "a", 20, [None, None], TIMES * 12)
    assert cut.reached.wait(60)
    nodes[2].deaf = True
    nodes[2].mail.put(None)
    for node in nodes[:2]:
        node.peers_here.parts.halt("a")  # as the word of the conductor comes, which has missed the peer
        node.do(lambda node=node: node.engine.drop("a"))
        node.do(lambda node=node: node.engine.loops.gone(Rank(2)))
    assert quiet(nodes[:2])
    same(nodes, "b", expected)


def test_more_runs_than_a_leader_seats_wait_for_their_turn(nodes: list[Node]) -> None:
    runs = {f"r{i}": i for i in range(LEADING + 3)}
    fill(nodes, runs)
    expected = {run: given(nodes, run, seed, [None, (False,) * len(TIMES)]) for run, seed in runs.items()}
    assert quiet(nodes)
    for run, value in expected.items():
        same(nodes, run, value)


def test_launches_follow_the_leaders_order() -> None:
    a, b = (key_of(parts(run, latents(1), TIMES, [None, None])[0]) for run in ("a", "b"))
    order = LaunchOrder()
    for key, upto in ((a, 1), (a, 3), (b, 1), (a, 4)):
        order.add(key, upto)
    assert (order.upto(a), order.upto(b)) == (3, 0)
    order.launched(a, 2)
    assert (order.upto(a), order.upto(b)) == (3, 0), "of three iterations one is left"
    order.launched(a, 3)
    assert (order.upto(a), order.upto(b)) == (0, 1)
    order.drop("b")
    assert order.upto(a) == 4
    assert order.waits(a)


def test_inboxes_are_given_anew_with_greater_numbers_once_the_writer_has_left() -> None:
    sent: list[tuple[Rank, Any]] = []

    class Mail:
        def address(self, rank: Rank) -> int:
            return 1 << 20

        def send(self, to: Rank, word: BetweenParts) -> None:
            sent.append((to, word))

    peers = LoopPeers(PeerMemory(torch.zeros(1 << 17, dtype=torch.uint8), 0), Mail())
    first, again = (parts(run, latents(1), TIMES, [None, (False,) * 5])[0] for run in ("a", "b"))
    assert peers.begin(first, [96, 96])
    inbox = sent[-1][1].inboxes[0]
    peers.end(first, None, halt=False)
    assert not peers.poll(), "the writer has said nothing"
    assert sent[-1] == (Rank(1), LeftLoop(**key_of(first)._asdict()))
    assert peers.receive(Rank(1), LeftLoop(**key_of(first)._asdict()))
    assert peers.begin(again, [96, 96])
    new = sent[-1][1].inboxes[0]
    assert (new.data, new.number) == (inbox.data, inbox.number)
    assert new.start > inbox.start + first.times
    assert peers.links(again, [95, 96]) is None
    assert peers.receive(Rank(1), InboxesAt(inboxes=(replace(inbox, channel=1, nbytes=95),), **key_of(again)._asdict()))
    assert not peers.receive(Rank(1), LaunchedTo(upto=1, **key_of(again)._asdict())), "its run is not held"
    assert peers.receive(Rank(1), RunRests(run=RunId("b")))
    assert peers.parts.linked(again)
    with pytest.raises(CallFailed, match="another size than that rank reads"):
        peers.links(again, [96, 96])
    assert (peers.links(again, [95, 96]) or [])[4:7] == [0, 0, 0], "nobody uses this one"
    peers.cancel("b", None)
    assert peers.gone(Rank(1)) is False, "it is not over here"
    assert peers.poll()
    assert not peers.parts.all
    assert not peers.busy
    peers.receive(Rank(1), InboxesAt(inboxes=(inbox,), **key_of(again)._asdict()))
    assert sent[-1] == (Rank(1), LeftLoop(**key_of(again)._asdict())), "late inboxes are given back at once"


def test_a_set_halt_is_cleared_when_it_is_taken_again() -> None:
    halts = StopFlags(1, torch.device("cpu"))
    word = halts.take()
    assert word is not None
    assert halts.take() is None
    halts.set(word)
    halts.give(word)
    assert halts.take() == word
    assert not halts.is_set(word)


@pytest.mark.parametrize("seed", range(4))
def test_a_held_run_leaves_its_rows_whoever_hears_of_it_first(nodes: list[Node], seed: int) -> None:
    """Again and again; all ranks hear of a hold, and of a release, in any order."""
    draw = random.Random(seed)
    nodes[0].engine.loops.connect_peers(cut := _Cut(nodes[0], "a", 2))
    fill(nodes, {"a": 20, "b": 40})
    times = TIMES * 20
    expected = {run: given(nodes, run, at, [None, None], times) for run, at in (("a", 20), ("b", 40))}
    assert cut.reached.wait(60)
    for _ in range(3):
        for at in draw.sample(range(3), 3):
            nodes[at].do(lambda at=at: nodes[at].engine.holds.hold_loops("a"))
        assert quiet(nodes, parts=False)
        assert not any(node.engine.loops.admission.occupies("a") for node in nodes)
        for at in draw.sample(range(3), 3):
            nodes[at].do(lambda at=at: nodes[at].engine.holds.release_loops("a"))
    assert quiet(nodes)
    for run, value in expected.items():
        same(nodes, run, value)


@pytest.mark.parametrize("suspended", [False, True])
def test_a_part_that_is_held_launches_what_its_leader_has_launched(nodes: list[Node], *, suspended: bool) -> None:
    """It hears that it goes on, and no more, in one breath; its leader has gone some iterations in between."""
    nodes[0].engine.loops.connect_peers(cut := _Cut(nodes[0], "a", 2))
    fill(nodes, {"a": 20, "b": 40})
    times = TIMES * 20
    expected = {run: given(nodes, run, at, [None, None], times) for run, at in (("a", 20), ("b", 40))}
    assert cut.reached.wait(60)
    for node in nodes:
        node.do(lambda node=node: node.engine.holds.hold_loops("a"))
    assert quiet(nodes, parts=False)
    cut.at, before = max(upto for run, upto in nodes[0].log if run == "a"), len(nodes[0].log)
    cut.reached.clear()
    nodes[0].do(lambda: nodes[0].engine.holds.release_loops("a"))
    for node in nodes[1:]:
        node.do(lambda node=node: (node.engine.holds.release_loops("a"), node.engine.holds.hold_loops("a")))
    assert cut.reached.wait(60)
    nodes[0].do(lambda: nodes[0].engine.holds.hold_loops("a"))
    if suspended:
        for node in nodes:
            node.do(lambda node=node: node.engine.swap.suspend("a"))
    assert quiet(nodes, parts=False)
    assert len(nodes[0].log) > before
    assert not any(node.engine.loops.admission.occupies("a") for node in nodes)
    same(nodes, "b", expected["b"])
    for node in nodes:
        if suspended:
            assert [event.out for event in node.events if isinstance(event, Swapped)] == [True]
            node.do(lambda node=node: node.engine.swap.resume("a"))
        node.do(lambda node=node: node.engine.holds.release_loops("a"))
    assert quiet(nodes)
    same(nodes, "a", expected["a"])
