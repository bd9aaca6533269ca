from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tests.unit.engine.plans import call, engine_of, ids, outputs, plan_of, serve
from walkgraph.abi.calls import Call, Outputs, StateKey
from walkgraph.abi.states import States
from walkgraph.engine.calls.inflight import InFlightBatches
from walkgraph.engine.calls.schedule import Mix
from walkgraph.engine.device.clocks import Stopwatch
from walkgraph.engine.device.outside import Firsthand
from walkgraph.engine.engine import PUT_OFF, Done, Engine
from walkgraph.engine.kv.allocator import OutOfPages
from walkgraph.errors import InvalidInput, NotFound, Refused
from walkgraph.ids import Rank
from walkgraph.models.synthetic import operators as synthetic

ATTEND = "walkgraph.models.synthetic.operators:Attend"
PAGE_BYTES = 16 * 2 * 8


def attend_engine(pages: int = 64, views: Sequence[str] = ("main",)) -> Engine:
    nodes = {f"node_{state}": (ATTEND, {"kv": state}) for state in views}
    return engine_of(plan_of(nodes, kv_bytes=PAGE_BYTES * (pages + 1) * len(views)))


def feed(tokens: Sequence[int], port: str = "ids", *, run: str = "r", state: str = "main", at: int = 0) -> Call:
    return call(f"node_{state}", {port: ids(*tokens)}, run=run, states={"kv": state}, iteration=(at,), stop_token=-1)


