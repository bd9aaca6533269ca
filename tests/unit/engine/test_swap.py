"""Runs that are suspended and come back: nothing is lost, nothing twice, and their room is free meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine import test_resident as resident
from tests.unit.engine.plans import call, engine_of, ids, plan_of
from tests.unit.engine.test_resident import Walk, loop, naive
from walkgraph.abi.calls import StateKey
from walkgraph.abi.states import CacheShape
from walkgraph.engine.engine import Done, Engine
from walkgraph.engine.kv.allocator import OutOfPages
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.pool import KVPools, Pool
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.kv.swap import SuspendedRuns, Swap, Swapped
from walkgraph.engine.kv.transfer import StateTransfer
from walkgraph.engine.loops.loop_runs import LoopDone
from walkgraph.engine.loops.spec import Items
from walkgraph.models.synthetic import operators as synthetic

SHAPE = CacheShape(layers=2, kv_heads=1, head_dim=2, dtype=torch.float32)


@pytest.fixture(autouse=True, scope="module")
def known() -> None:
    synthetic.WalkForTest = Walk  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def shared() -> Engine:
    return resident.engine()


class Client:
    """Outputs of loops, checked as they arrive."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.each: dict[str, list[float]] = {}
        self.done: dict[str, LoopDone] = {}
        self.swapped: list[Swapped] = []

    def step(self) -> None:
        for event in self.engine.step():
            match event:
                case Items():
                    had = self.each.setdefault(event.call.run, [])
                    assert event.first == len(had)
                    had += [float(value) for value in event.values["each"]]
                case LoopDone():
                    assert event.call.run not in self.done
                    self.done[event.call.run] = event
                case Swapped():
                    self.swapped.append(event)
                case _:
                    raise AssertionError(event)

    def run(self) -> None:
        while not self.engine.idle:
            self.step()


# ── loops ──


@settings(max_examples=60)
@given(
    times=st.integers(1, 40),
    at=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    bound=st.sampled_from([10**18, 1000]),
    grain=st.sampled_from([1, 7]),
)
def test_a_loop_suspended_at_any_iteration_gives_what_an_undisturbed_one_gives(
    shared: Engine, times: int, at: list[int], bound: int, grain: int
) -> None:
    shared.drop("a")  # of an example that failed
    client, free = Client(shared), shared.pools.pages()
    for run in ("a", "b"):
        shared.add_loop(loop(run, 1.0, times, bound=bound, grain=grain))
    for steps in at:
        for _ in range(steps):
            client.step()
        shared.swap.suspend("a")
        client.run()
        assert client.swapped[-1] == Swapped("a", out=True)
        assert len(client.each.get("b", ())) == len(naive(1.0, times, bound=bound))
        assert shared.transfers.export(StateKey("a", "main")) == {}
        shared.drop("b")
        assert shared.pools.pages() == free, "a suspended run holds no page"
        shared.swap.resume("a")
    client.run()
    wanted = naive(1.0, times, bound=bound)
    assert client.each.get("a", []) == wanted
    assert client.done["a"].iterations == len(wanted)
    outputs = client.done["a"].outputs
    assert outputs is not None
    assert outputs["last"].tolist() == wanted[-1:]
    assert outputs["all"][:, 0].tolist() == wanted
    kept = shared.transfers.export(StateKey("a", "main"))
    assert kept["counters"].tolist() == [[len(wanted)] * 2]
    assert kept["kv.0"][0, 0, :, 0, 0].tolist() == wanted
    assert shared.transfers.export(StateKey("a", "count"))["tensor"].tolist() == [float(len(wanted))]
    shared.drop("a")
    shared.states.audit()
    assert shared.pools.pages() == free


def test_a_cancelled_run_leaves_nothing_wherever_it_is(shared: Engine) -> None:
    def away(client: Client) -> None:
        shared.swap.suspend("a")
        client.run()

    free = shared.pools.pages()
    stages: list[Callable[[Client], None]] = [
        lambda client: None,
        lambda client: shared.swap.suspend("a"),
        away,
        lambda client: (away(client), shared.swap.resume("a"))[1],
    ]
    for stage in stages:
        client = Client(shared)
        shared.add_loop(loop("a", 1.0, 30))
        client.step()
        stage(client)
        shared.drop("a")
        assert shared.idle
        assert shared.pools.pages() == free
        shared.states.audit()


def test_credit_that_comes_for_a_suspended_loop_is_kept(shared: Engine) -> None:
    client = Client(shared)
    shared.add_loop(loop("a", 1.0, 20, allowed=5))
    client.run()
    shared.swap.suspend("a")
    client.run()
    shared.loops.allow("a", 0, 0, (), 20)
    assert shared.idle
    shared.swap.resume("a")
    client.run()
    assert client.each["a"] == naive(1.0, 20)
    shared.drop("a")


def test_a_loop_of_higher_priority_takes_the_row_of_the_latest_lower_one() -> None:
    here = resident.engine()
    device: Any = here.loops.groups._device
    device._slots = 2
    client, ends = Client(here), list[str]()
    calls = [loop("old", 1.0, 12, ready_at=1.0), loop("new", 1.0, 12, ready_at=2.0)]
    calls.append(loop("high", 1.0, 12, ready_at=2.5, priority=1))
    calls.append(loop("late", 1.0, 12, ready_at=9.0, priority=1))
    for one in calls:
        here.add_loop(one)
        client.step()
    while not here.idle:
        had = set(client.done)
        client.step()
        ends += sorted(set(client.done) - had)
    assert ends == ["old", "high", "new", "late"], "a lead of one second moves `high`, not `late`, before `new`"
    assert all(client.each[run] == naive(1.0, 12) for run in client.each)


