"""Pages are shared by what begins alike, and by nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine.plans import call, engine_of, ids, outputs, plan_of, serve
from tests.unit.engine.prefix_tables import (
    KEYS,
    LONG,
    OTHER,
    PAGES,
    A,
    B,
    C,
    add,
    append,
    free,
    held,
    iterate,
    kept,
    table,
)
from walkgraph.abi.calls import Call, Outputs, StateKey
from walkgraph.abi.states import Segment, reused
from walkgraph.engine.calls.digests import Digests
from walkgraph.engine.calls.runner import _place  # pyright: ignore[reportPrivateUsage]
from walkgraph.engine.calls.schedule import Mix
from walkgraph.engine.engine import Engine
from walkgraph.engine.kv.allocator import PAGE, OutOfPages, PageAllocator, PageFault
from walkgraph.engine.kv.paged_state import AppendedTokens
from walkgraph.engine.kv.prefix import Found, PrefixCache, PrefixStats
from walkgraph.engine.kv.transfer import StateTransfer
from walkgraph.models.synthetic import operators

# ── states ──


def test_full_pages_are_found_but_never_all_of_a_prompt() -> None:
    states = table()
    assert add(states, A, LONG[: 2 * PAGE + 5]) == 0
    assert add(states, B, LONG[: 2 * PAGE]) == PAGE
    assert kept(states, B) == LONG[: 2 * PAGE]
    assert add(states, C, LONG[: 2 * PAGE + 1]) == 2 * PAGE
    assert [states.transaction().position(key) for key in KEYS] == [37, 32, 33]
    assert PAGES - free(states) == held(states) == 3 + 1 + 1
    states.audit()
    assert states.pools.prefix_stats() == PrefixStats(3, 2, 37 + 32 + 33, 48, pages=2, evicted=0)


def test_what_is_not_alike_is_not_found() -> None:
    states = table(20)
    add(states, A, LONG)
    for tokens, origin, wanted in (
        (OTHER, "op", 2 * PAGE),
        ([LONG[0] + 1, *LONG[1:]], "op", 0),
        (LONG[PAGE:], "op", 0),
        (LONG, "another operator", 0),
    ):
        states.drop((B,))
        assert add(states, B, tokens, origin) == wanted
        assert kept(states, B) == tokens


def test_pages_outlive_their_runs_and_go_when_others_need_room() -> None:
    states = table()
    add(states, A, LONG[: 4 * PAGE])
    states.drop_run("a")
    assert (free(states), held(states)) == (PAGES, 0)
    append(states, B, [7] * 6 * PAGE, named=False)
    assert (states.pools.prefix_stats().evicted, free(states)) == (1, 3)
    # The last page went first: those before it are found without it, and now the next one makes room.
    assert add(states, C, LONG[: 2 * PAGE + 1]) == 2 * PAGE
    assert (states.pools.prefix_stats().evicted, free(states)) == (2, 0)
    with pytest.raises(OutOfPages):
        append(states, A, [1])
    states.audit()


def test_the_prefix_that_was_used_last_is_kept_longest() -> None:
    states = table()
    for key, tokens in ((A, LONG[: 3 * PAGE]), (B, [5] * 3 * PAGE)):
        add(states, key, tokens)
        states.drop((key,))
    assert add(states, A, LONG[: 3 * PAGE + 1]) == 3 * PAGE
    states.drop((A,))
    append(states, C, [7] * 6 * PAGE, named=False)
    states.drop((C,))
    assert add(states, B, [5] * 3 * PAGE) == 0
    assert add(states, A, LONG[: 3 * PAGE + 1]) == 3 * PAGE
    states.audit()


def test_only_what_is_known_to_have_gone_well_is_shared() -> None:
    states = table()
    _, failed = append(states, A, LONG[: 2 * PAGE], wrong=True)
    _, later = append(states, A, LONG[2 * PAGE : 3 * PAGE])
    # The first part's forward failed, so what followed on it is nobody's.
    states.confirm(later)
    assert add(states, B, LONG[: 3 * PAGE]) == 0
    states.drop((A, B))
    _, dropped = append(states, A, OTHER)
    states.drop((A,))
    append(states, A, [3] * 40, named=False)
    states.confirm([*dropped, *failed])
    assert add(states, B, OTHER) == 2 * PAGE, "of B's own earlier run, not of A's"
    states.audit()


def test_a_fork_of_what_may_yet_fail_is_never_shared() -> None:
    states = table()
    _, fresh = append(states, A, LONG[:PAGE], wrong=True)
    states.fork(A, B)
    assert fresh
    add(states, B, LONG[PAGE : 2 * PAGE])
    assert add(states, C, LONG[: 2 * PAGE]) == 0


def test_shared_pages_are_never_written_into() -> None:
    states = table()
    add(states, A, LONG[: PAGE + 4])
    add(states, B, LONG[: PAGE + 4])
    states.fork(B, C)
    add(states, C, [1, 2])
    append(states, B, [3], named=False)
    states.drop((A,))
    add(states, A, LONG[: PAGE + 9])
    for key, more in (
        (A, LONG[PAGE : PAGE + 9]),
        (B, [*LONG[PAGE : PAGE + 4], 3]),
        (C, [*LONG[PAGE : PAGE + 4], 1, 2]),
    ):
        assert kept(states, key) == [*LONG[:PAGE], *more]
    assert len({states.paged[key].sequences[0].pages[0] for key in KEYS}) == 1
    states.audit()


def test_a_prompt_in_parts_is_found_part_by_part_and_by_whole_prompts() -> None:
    states = table(20)
    parts = [LONG[:32], LONG[32:64], LONG[64:]]
    for part in parts:
        add(states, A, part)
    assert [add(states, B, part) for part in parts] == [16, 16, 0]
    assert add(states, C, LONG) == 64
    assert kept(states, B) == kept(states, C) == LONG


def test_what_another_operator_appends_is_not_found() -> None:
    states = table()
    add(states, A, LONG[:PAGE])
    assert add(states, A, LONG[PAGE : 2 * PAGE], "another operator") == 0
    assert add(states, B, LONG[: 3 * PAGE]) == PAGE
    assert add(states, C, LONG[: 3 * PAGE], "another operator") == 0


def test_what_can_no_longer_be_reached_is_given_up_too() -> None:
    states = table()
    fresh = [one for key in (A, B) for one in append(states, key, LONG[:PAGE])[1]]
    states.confirm(fresh)
    add(states, B, LONG[PAGE : 2 * PAGE])
    states.drop((A, B))
    append(states, C, [7] * 8 * PAGE, named=False)
    assert states.pools.prefix_stats().evicted == 2
    states.audit()
    assert states.pools.prefix_stats().pages == 0


def test_names_end_where_something_has_none() -> None:
    states = table()
    add(states, A, LONG[:PAGE])
    append(states, A, LONG[PAGE : 2 * PAGE], named=False)
    assert add(states, A, LONG[2 * PAGE : 3 * PAGE]) == 0
    assert add(states, B, LONG[: 3 * PAGE]) == PAGE
    StateTransfer(states).import_state(C, StateTransfer(states).export(A))
    assert add(states, C, [1, 2]) == 0
    assert states.pools.prefix_stats().pages == 3
    states.drop(KEYS)
    add(states, A, LONG[:PAGE])
    states.hold(A, PAGE)
    states.appended(A, PAGE, PAGE)
    assert add(states, A, LONG[PAGE:]) == 0, "what a loop has appended has no names"
    assert kept(states, A)[2 * PAGE :] == LONG[PAGE:]
    transaction = states.transaction("op")
    attend = transaction.attend([Segment(StateKey("d", "kv"), torch.arange(2), "causal", advance=2, tokens=[1])])
    with pytest.raises(PageFault, match="have one each"):
        transaction.commit(attend)


def test_a_wide_state_reuses_nothing_and_a_rollback_gives_back() -> None:
    states = table()
    add(states, A, LONG)
    states.drop((A,))
    add(states, A, LONG[: 2 * PAGE])
    states.fork(A, B, 2)
    transaction = states.transaction("op")
    assert transaction.reuse(B, LONG[2 * PAGE :]) == 0
    assert transaction.reuse(A, LONG[2 * PAGE :]) == 2 * PAGE
    transaction.rollback()
    assert kept(states, A) == LONG[: 2 * PAGE]
    transaction = states.transaction("op")
    before = free(states)
    assert transaction.reuse(C, LONG) == 4 * PAGE
    assert (transaction.length(C), before - free(states)) == (4 * PAGE, 3)
    transaction.rollback()
    assert kept(states, C) == []
    assert states.transaction().length(C) == 0
    states.audit()


tokens_of = st.one_of(
    st.tuples(st.sampled_from([LONG, OTHER]), st.integers(1, 5 * PAGE)).map(lambda one: one[0][: one[1]]),
    st.lists(st.integers(0, 2), min_size=1, max_size=6),
)
moves = st.tuples(
    st.sampled_from(["add", "add", "unread", "unread", "block", "loop", "later", "fail", "plain", "fork", "drop"]),
    st.sampled_from(KEYS),
    st.sampled_from(KEYS),
    tokens_of,
)


@given(st.lists(moves, max_size=30))
@settings(max_examples=80)
def test_whatever_happens_sequences_hold_what_was_appended(
    moves: list[tuple[str, StateKey, StateKey, list[int]]],
) -> None:
    states, naive, waiting = table(), dict[StateKey, list[int]](), list[AppendedTokens]()
    for move, key, other, tokens in moves:
        if move == "fork":
            states.fork(key, other)
            naive[other] = list(naive.get(key, []))
        elif move == "drop":
            states.drop((key,))
            naive.pop(key, None)
        else:
            try:
                if move == "block":
                    # A block's numbers are like no token's, and no other block's.
                    tokens = [-1000 * len(tokens) - 100 * tokens[0] - i for i in range(len(tokens))]
                if move == "loop":
                    fresh = iterate(states, key, tokens)
                else:
                    read, block = move not in ("unread", "block"), move == "block"
                    how = {"named": move != "plain", "wrong": move == "fail", "answered": read, "block": block}
                    _, fresh = append(states, key, tokens, **how)
            except OutOfPages:
                assert free(states) * PAGE < len(tokens) + PAGE
            else:
                naive[key] = [*naive.get(key, []), *tokens]
                if move in ("add", "unread", "block"):
                    states.confirm([*waiting, *fresh])
                    waiting.clear()
                elif move == "later":
                    waiting += fresh
                else:
                    # A run that has failed is dropped.
                    states.drop((key,) if move == "fail" else ())
                    naive[key] = [] if move == "fail" else naive[key]
        for one in KEYS:
            assert kept(states, one) == naive.get(one, [])
        assert free(states) == PAGES - held(states)
        states.audit()


# ── pages ──


def test_what_is_kept_twice_or_not_is_a_fault() -> None:
    pages = PageAllocator(3)
    cache = PrefixCache(pages)
    [page] = pages.take(1)
    cache.add("op", tuple(range(PAGE)), [page])
    cache.add("op", tuple(range(PAGE)), [page])
    with pytest.raises(PageFault, match="kept already"):
        cache.add("op", tuple(range(1, PAGE + 1)), [page])
    with pytest.raises(PageFault, match="is not kept"):
        pages.unkeep(2)
    pages.audit([[page]])
    with pytest.raises(PageFault):
        pages.audit([])
    pages.release([page])
    pages.audit([])
    assert (pages.free, len(pages.take(3)), cache.find("op", tuple(range(40)))) == (3, 3, Found([], 0))


def test_an_audit_finds_what_is_kept_and_not_found() -> None:
    pages = PageAllocator(3)
    cache = PrefixCache(pages)
    taken = pages.take(2)
    cache.add("op", tuple(range(2 * PAGE)), taken)
    cache.audit()
    pages.unkeep(taken[0])
    with pytest.raises(PageFault, match="2 pages can be found by their tokens, and 1 are kept"):
        cache.audit()


# ── engine ──


def attends(**options: Any) -> Engine:
    plan = plan_of({"node": ("walkgraph.models.synthetic.operators:Attend", {"kv": "main"})}, kv_bytes=16 * 2 * 8 * 40)
    return engine_of(plan, **options)


def feed(run: str, tokens: Sequence[int]) -> Call:
    return call("node", {"ids": ids(*tokens)}, run=run, states={"kv": "main"}, stop_token=-1)


@pytest.mark.parametrize("mix", [Mix(), Mix(alone=32)])
def test_an_engine_answers_the_same_with_and_without(mix: Mix) -> None:
    engines = [attends(mix=mix), attends(mix=mix, prefix_cache=False)]
    for run, tokens in (("a", LONG), ("b", LONG), ("c", OTHER), ("d", LONG[:20]), ("e", LONG[5:])):
        given = [outputs(e, feed(run, tokens))[0]["token"].tolist() for e in engines]
        assert given[0] == given[1]
    used = [total - free for free, total in (e.pools.pages() for e in engines)]
    assert used[1] - used[0] == engines[0].pools.prefix_stats().saved / PAGE > 0
    assert engines[1].pools.prefix_stats() == PrefixStats()
    engines[0].states.audit()


def test_a_run_that_was_out_and_came_back_names_its_new_pages() -> None:
    engine = attends()
    outputs(engine, feed("a", LONG[:32]))
    for move in (engine.swap.suspend, engine.swap.resume):
        move("a")
        while not engine.idle:
            engine.step()
    outputs(engine, feed("a", LONG[32:]))
    engine.states.audit()
    outputs(engine, feed("b", [*LONG, 1]))
    assert engine.pools.prefix_stats().saved == len(LONG)
    assert engine.transfers.export(StateKey("b", "main"))["kv.0"][1].flatten().tolist() == [*LONG, 1]
    engine.states.audit()


def test_a_failed_call_names_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = attends()
    bad = feed("a", LONG)
    forward = operators.Attend.forward

    def nan(*given: Any) -> list[Outputs]:
        return [{**ports, "stop": torch.tensor(float("nan"))} for ports in forward(*given)]

    monkeypatch.setattr(operators.Attend, "forward", nan)
    before = engine.pools.prefix_stats().pages
    [done] = serve(engine, bad)
    engine.drop("a")
    assert done.error is not None
    monkeypatch.undo()
    assert engine.pools.prefix_stats().pages == before
    outputs(engine, feed("b", LONG))
    assert engine.pools.prefix_stats().pages == before + 5


def test_token_ids_are_read_where_no_device_is_waited_for() -> None:
    given = {"ids": ids(1, 2), "x": torch.ones(2), "grid": ids(1, 2)[None], "there": ids(3).to("meta")}
    one = call("node", {**given, "large": torch.ones(1 << 15), "many": torch.arange(1 << 14)})
    wanted = {"ids": [1, 2], "x": None, "grid": None, "there": None, "absent": None, "large": None}
    for _ in range(2):
        assert {port: one.numbers(port) for port in wanted} == wanted
        _place([one], torch.device("meta"), Digests())
        assert one.inputs["ids"].is_meta
    # Beside integers, what is small.
    assert list(one.host) == ["ids", "x", "grid", "many"]
    assert one.near("x") is given["x"]
    assert one.near("large").is_meta
    assert one.near("absent") is None
    assert replace(one, inputs={"ids": one.inputs["ids"]}).numbers("ids") is None
    assert reused(one, "there", "kv", table().transaction("op")) == (0, None)