class Naive:
    """The synthetic attention without pages."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.position = 0

    def feed(self, tokens: Sequence[int], port: str = "ids") -> int:
        total = sum(self.kept) + sum(tokens)
        if port != "scratch":
            self.kept += tokens
            self.position += 1 if port == "block" else len(tokens)
        return (total + self.position) % synthetic.MODULUS


def test_calls_of_runs_views_and_iterations_share_one_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = attend_engine(views=("main", "other"))
    batches: list[list[tuple[str, str, tuple[int, ...]]]] = []
    forward = synthetic.Attend.forward

    def counting(self: synthetic.Attend, calls: Sequence[Call], states: States) -> list[Outputs]:
        batches.append([(c.run, c.node, c.iteration) for c in calls])
        return forward(self, calls, states)

    monkeypatch.setattr(synthetic.Attend, "forward", counting)
    mixed = [
        feed([1, 2, 3], run="a", at=0),
        feed([4], "token", run="b", at=7),
        feed([5, 6], "block", run="b", state="other", at=7),
        feed([7, 8], "scratch", run="c", at=31),
    ]
    done = serve(engine, *mixed)
    assert batches == [[(c.run, c.node, c.iteration) for c in mixed]]
    assert [int(d.outputs["token"]) for d in done if d.outputs] == [9, 5, 12, 15]
    assert {d.batch for d in done} == {4}


@pytest.mark.parametrize("port", ["ids", "token", "block", "scratch"])
def test_a_run_is_served_as_if_it_were_alone(port: str) -> None:
    engine, generator = attend_engine(pages=200), torch.Generator().manual_seed(3)
    twins = {f"run-{i}": Naive() for i in range(5)}
    for step in range(8):
        calls, wanted = [], []
        for index, (run, twin) in enumerate(twins.items()):
            kind = port if step % 2 else "ids"
            n = 1 if kind == "token" else 1 + 7 * index + step
            tokens = torch.randint(0, 50, (n,), generator=generator).tolist()
            calls.append(feed(tokens, kind, run=run, at=step))
            wanted.append(twin.feed(tokens, kind))
        assert [int(o["token"]) for o in outputs(engine, *calls)] == wanted
    engine.states.audit()
    for run in twins:
        engine.drop(run)
    free, total = engine.pools.pages()
    assert free == total


def test_pools_have_what_the_plan_gives_the_states_that_share_them() -> None:
    nodes = {f"node_{state}": (ATTEND, {"kv": state}) for state in ("main", "other")}
    nodes["llm"] = ("walkgraph.models.bagel.operators:Backbone", {"kv": "large"})
    lines = {"kv main": 30 * PAGE_BYTES, "weights w": 12345, "kv other": 11 * PAGE_BYTES, "kv large": 1 << 20}
    kv_bytes = sum(size for name, size in lines.items() if name.startswith("kv "))
    engine = engine_of(plan_of(nodes, source="random:bagel-tiny:0", kv_bytes=kv_bytes, budget=lines))
    # 2 layers of 2 heads of 8 float32 numbers make pages of 4 KiB; one page of each pool holds zeros.
    assert [pool[:2] for pool in engine.pools.infos()] == [(("main", "other"), 40), (("large",), 255)]


def test_a_state_that_no_task_uses_takes_next_to_nothing() -> None:
    nodes = {
        "node_main": (ATTEND, {"kv": "main"}),
        "llm": ("walkgraph.models.bagel.operators:Backbone", {"kv": "idle"}),
    }
    budget = {"kv main": 100 * PAGE_BYTES}
    engine = engine_of(plan_of(nodes, source="random:bagel-tiny:0", kv_bytes=100 * PAGE_BYTES, budget=budget))
    pools = {pool.states: pool.pages for pool in engine.pools.infos()}
    assert pools["main",] == 99
    assert pools["idle",] < 20


def test_one_failed_run_never_fails_its_batch() -> None:
    engine = engine_of(plan_of({"fail": ("walkgraph.models.synthetic.operators:Fail", {})}))
    done = serve(engine, *[call("fail", {"value": i}, run=f"r{i}", at=5, iteration=(i,)) for i in range(9)])
    assert [d.outputs for d in done if d.error is None] == [{"value": i} for i in range(9) if i != 5]
    [error] = [d.error for d in done if d.error]
    assert (error.code, error.node, error.iteration, error.rank) == ("node_error", "fail", (5,), 0)
    assert "`at`" in error.message


def test_a_foreign_exception_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    engine = engine_of(plan_of({"add": ("walkgraph.models.synthetic.operators:Add", {})}))
    good, bad = serve(engine, call("add", {"a": 1}), call("add", {"a": "not a number"}, run="bad"))
    assert good.outputs == {"sum": 1}
    assert bad.error is not None
    assert bad.error.code == "node_error"
    assert "invalid literal" not in bad.error.message
    assert "invalid literal" in caplog.text
    assert "bad" in caplog.text


def test_not_a_number_ends_its_run_naming_node_port_and_iteration() -> None:
    engine = engine_of(plan_of({"nan": ("walkgraph.models.synthetic.operators:Nan", {})}))
    good, bad = serve(
        engine, call("nan", {"value": 1}, at=2), call("nan", {"value": 2}, run="bad", at=2, iteration=(4, 1))
    )
    assert good.outputs is not None
    assert good.outputs["items"].tolist() == [1.0]
    assert good.batch == 2
    assert bad.error is not None
    assert (bad.error.code, bad.error.node, bad.error.port) == ("numeric_error", "nan", "items")
    assert bad.error.iteration == (4, 1)
    assert "[4, 1]" in bad.error.message


@pytest.mark.safety("R12")
def test_memory_that_is_not_there_fails_one_run() -> None:
    engine = engine_of(plan_of({"allocate": ("walkgraph.models.synthetic.operators:Allocate", {})}))
    good, bad = serve(engine, call("allocate", mebibytes=1), call("allocate", run="bad", mebibytes=2**31 - 1))
    assert good.error is None
    assert bad.error is not None
    assert bad.error.code == "out_of_memory"
    assert bad.error.retryable
    assert serve(engine, call("allocate", run="bad", mebibytes=1))[0].error is None


@pytest.mark.safety("R12")
def test_a_cache_that_is_full_fails_one_run_and_frees_its_share() -> None:
    engine = attend_engine(pages=4)
    first, second = serve(engine, feed([1] * 40, run="a"), feed([1] * 33, run="b"))
    assert first.error is None
    assert second.error is not None
    assert (second.error.code, second.error.retryable) == ("out_of_memory", True)
    assert engine.pools.pages() == (1, 4)
    engine.drop("a")
    assert outputs(engine, feed([1] * 33, run="b"))[0]["token"].tolist() == [66]
    engine.states.audit()


def test_a_forward_that_raises_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = attend_engine()
    outputs(engine, feed([1, 2], run="a"))
    engine.transfers.fork(StateKey("a", "main"), StateKey("a", "copy"))
    before = engine.pools.pages()
    forward = synthetic.Attend.forward

    def raising(self: synthetic.Attend, calls: Sequence[Call], states: States) -> list[Outputs]:
        forward(self, calls, states)
        raise RuntimeError("after the commit")

    monkeypatch.setattr(synthetic.Attend, "forward", raising)
    failed = serve(engine, feed([3] * 20, run="a"), feed([4], run="new"))
    assert [d.error.code for d in failed if d.error] == ["node_error", "node_error"]
    assert engine.pools.pages() == before
    monkeypatch.undo()
    engine.states.audit()
    # 1 + 2 + 3, and three positions
    assert outputs(engine, feed([3], run="a"))[0]["token"].tolist() == [9]


def test_forks_share_until_one_side_writes() -> None:
    engine = attend_engine(views=("main", "other"))
    main, other = StateKey("r", "main"), StateKey("r", "other")
    outputs(engine, feed([1] * 20))
    free, _ = engine.pools.pages()
    engine.transfers.fork(main, other)
    assert engine.pools.pages()[0] == free
    one, two = outputs(engine, feed([2]), feed([5], state="other"))
    assert (int(one["token"]), int(two["token"])) == (22 + 21, 25 + 21)
    # Only the partial page was copied; its last holder wrote in place.
    assert engine.pools.pages()[0] == free - 1
    again, same = outputs(engine, feed([0]), feed([0], state="other"))
    assert (int(again["token"]), int(same["token"])) == (22 + 22, 25 + 22)
    engine.transfers.fork(StateKey("r", "nothing"), other)
    assert int(outputs(engine, feed([3], state="other"))[0]["token"]) == 3 + 1
    engine.states.audit()


def test_states_move_between_ranks() -> None:
    here, there = attend_engine(), attend_engine()
    outputs(here, feed([1] * 21), feed([2, 2], "block", run="b"))
    for run, wanted in (("r", 21 + 7 + 22), ("b", 4 + 7 + 2)):
        there.transfers.import_state(StateKey(run, "main"), here.transfers.export(StateKey(run, "main")))
        assert int(outputs(there, feed([7], run=run))[0]["token"]) == wanted
    assert here.transfers.export(StateKey("none", "main")) == {}
    there.transfers.import_state(StateKey("b", "main"), {})
    assert int(outputs(there, feed([7], run="b"))[0]["token"]) == 7 + 1
    there.states.audit()


def test_moves_of_states_are_stamped_so_that_no_call_has_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = attend_engine(), attend_engine()
    outputs(here, feed([1] * 21))
    stamped: list[torch.device] = []
    monkeypatch.setattr(Stopwatch, "stamp", lambda _, device: stamped.append(device))
    here.transfers.fork(StateKey("r", "main"), StateKey("r", "other"))
    value = here.transfers.export(StateKey("r", "main"))
    there.transfers.import_state(StateKey("r", "main"), value)
    assert stamped == [torch.device("cpu")] * 3


def test_an_import_without_room_leaves_the_state_as_it_was() -> None:
    here, there = attend_engine(), attend_engine(pages=2)
    outputs(here, feed([1] * 40))
    outputs(there, feed([2]))
    with pytest.raises(OutOfPages):
        there.transfers.import_state(StateKey("r", "main"), here.transfers.export(StateKey("r", "main")))
    assert int(outputs(there, feed([3]))[0]["token"]) == 5 + 2


def test_tensor_states_fork_move_and_drop() -> None:
    engine = engine_of(plan_of({"counter": ("walkgraph.models.synthetic.operators:Counter", {"count": "count"})}))

    def count(run: str = "r") -> tuple[int, bool]:
        [out] = outputs(engine, call("counter", run=run, states={"count": "count"}, stop_at=3))
        return int(engine.transfers.export(StateKey(run, "count"))["tensor"]), out["stop"]

    assert [count(), count()] == [(1, False), (2, False)]
    engine.transfers.fork(StateKey("r", "count"), StateKey("s", "count"))
    assert [count("s"), count("s"), count()] == [(3, True), (4, True), (3, True)]
    engine.states.drop([StateKey("s", "count")])
    assert count("s") == (1, False)
    engine.drop("r")
    assert count() == (1, False)


def test_cancel_takes_calls_out_and_keeps_states() -> None:
    engine = attend_engine()
    outputs(engine, feed([1], run="a"))
    engine.add(feed([2], run="a"))
    engine.add(feed([2], run="b"))
    assert [c.run for c in engine.cancel("a")] == ["a"]
    assert [d.call.run for d in engine.step()] == ["b"]
    assert engine.idle
    assert int(outputs(engine, feed([4], run="a"))[0]["token"]) == 7


def test_calls_on_one_state_keep_their_order() -> None:
    engine = attend_engine()
    done = serve(engine, feed([1]), feed([2]), feed([9], run="b"))
    assert [int(d.outputs["token"]) for d in done if d.outputs] == [2, 5, 10]
    assert [d.batch for d in done] == [2, 1, 2]


def test_what_an_operator_cannot_sort_fails_alone() -> None:
    engine = attend_engine()
    bad, good = serve(engine, call("node_main", {}, states={"kv": "main"}), feed([1], run="b"))
    assert bad.error is not None
    assert "`scratch`" in bad.error.message
    assert good.error is None


def test_queueing_is_measured_from_the_ready_time() -> None:
    now = [10.0]

    def clock() -> float:
        now[0] += 0.001
        return now[0]

    plan = plan_of({"add": ("walkgraph.models.synthetic.operators:Add", {})})
    engine = engine_of(plan, outside=Firsthand(clock))
    engine.add(call("add", {"a": 1}))
    now[0] = 12.5
    [done] = engine.step()
    assert done.queued == pytest.approx(2.5, abs=0.1)
    assert done.busy > 0


def test_loading_reports_progress_and_warms_up() -> None:
    plan = plan_of({"node": (ATTEND, {"kv": "main"})})
    engine, seen = Engine(plan, Rank(0)), []
    engine.load(lambda what, share: seen.append((what, share)))
    assert seen[-1] == ("warm-up", 1.0)
    assert ("warm-up of `node`", 0.0) in seen
    free, total = engine.pools.pages()
    assert free == total > 0


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        (plan_of({"node": (ATTEND, {"kv": "main"})}, kv_bytes=10), Refused),
        (plan_of({"node": (ATTEND, {"kv": "main"})}, kv_bytes=1 << 60), Refused),
        (plan_of({"node": ("walkgraph.models.nowhere.operators:Attend", {})}), NotFound),
        (plan_of({"node": ("walkgraph.models.synthetic.operators:Add", {})}, source="starter:nothing"), NotFound),
        (plan_of({"node": ("walkgraph.models.synthetic.operators:Add", {})}, source="checkpoint:.."), InvalidInput),
    ],
)
def test_what_cannot_be_loaded_is_said(plan: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        Engine(plan, Rank(0)).load()  # type: ignore[arg-type]
    with pytest.raises(Refused, match="rank 1"):
        Engine(plan, Rank(1))  # type: ignore[arg-type]


def chunked(rows: int, views: Sequence[str] = ("main",)) -> Engine:
    nodes = {f"node_{state}": (ATTEND, {"kv": state}) for state in views}
    return engine_of(plan_of(nodes, kv_bytes=PAGE_BYTES * 200), mix=Mix(2 * rows, rows, rows))


class QuickCalls:
    """Calls on the host's processor, and one batch for the device."""

    def __init__(self, quick: int, iteration: tuple[int, ...]) -> None:
        self._quick, self.batches, self.in_flight = quick, 1, InFlightBatches()
        self._call = call("n", iteration=iteration)
        self.order: list[str] = []

    def launch_quick(self) -> Sequence[Call]:
        if not self._quick:
            return ()
        self._quick -= 1
        self.order.append("quick")
        # It ends a step, as a call that is over does.
        self.in_flight.over.append(NOTHING)
        return (self._call,)

    def launch(self, loops: object, *, spent: float) -> float:
        if not self.batches:
            return 0.0
        self.batches -= 1
        self.order.append("batch")
        return 0.01

    def launch_beside(self) -> bool:
        return False

    def launch_threads(self) -> bool:
        return False

    @property
    def answered(self) -> Sequence[Done]:
        return ()

    def collect(self) -> list[str]:
        self.in_flight.over.clear()
        return ["done"]