# ── calls ──


def test_calls_of_a_suspended_run_wait_and_others_do_not() -> None:
    attend = "walkgraph.models.synthetic.operators:Attend"
    here = engine_of(plan_of({"main": (attend, {"kv": "main"})}, kv_bytes=1 << 14))

    def feed(run: str, *tokens: int) -> None:
        here.add(call("main", {"ids": ids(*tokens)}, run=run, states={"kv": "main"}, stop_token=-1))

    def serve() -> list[str]:
        done: list[str] = []
        while not here.idle:
            done += [name(event) for event in here.step()]
        return done

    feed("a", 1, 2, 3)
    assert serve() == ["a"]
    kept = here.transfers.export(StateKey("a", "main"))
    feed("a", 4)
    here.swap.suspend("a")
    feed("a", 5)
    feed("b", 6)
    assert serve() == ["b", "a out"]
    here.swap.resume("a")
    assert serve() == ["a in", "a", "a"]
    after = here.transfers.export(StateKey("a", "main"))
    assert after["counters"].tolist() == [[5, 5]]
    assert torch.equal(after["kv.0"][:, :, :3], kept["kv.0"])


def name(event: object) -> str:
    if isinstance(event, Done):
        return event.call.run
    assert isinstance(event, Swapped)
    return f"{event.run} {'out' if event.out else 'in'}"


# ── pages ──


def table(pages: int) -> tuple[StateTable, Pool]:
    pool = Pool(SHAPE, pages, torch.device("cpu"))
    return StateTable(KVPools({"main": pool, "copy": pool}), AttentionBackends()), pool


def swap_of(states: StateTable) -> Swap:
    return Swap(states, SuspendedRuns(), lambda run: None, lambda run: True, lambda run: None, lambda run: ())


def filled(states: StateTable, key: StateKey, tokens: int) -> None:
    value = torch.randn(2, 2, tokens, 1, 2)
    StateTransfer(states).import_state(key, {"counters": torch.tensor([[tokens, tokens + 3]]), "kv.0": value})


def test_shared_pages_are_copied_once_and_shared_again() -> None:
    states, pool = table(12)
    main, copy, other = StateKey("a", "main"), StateKey("a", "copy"), StateKey("b", "main")
    filled(states, main, 40)
    states.fork(main, copy, 3)
    filled(states, other, 33)
    before = {key: StateTransfer(states).export(key) for key in (main, copy, other)}
    swap = swap_of(states)
    swap.suspend("a")
    assert swap.advance() == [Swapped("a", out=True)]
    assert pool.pages.free == 12 - 3
    filled(states, StateKey("c", "main"), 16 * 6)
    states.drop_run("c")
    swap.resume("a")
    assert swap.advance() == [Swapped("a", out=False)]
    assert pool.pages.free == 12 - 3 - 3, "three pages, however many sequences share them"
    for key, wanted in before.items():
        found = StateTransfer(states).export(key)
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    states.audit()
    states.fork(main, StateKey("a", "copy"))
    states.drop_run("a")
    states.drop_run("b")
    assert pool.pages.free == 12


def test_a_run_that_finds_no_pages_is_told_and_can_come_back_later() -> None:
    states, _ = table(4)
    filled(states, StateKey("a", "main"), 40)
    before = StateTransfer(states).export(StateKey("a", "main"))
    swap = swap_of(states)
    swap.suspend("a")
    swap.advance()
    filled(states, StateKey("b", "main"), 40)
    swap.resume("a")
    (told,) = swap.advance()
    assert told.error is not None
    assert told.error.code == OutOfPages.code
    states.drop_run("b")
    swap.resume("a")
    assert swap.advance() == [Swapped("a", out=False)]
    assert torch.equal(StateTransfer(states).export(StateKey("a", "main"))["kv.0"], before["kv.0"])
    states.audit()


def test_states_of_a_session_stay() -> None:
    states, pool = table(4)
    filled(states, StateKey("session:s", "main"), 20)
    swap = swap_of(states)
    swap.suspend("a")
    swap.advance()
    assert pool.pages.free == 2


@pytest.mark.parametrize("back", [False, True])
def test_a_run_that_can_not_be_moved_is_told_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, back: bool) -> None:
    """It fails, and others go on."""
    states, pool = table(8)
    filled(states, StateKey("a", "main"), 40)
    filled(states, StateKey("b", "main"), 20)
    swap = swap_of(states)

    def refuse(*given: object, **more: object) -> None:
        raise torch.OutOfMemoryError("no room")

    swap.suspend("a")
    if back:
        assert swap.advance() == [Swapped("a", out=True)]
        swap.resume("a")
    with monkeypatch.context() as patched:
        patched.setattr("walkgraph.engine.kv.swap._by_page", refuse)
        (told,) = swap.advance()
    assert told.error is not None
    assert told.error.code == "out_of_memory"
    assert swap.idle
    assert swap.advance() == []
    swap.cancel("a")
    states.drop_run("a")
    states.audit()
    assert pool.pages.free == 8 - 2
    swap.suspend("b")
    assert swap.advance() == [Swapped("b", out=True)]
