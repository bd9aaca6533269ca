"""Calls whose outputs are kept by content: what is found, what never is, and how much is kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.engine.plans import call, engine_of, ids, plan_of, serve
from walkgraph.abi.calls import ChunkInfo, Link
from walkgraph.engine.calls.memo import KeptCalls, Memo, Sharing
from walkgraph.engine.engine import Engine, Forwarded
from walkgraph.engine.load import KeptOperators
from walkgraph.engine.loops.body import Loaded
from walkgraph.graph.conversation import Conversation, Turn, TurnPart

NUMBERS = "walkgraph.models.numbers.operators"
SYNTHETIC = "walkgraph.models.synthetic.operators"
TENSOR = {"operation": "add", "type": "tensor", "number": 0.0}
SUM = {"add": (f"{NUMBERS}:Arithmetic", {})}
MIB = 1 << 20


def adding(memo: Memo | None, kept: KeptOperators | None = None, **nodes: tuple[str, dict[str, str]]) -> Engine:
    """An engine with a node `add`, and others."""
    made = nodes | SUM
    return engine_of(plan_of(made, params={"add": dict(TENSOR)}), memo=memo, kept=kept)


def add(a: Any, b: Any, run: str = "r", **params: Any) -> Any:
    return call("add", {"a": a, "b": b}, run=run, **(TENSOR | params))


def kept(engine: Engine, *calls: Any) -> list[bool]:
    done = serve(engine, *calls)
    assert not any(one.error for one in done)
    return [one.kept for one in done]


# ── what is found ───────────────────────────────────────────────────────────────────────────────


def test_a_call_with_the_same_contents_is_not_made_again() -> None:
    engine = adding(Memo(MIB))
    [first] = serve(engine, add(ids(1, 2), ids(3, 4)))
    [again] = serve(engine, add(ids(1, 2), ids(3, 4), run="other run"))
    assert (first.kept, again.kept) == (False, True)
    assert first.outputs is not None
    assert again.outputs is not None
    assert again.outputs["result"].tolist() == first.outputs["result"].tolist() == [4, 6]
    assert (again.busy, again.queued) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("a", "b", "params"),
    [
        (ids(1, 3), ids(3, 4), {}),
        (ids(1, 2)[None], ids(3, 4), {}),
        (ids(1, 2).double(), ids(3, 4), {}),
        (ids(3, 4), ids(1, 2), {}),
        (ids(1, 2), ids(3, 4), {"operation": "subtract"}),
    ],
)
def test_other_contents_or_parameters_are_computed(a: Any, b: Any, params: dict[str, Any]) -> None:
    engine, alone = adding(Memo(MIB)), adding(None)
    serve(engine, add(ids(1, 2), ids(3, 4)))
    [found], [wanted] = serve(engine, add(a, b, **params)), serve(alone, add(a, b, **params))
    assert not found.kept
    assert found.outputs is not None
    assert wanted.outputs is not None
    assert torch.equal(found.outputs["result"], wanted.outputs["result"])


def test_the_seed_of_a_run_changes_nothing_for_a_deterministic_node() -> None:
    engine = adding(Memo(MIB))
    assert kept(engine, add(ids(1), ids(2), seed=1)) == [False]
    assert kept(engine, add(ids(1), ids(2), seed=2)) == [True]


def test_without_a_memo_every_call_is_made() -> None:
    engine = adding(None)
    assert [kept(engine, add(ids(1), ids(2))) for _ in range(2)] == [[False], [False]]


def test_a_reader_that_writes_into_its_value_changes_nothing_that_is_kept() -> None:
    engine = adding(Memo(MIB))
    for _ in range(3):
        [done] = serve(engine, add(ids(1, 2), ids(3, 4)))
        assert done.outputs is not None
        assert done.outputs["result"].tolist() == [4, 6]
        with torch.inference_mode():
            done.outputs["result"].zero_()


def test_texts_lists_and_conversations_are_contents_too() -> None:
    engine = engine_of(plan_of({"n": ("walkgraph.models.control.operators:Select", {})}), memo=Memo(MIB))

    def told(value: Any) -> bool:
        [done] = serve(engine, call("n", {"flag": True, "if_true": value, "if_false": 0}))
        assert done.outputs is not None
        assert done.outputs["value"] == value
        return done.kept

    values: list[Any] = [
        "text",
        b"text",
        1,
        1.0,
        True,
        ["a", "b"],
        [["a"], "b"],
        ["ab"],
        {"a": "b"},
        Conversation((Turn("user", (TurnPart("text", "a"),)),)),
        Conversation((Turn("system", (TurnPart("text", "a"),)),)),
        Conversation((Turn("user", (TurnPart("text", "b"),)),), ("{}",)),
    ]
    assert [told(value) for value in values] == [False] * len(values)
    assert [told(value) for value in values] == [True] * len(values)


def test_what_is_found_has_the_digest_that_it_had_when_it_was_computed() -> None:
    """Pages of a cache are found by the digests of what was appended, whether that was kept or computed."""
    engine = adding(Memo(MIB))
    digests: list[bytes | None] = []
    for numbers in ((1, 2), (1, 2), (1, 3)):
        [done] = serve(engine, add(ids(*numbers), ids(3, 4)))
        assert done.outputs is not None
        reader = call("add", {"a": done.outputs["result"]}, states={"kv": "cache"})
        engine._parts.calls._runner.digests.watch([reader])
        digests.append(reader.digest("a"))
    assert digests[0] == digests[1] != digests[2]
    assert None not in digests


# ── of a device ─────────────────────────────────────────────────────────────────────────────────


def of_device(device: str, sharing: Mapping[str, Sharing], *, every: bool = False) -> tuple[KeptCalls, Loaded]:
    host = adding(None)._parts.nodes["add"]
    return KeptCalls(Memo(MIB, every=every), lambda run: "me", sharing), host._replace(device=torch.device(device))


def test_a_node_on_a_device_is_kept_if_it_says_so_and_reads_host_memory() -> None:
    calls, loaded = of_device("cuda", {"add": "own"})
    first = add(ids(1, 2), ids(3, 4))
    assert calls.find(loaded, first) is None
    first.copies = {"result": ids(4, 6)}
    calls.note(first, {"result": torch.empty(2, device="meta")})
    found = calls.find(loaded, add(ids(1, 2), ids(3, 4)))
    assert found is not None
    assert found["result"].tolist() == [4, 6]
    there = add(torch.empty(2, device="meta"), ids(3, 4))
    assert calls.find(loaded, there) is None
    assert there.content is None


def test_values_of_a_device_without_copies_are_not_kept() -> None:
    calls, loaded = of_device("cuda", {"add": "own"})
    first = add(ids(1, 2), ids(3, 4))
    assert calls.find(loaded, first) is None
    calls.note(first, {"result": torch.empty(2, device="meta")})
    assert calls.find(loaded, add(ids(1, 2), ids(3, 4))) is None


@pytest.mark.parametrize(("device", "kept_there"), [("cpu", True), ("cuda", False)])
def test_a_memo_for_every_node_is_for_those_on_the_host(device: str, kept_there: bool) -> None:
    calls, loaded = of_device(device, {}, every=True)
    one = add(ids(1), ids(2))
    calls.find(loaded, one)
    assert (one.content is not None) == kept_there


# ── what never is ───────────────────────────────────────────────────────────────────────────────


def test_random_nodes_and_nodes_with_states_are_always_called() -> None:
    nodes = {
        "dice": (f"{NUMBERS}:Random", {}),
        "drawn": (f"{SYNTHETIC}:RandomInteger", {"rng": "rng"}),
        "count": (f"{SYNTHETIC}:Counter", {"count": "count"}),
    }
    engine = adding(Memo(MIB), **nodes)
    calls = (
        lambda: call("dice", low=0.0, high=1.0, distribution="uniform"),
        lambda: call("drawn", states={"rng": "rng"}, below=10),
        lambda: call("count", {"token": 1}, states={"count": "count"}, stop_at=99),
    )
    for make in calls:
        assert [kept(engine, make()) for _ in range(3)] == [[False]] * 3


def test_what_is_read_from_a_stream_is_computed() -> None:
    engine = adding(Memo(MIB))
    for _ in range(2):
        one = add(ids(1), ids(2))
        one.chunks["a"] = ChunkInfo(0, first=True, last=False, valid=1)
        assert kept(engine, one) == [False]


def test_an_error_is_not_kept() -> None:
    engine = adding(Memo(MIB))
    for _ in range(2):
        [done] = serve(engine, add(ids(1, 2), ids(3, 4, 5)))
        assert done.error is not None
        assert not done.kept


def test_runs_of_other_owners_find_nothing() -> None:
    engine = adding(Memo(MIB))
    for run, salt in (("one", "key 1"), ("two", "key 2"), ("again", "key 1")):
        engine.limits.admit(run, {}, salt)
    made = [kept(engine, add(ids(1), ids(2), run=run)) for run in ("one", "two", "again")]
    assert made == [[False], [False], [True]]


@pytest.mark.parametrize("every", [False, True])
def test_nodes_say_whose_runs_find_what_they_gave(every: bool) -> None:
    nodes = dict.fromkeys(("plain", "own", "shared"), SUM["add"])
    made = plan_of(nodes, params={name: dict(TENSOR) for name in nodes}, kept={"own": "own", "shared": "shared"})
    engine = engine_of(made, memo=Memo(MIB, every=every))
    for run, salt in (("one", "key 1"), ("two", "key 2"), ("again", "key 1")):
        engine.limits.admit(run, {}, salt)

    def found(node: str, number: int) -> list[bool]:
        runs = ("one", "two", "again")
        return [kept(engine, call(node, {"a": ids(number), "b": ids(2)}, run=run, **TENSOR))[0] for run in runs]

    assert found("plain", 1) == [False, False, every]
    assert found("own", 2) == [False, False, True]
    assert found("shared", 3) == [False, True, True]
    # What an owner has made isn't given to the others by a node that shares.
    assert found("own", 4) == [False, False, True]
    assert found("shared", 4) == [False, True, True]


def test_runs_that_share_pages_still_have_kept_calls_of_their_own() -> None:
    engine = engine_of(plan_of(SUM, params={"add": dict(TENSOR)}), memo=Memo(MIB), shared_pages=True)
    for run in ("one", "two"):
        engine.limits.admit(run, {}, f"key {run}")
    assert {engine.limits.salt(run) for run in ("one", "two")} == {""}
    assert [kept(engine, add(ids(1), ids(2), run=run)) for run in ("one", "two")] == [[False]] * 2


def test_a_kept_call_is_no_forward() -> None:
    engine = adding(Memo(MIB))
    engine.time_steps(on=True)
    for forwards in (1, 0):
        engine.add(add(ids(1), ids(2)))
        events = engine.step()
        assert sum(isinstance(event, Forwarded) for event in events) == forwards
        assert engine.idle


# ── calls that read nothing ─────────────────────────────────────────────────────────────────────


def marking(memo: Memo | None, value: float | str = 7.0) -> Engine:
    """An engine with a node `mark` that takes no inputs, for runs of two owners. `value`: its parameter."""
    engine = engine_of(plan_of({"mark": (f"{NUMBERS}:Value", {})}, params={"mark": {"value": value}}), memo=memo)
    for run in ("one", "two"):
        engine.limits.admit(run, {}, f"key {run}")
    return engine


@pytest.mark.parametrize("every", [False, True])
def test_what_reads_nothing_of_its_run_is_made_once_for_all(every: bool) -> None:
    engine = marking(Memo(MIB, every=every))
    for run, found in (("one", False), ("two", True), ("one", True)):
        [done] = serve(engine, call("mark", run=run, seed=len(run), value=7.0))
        assert done.kept == found
        assert done.outputs == {"value": 7.0}


def test_parameters_of_a_run_are_something_that_a_call_reads() -> None:
    engine = marking(Memo(MIB, every=False), "=number")
    for _ in range(2):
        assert kept(engine, call("mark", run="one", value=7.0)) == [False]


def test_nodes_that_read_nothing_are_kept_apart() -> None:
    nodes = dict.fromkeys(("six", "seven", "too"), (f"{NUMBERS}:Value", {}))
    values = {"six": 6.0, "seven": 7.0, "too": 7.0}
    engine = engine_of(
        plan_of(nodes, params={name: {"value": value} for name, value in values.items()}), memo=Memo(MIB, every=False)
    )
    told = [serve(engine, call(name, value=value))[0] for name, value in values.items()]
    assert [one.outputs for one in told] == [{"value": value} for value in values.values()]
    assert [one.kept for one in told] == [False, False, True], "`too` is `seven` by another name"


@pytest.mark.parametrize(("device", "kept_there"), [("cpu", True), ("cuda", False)])
def test_what_reads_nothing_is_kept_on_the_host(device: str, kept_there: bool) -> None:
    loaded = marking(None)._parts.nodes["mark"]._replace(device=torch.device(device))
    calls = KeptCalls(Memo(MIB, every=False), lambda run: run, {}, {"mark"})
    one = call("mark", value=7.0)
    calls.find(loaded, one)
    assert (one.content is not None) == kept_there


def test_a_chain_is_not_the_last_of_its_calls() -> None:
    loaded = marking(None)._parts.nodes["mark"]
    calls, link = KeptCalls(Memo(MIB, every=False), lambda run: run, {}, {"mark"}), Link("mark", 0, "mark", {}, {}, ())
    one, chain = call("mark", value=7.0), call("mark", value=7.0)
    chain.links = (link, link)
    for found in (one, chain):
        calls.find(loaded, found)
    assert one.content is not None
    assert chain.content is None


# ── another plan, other weights ─────────────────────────────────────────────────────────────────


def test_an_engine_for_another_plan_finds_what_the_former_one_made() -> None:
    memo, operators = Memo(MIB), KeptOperators()
    assert kept(adding(memo, operators), add(ids(1), ids(2))) == [False]
    other = adding(memo, operators, more=(f"{SYNTHETIC}:Range", {}))
    assert kept(other, add(ids(1), ids(2))) == [True]
    renamed = engine_of(plan_of({"plus": SUM["add"]}, params={"plus": dict(TENSOR)}), memo=memo, kept=KeptOperators())
    assert kept(renamed, call("plus", {"a": ids(1), "b": ids(2)}, **TENSOR)) == [True], "its name is no content"
    single = {**TENSOR, "type": "scalar"}
    typed = engine_of(plan_of(SUM, params={"add": single}), memo=memo, kept=operators)
    assert kept(typed, call("add", {"a": ids(1), "b": ids(2)}, **TENSOR)) == [False], "it was loaded with other options"


def tokenizing(memo: Memo, operators: KeptOperators, source: str) -> Engine:
    made = plan_of({"n": ("walkgraph.models.text.operators:Tokenizer", {})}, source=source, family="bagel")
    return engine_of(made, memo=memo, kept=operators, weights_roots=(Path(),))


def test_other_weights_and_weights_that_were_loaded_anew_are_other_contents() -> None:
    memo, operators = Memo(MIB), KeptOperators()

    def told(source: str) -> bool:
        return kept(tokenizing(memo, operators, source), call("n", {"text": "a"}, wrap=False))[0]

    assert [told("random:bagel-tiny:1") for _ in range(2)] == [False, True]
    assert [told("random:bagel-tiny:2") for _ in range(2)] == [False, True]
    assert [told("random:bagel-tiny:1") for _ in range(2)] == [False, True], "its files may have changed meanwhile"


# ── bounds ──────────────────────────────────────────────────────────────────────────────────────


def test_the_memo_holds_no_more_bytes_than_it_may() -> None:
    memo = Memo(10_000)
    for number in range(50):
        memo.keep(bytes([number]), {"value": torch.zeros(200)})
        assert memo.bytes <= 10_000
    assert 1 <= len(memo) < 50
    held = [number for number in range(50) if memo.find(bytes([number])) is not None]
    assert held == list(range(50 - len(memo), 50)), "those used last"


def test_what_was_used_last_stays() -> None:
    memo = Memo(3 * 1500)
    for number in range(3):
        memo.keep(bytes([number]), {"value": b"x" * 900})
    assert memo.find(b"\0") is not None
    memo.keep(b"\3", {"value": b"x" * 900})
    assert [memo.find(bytes([number])) is not None for number in range(4)] == [True, False, True, True]


def test_what_is_larger_than_the_memo_and_what_has_an_unknown_kind_is_left_out() -> None:
    memo = Memo(10_000)
    memo.keep(b"small", {"value": "a"})
    memo.keep(b"large", {"value": "a" * 20_000})
    memo.keep(b"unknown", {"value": object()})
    memo.keep(b"inside", {"value": ["a", object()]})
    assert [memo.find(key) is not None for key in (b"small", b"large", b"unknown", b"inside")] == [True, *[False] * 3]


def test_a_view_is_kept_as_it_was() -> None:
    """Large memory that a value is a view of is neither held nor read later."""
    memo, whole = Memo(10_000), torch.arange(10_000)
    memo.keep(b"part", {"value": whole[3:5]})
    whole.zero_()
    found = memo.find(b"part")
    assert found is not None
    assert found["value"].tolist() == [3, 4]
    assert memo.bytes < 1000


def test_values_too_deep_for_a_digest_or_a_copy_end_nothing() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    memo = Memo(MIB)
    memo.keep(b"key", {"result": deep})
    assert (len(memo), memo.bytes) == (0, 0)
    assert memo.find(b"key") is None