class AnsweredCalls(QuickCalls):
    """Calls that need no forward, one a step, and one batch for the device."""

    def launch_quick(self) -> Sequence[Call]:
        return ()

    @property
    def answered(self) -> Sequence[Done]:
        return (Done(self._call, {}, None, 0.0, 0.0, 1, kept=True),) * (self._quick > 0)

    def collect(self) -> list[str]:
        if self._quick:
            self._quick -= 1
            self.order.append("answered")
        return ["done"]


NOTHING: Any = None


@pytest.mark.parametrize("quick", [0, 1, 3, 8, 20])
def test_a_batch_waits_for_what_quick_calls_lead_to_and_not_for_ever(quick: int) -> None:
    assert order_of(QuickCalls(quick, iteration=())) == ["quick"] * min(quick, PUT_OFF + 1) + ["batch"]


def test_a_batch_does_not_wait_for_quick_calls_of_loops() -> None:
    assert order_of(QuickCalls(3, iteration=(7,))) == ["quick", "batch"]


@pytest.mark.parametrize("answered", [0, 1, 3, 8, 20])
def test_a_batch_waits_for_what_answered_calls_lead_to_and_not_for_ever(answered: int) -> None:
    assert order_of(AnsweredCalls(answered, iteration=()))[: PUT_OFF + 1] == [
        *["answered"] * min(answered, PUT_OFF),
        "batch",
    ]


