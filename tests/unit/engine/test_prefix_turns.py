"""Sequences that are read in parts, of texts and of blocks, are found part by part."""

import pytest
import torch

from tests.unit.engine.prefix_tables import (
    KEYS,
    LONG,
    PAGES,
    A,
    B,
    C,
    add,
    append,
    free,
    kept,
    places,
    table,
)
from walkgraph.abi.calls import CallFailed
from walkgraph.engine.kv.allocator import PAGE
from walkgraph.engine.kv.limits import StateLimits
from walkgraph.engine.kv.paged_state import NamedTokens
from walkgraph.engine.kv.pool import slots_of
from walkgraph.placement.tables import StatePlan


def test_what_ends_within_a_page_is_gone_on_with() -> None:
    states = table(20)
    add(states, A, LONG)
    parts = (LONG[:20], LONG[20:27], LONG[27:])
    assert [add(states, B, part) for part in parts] == [PAGE, 0, 64 - 27]
    assert kept(states, B) == LONG
    assert states.paged[B].sequences[0].pages[:4] == states.paged[A].sequences[0].pages[:4]
    states.audit()


def test_all_of_a_text_is_found_where_nothing_reads_its_output() -> None:
    states = table(20)
    add(states, A, LONG[:70])
    for parts in ([33], [32], [5, 6, 7], [16, 1, 50]):
        states.drop((B,))
        ends = [sum(parts[: i + 1]) for i in range(len(parts))]
        there = [add(states, B, LONG[end - n : end], answered=False) for n, end in zip(parts, ends, strict=True)]
        assert there == [n if end <= 64 else max(0, 64 - end + n) for n, end in zip(parts, ends, strict=True)]
        assert kept(states, B) == LONG[: ends[-1]]
        assert places(states, B) == (ends[-1], ends[-1])
        states.audit()


def test_the_last_page_of_a_sequence_that_has_ended_is_found() -> None:
    states = table()
    add(states, A, LONG[:21])
    add(states, A, LONG[21:23])
    assert add(states, B, LONG[:20], answered=False) == PAGE, "A may still write into its page"
    states.drop(KEYS)
    assert add(states, B, LONG[:22], answered=False) == 22
    assert add(states, B, [1, 2, 3], answered=False) == 0
    assert add(states, C, LONG[:23], answered=False) == 23
    assert (kept(states, B), kept(states, C)) == ([*LONG[:22], 1, 2, 3], LONG[:23])
    states.drop(KEYS)
    assert states.pools.prefix_stats().pages == 3, "a full page, and what A and B ended with"
    add(states, A, LONG[: 2 * PAGE])
    assert states.pools.prefix_stats().pages == 3, "the full page takes the place of the one that it goes on"
    assert add(states, B, [*LONG[:22], 1, 2], answered=False) == 24
    states.drop(KEYS)
    assert free(states) == PAGES
    states.audit()


def test_a_text_shorter_than_a_page_is_found_once_it_has_ended_and_gives_way_to_a_longer_one() -> None:
    states = table()
    for end, there in ((4, 0), (7, 0), (6, 6), (7, 7)):
        assert add(states, A, LONG[:end], answered=False) == there
        states.drop((A,))
        assert states.pools.prefix_stats().pages == 1
        states.audit()
    append(states, B, [3] * PAGES * PAGE, named=False)
    assert states.pools.prefix_stats().pages == 0
    states.drop((B,))
    assert add(states, A, LONG[:4], answered=False) == 0


def test_what_is_in_flight_is_not_kept_when_it_ends() -> None:
    states = table()
    _, fresh = append(states, A, LONG[:5])
    states.drop((A,))
    states.confirm(fresh)
    assert add(states, B, LONG[:4], answered=False) == 0


def test_a_block_is_found_whole_or_not_at_all() -> None:
    states = table(20)
    block, other = [-i for i in range(100, 120)], [-i for i in range(200, 220)]
    for part, how in (LONG[:5], {}), (block, {"block": True}), (LONG[5:30], {}):
        add(states, A, part, **how)
    states.drop((A,))
    add(states, B, LONG[:5], answered=False)
    assert add(states, B, block, block=True, answered=False) == 20
    assert places(states, B) == (25, 6)
    assert add(states, B, LONG[5:30], answered=False) == 25
    assert places(states, B) == (50, 31)
    assert kept(states, B) == [*LONG[:5], *block, *LONG[5:30]]
    add(states, C, LONG[:5], answered=False)
    assert add(states, C, block[:-1], block=True, answered=False) == 19, "its numbers tell no length"
    states.drop((C,))
    add(states, C, LONG[:5], answered=False)
    assert add(states, C, [*block[:12], *other], block=True, answered=False) == 0
    assert places(states, C) == (37, 6)
    states.audit()


def test_what_a_loop_has_appended_is_found_if_it_is_named() -> None:
    states = table(20)
    add(states, A, LONG[:20])
    for end, named in ((30, LONG[20:30]), (50, LONG[30:50])):
        count = end - states.transaction().length(A)
        states.hold(A, 40)
        pool = states.pools.by_state["kv"]
        at = slots_of(states.paged[A].sequences[0].pages, end - count, end, pool.device)
        pool.v[0][at] = torch.tensor(LONG[end - count : end]).double().view(-1, 1, 1)
        states.appended(A, count, count, NamedTokens("op", named))
    assert add(states, B, LONG[:49]) == 3 * PAGE
    assert kept(states, B) == LONG[:49]
    states.drop(KEYS)
    assert add(states, B, LONG[:50], answered=False) == 50
    for odd in (NamedTokens("another operator", LONG[50:60]), NamedTokens("op", LONG[50:55])):
        states.fork(B, C)
        states.hold(C, 10)
        states.appended(C, 10, 10, odd)
        assert add(states, C, LONG[60:]) == 0
        assert states.paged[C].sequences[0].prefix is None
    states.audit()


def test_runs_share_pages_only_with_those_of_their_salt() -> None:
    states = table(20)
    for run, salt in (("a", "x"), ("b", ""), ("c", "x")):
        states.limits.admit(run, {}, salt)
    assert [add(states, key, LONG) for key in KEYS] == [0, 0, 4 * PAGE]
    states.drop_run("b")
    states.limits.admit("b", {})
    assert add(states, B, LONG) == 4 * PAGE
    states.drop_run("c")
    assert add(states, C, LONG[:40]) == 2 * PAGE, "without a salt again"


def test_found_tokens_count_towards_the_limit() -> None:
    states = table(20)
    add(states, A, LONG)
    plan = StatePlan(index=0, name="kv", kind="paged_kv", scope="run", width="1", capacity="40")
    states.limits = StateLimits([plan], ["kv"])
    states.limits.admit("b", {})
    transaction = states.transaction("op")
    with pytest.raises(CallFailed, match="at most 40 tokens"):
        transaction.reuse(B, LONG)
    transaction.rollback()
    assert add(states, B, LONG[:40], answered=False) == 40
    states.audit()
