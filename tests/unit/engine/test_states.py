from __future__ import annotations

import pytest
import torch
from torch import Tensor

from walkgraph.abi.calls import StateKey
from walkgraph.abi.states import CacheShape, Segment
from walkgraph.engine.kv.allocator import PAGE, OutOfPages, PageFault
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.pool import KVPools, Pool, page_bytes, slots_of, slots_of_each
from walkgraph.engine.kv.states import StateTable, Transaction
from walkgraph.engine.kv.transfer import StateTransfer

SHAPE = CacheShape(layers=1, kv_heads=1, head_dim=1, dtype=torch.float64)
MAIN, OTHER = StateKey("r", "kv"), StateKey("r", "kv", (3,))


@pytest.fixture
def states() -> StateTable:
    return StateTable(KVPools({"kv": Pool(SHAPE, 16, torch.device("cpu"))}), AttentionBackends())


def segment(key: StateKey, start: int, n: int, *, keep: bool = True, advance: int = 1, sequence: int = 0) -> Segment:
    rows = torch.arange(start, start + n)
    return Segment(state=key, rows=rows, mode="block", keep=keep, advance=advance, sequence=sequence)


def run(transaction: Transaction, segments: list[Segment], values: Tensor) -> None:
    attend = transaction.attend(segments)
    rows = values.double().view(-1, 1, 1)
    attend(0, torch.zeros_like(rows), torch.zeros_like(rows), rows)
    transaction.commit(attend)


def append(states: StateTable, key: StateKey, *values: float, advance: int = 1, sequence: int = 0) -> None:
    transaction = states.transaction()
    run(transaction, [segment(key, 0, len(values), advance=advance, sequence=sequence)], torch.tensor(values))
    transaction.settle()


def kept(states: StateTable, key: StateKey, sequence: int = 0) -> list[float]:
    return StateTransfer(states).export(key)[f"kv.{sequence}"][1].flatten().tolist()


def free(states: StateTable) -> int:
    return states.pools.by_state["kv"].pages.free


def test_appends_count_after_commit_and_advance_positions_as_told(states: StateTable) -> None:
    transaction = states.transaction()
    assert (transaction.length(MAIN), transaction.position(MAIN)) == (0, 0)
    run(transaction, [segment(MAIN, 0, 5, advance=1)], torch.arange(5))
    assert (transaction.length(MAIN), transaction.position(MAIN)) == (5, 1)
    run(transaction, [segment(MAIN, 0, 2, advance=2)], torch.tensor([5, 6]))
    assert (transaction.length(MAIN), transaction.position(MAIN)) == (7, 3)
    run(transaction, [segment(MAIN, 0, 4, keep=False)], torch.zeros(4))
    assert (transaction.length(MAIN), transaction.position(MAIN)) == (7, 3)
    transaction.settle()
    assert kept(states, MAIN) == [0, 1, 2, 3, 4, 5, 6]


def test_a_rollback_restores_all_that_was_touched(states: StateTable) -> None:
    append(states, MAIN, *range(20), advance=20)
    states.set(OTHER, torch.tensor([1]))
    states.fork(MAIN, StateKey("r", "kv", (9,)))
    before = free(states)
    transaction = states.transaction()
    run(transaction, [segment(MAIN, 0, 40), segment(StateKey("new", "kv"), 40, 3)], torch.zeros(43))
    transaction.put(OTHER, torch.tensor([2]))
    assert transaction.tensor(OTHER) is not None
    assert free(states) < before
    transaction.rollback()
    assert free(states) == before
    assert kept(states, MAIN) == list(range(20))
    assert states.tensors[OTHER].tolist() == [1]
    assert StateTransfer(states).export(StateKey("new", "kv")) == {}
    states.audit()


def test_what_is_reserved_and_not_committed_is_given_back(states: StateTable) -> None:
    append(states, MAIN, 1.0)
    transaction = states.transaction()
    transaction.attend([segment(MAIN, 0, 60)])
    assert free(states) == 16 - 4
    transaction.settle()
    assert free(states) == 15
    assert kept(states, MAIN) == [1.0]
    states.audit()


def test_forks_share_full_pages_and_copy_the_partial_one_on_write(states: StateTable) -> None:
    append(states, MAIN, *range(PAGE + 3))
    states.fork(MAIN, OTHER)
    assert free(states) == 14
    append(states, OTHER, 50.0)
    assert free(states) == 13
    append(states, MAIN, 60.0)
    assert free(states) == 13
    assert kept(states, OTHER) == [*range(PAGE + 3), 50]
    assert kept(states, MAIN) == [*range(PAGE + 3), 60]
    states.fork(MAIN, MAIN)
    states.fork(OTHER, MAIN)
    assert kept(states, MAIN)[-1] == 50
    states.drop([OTHER])
    append(states, MAIN, 70.0)
    assert free(states) == 14
    states.audit()