def test_a_batch_does_not_wait_for_answered_calls_of_loops() -> None:
    assert order_of(AnsweredCalls(3, iteration=(7,)))[0] == "batch"


def order_of(calls: Any) -> list[str]:
    engine = attend_engine()
    engine.calls = calls
    while calls.batches:
        engine.step()
    return calls.order


def test_a_long_prefill_is_served_in_parts_between_which_others_get_theirs() -> None:
    engine, tokens = chunked(10), list(range(35))
    engine.add(feed(tokens, run="long"))
    seen: list[list[tuple[str, int]]] = []
    for step in range(4):
        engine.add(feed([1], "token", run="short", at=step))
        seen.append([(d.call.run, d.batch) for d in engine.step()])
    assert seen == [[("short", 2)]] * 3 + [[("long", 2), ("short", 2)]]
    assert engine.idle
    whole = outputs(attend_engine(), feed(tokens))[0]["token"]
    assert outputs(engine, feed(tokens, run="again"))[0]["token"].equal(whole)
    assert engine.transfers.export(StateKey("again", "main"))["counters"].tolist() == [[35, 35]]


def test_a_block_is_never_split() -> None:
    engine = chunked(10)
    [block] = serve(engine, feed([1] * 35, "block"))
    assert block.outputs is not None
    assert int(block.outputs["token"]) == 35 + 1


def test_a_part_that_fails_ends_its_call_once_and_the_parts_after_it() -> None:
    engine = engine_of(plan_of({"node_main": (ATTEND, {"kv": "main"})}, kv_bytes=PAGE_BYTES * 3), mix=Mix(alone=10))
    long = feed([1] * 100, run="long")
    done = serve(engine, long)
    assert [(d.call is long, d.error.code if d.error else None) for d in done] == [(True, "out_of_memory")]
    assert engine.idle
    engine.drop("long")
    assert engine.pools.pages() == (2, 2)


def test_cancelling_a_split_call_gives_the_call_back() -> None:
    engine, long = chunked(10), feed([1] * 35, run="long")
    engine.add(long)
    assert engine.step() == []
    assert engine.cancel("long") == [long]
    assert engine.idle
    assert engine.step() == []


def test_a_run_is_held_to_the_capacity_it_was_admitted_with() -> None:
    plan = plan_of({"node_main": (ATTEND, {"kv": "main"})}, capacity="2 * room", kv_bytes=PAGE_BYTES * 20)
    engine = engine_of(plan, mix=Mix(alone=10))
    for run in "ab":
        engine.limits.admit(run, {"room": 8})
    engine.limits.admit("other task", {})
    outputs(engine, feed([1] * 16, run="a"))
    done = serve(engine, feed([1], run="a"), feed([1] * 17, run="b"), feed([1] * 17, run="other task"))
    assert [d.error and d.error.code for d in done] == ["invalid_input", "invalid_input", None]
    assert done[0].error is not None
    assert "at most 16 tokens" in done[0].error.message
    assert serve(engine, feed([1] * 40, "scratch", run="a"))[0].error is None
    engine.drop("a")
    assert serve(engine, feed([1] * 20, run="a"))[0].error is None
    engine.states.audit()