def test_a_full_last_page_is_not_copied(states: StateTable) -> None:
    append(states, MAIN, *range(PAGE))
    states.fork(MAIN, OTHER)
    append(states, OTHER, 1.0)
    assert free(states) == 14


def test_a_wide_state_keeps_sequences_apart(states: StateTable) -> None:
    append(states, MAIN, *range(5), advance=5)
    wide = StateKey("r", "kv", (1,))
    states.fork(MAIN, wide, 3)
    assert (states.width(wide), states.width(MAIN), free(states)) == (3, 1, 15)
    transaction = states.transaction()
    run(transaction, [segment(wide, i, 1, sequence=i) for i in range(3)], torch.tensor([10, 11, 12]))
    transaction.settle()
    assert [kept(states, wide, i) for i in range(3)] == [[*range(5), 10 + i] for i in range(3)]
    states.fork(wide, OTHER)
    assert states.width(OTHER) == 3
    there = StateTable(KVPools({"kv": Pool(SHAPE, 16, torch.device("cpu"))}), AttentionBackends())
    StateTransfer(there).import_state(wide, StateTransfer(states).export(wide))
    assert [kept(there, wide, i) for i in range(3)] == [[*range(5), 10 + i] for i in range(3)]
    transaction = there.transaction()
    assert [transaction.position(wide, i) for i in range(3)] == [6, 6, 6]
    with pytest.raises(PageFault, match="before sequence"):
        transaction.attend([segment(wide, 0, 1, sequence=4)])
    transaction.rollback()
    states.drop_run("r")
    assert free(states) == 16


def test_a_fork_into_another_shape_is_a_fault() -> None:
    wide = CacheShape(layers=1, kv_heads=1, head_dim=2, dtype=torch.float64)
    pools = {name: Pool(shape, 4, torch.device("cpu")) for name, shape in (("kv", SHAPE), ("wide", wide))}
    states = StateTable(KVPools(pools), AttentionBackends())
    append(states, MAIN, 1.0)
    with pytest.raises(PageFault, match="different shapes"):
        states.fork(MAIN, StateKey("r", "wide"))


def test_out_of_pages_takes_nothing(states: StateTable) -> None:
    append(states, MAIN, 1.0)
    transaction = states.transaction()
    with pytest.raises(OutOfPages):
        transaction.attend([segment(MAIN, 0, 200), segment(StateKey("s", "kv"), 200, 200)])
    transaction.rollback()
    assert free(states) == 15
    states.audit()


def test_runs_are_dropped_whole(states: StateTable) -> None:
    append(states, MAIN, 1.0)
    append(states, OTHER, 2.0)
    append(states, StateKey("s", "kv"), 3.0)
    states.set(StateKey("r", "tail"), torch.zeros(1))
    states.drop_run("r")
    assert list(states.paged) == [StateKey("s", "kv")]
    assert not states.tensors
    states.drop_run("r")
    assert free(states) == 15


def test_idle_pools_claim_no_memory_and_slots_follow_pages() -> None:
    assert page_bytes(SHAPE) == PAGE * 2 * 8
    pool = Pool(SHAPE, 4, torch.device("cpu"))
    assert not pool.k[0].any()
    assert slots_of([2, 4], 14, 18, torch.device("cpu")).tolist() == [46, 47, 64, 65]
    assert slots_of([2], 3, 3, torch.device("cpu")).tolist() == []


def test_slots_of_several_sequences_are_those_of_each() -> None:
    spans = [([2, 4], 14, 18), ([2], 3, 3), ([7, 1, 5], 0, 40)]
    found = slots_of_each(spans, torch.device("cpu"))
    for span, slots in zip(spans, found, strict=True):
        assert torch.equal(slots, slots_of(*span, torch.device("cpu")))
    assert slots_of_each([], torch.device("cpu")) == []


def test_an_import_that_fails_takes_no_pages_and_leaves_what_was_there(states: StateTable) -> None:
    append(states, MAIN, 1.0, 2.0)
    before = free(states)
    narrow = {"counters": torch.tensor([[20, 20], [20, 20]]), "kv.0": torch.zeros(2, 1, 20, 1, 1)}
    with pytest.raises(PageFault):
        StateTransfer(states).import_state(MAIN, narrow)
    assert free(states) == before
    assert kept(states, MAIN) == [1.0, 2.0]
    states.audit()
