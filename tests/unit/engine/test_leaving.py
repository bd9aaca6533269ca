"""States that leave for another rank in parts while they grow, compared with those that leave whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
import torch

from tests.unit.engine.prefix_tables import LONG, OTHER, A, B, add, kept, table
from walkgraph.abi.calls import StateKey
from walkgraph.abi.states import CacheShape, Segment
from walkgraph.engine.kv.allocator import PAGE, OutOfPages, PageFault
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.departure import Departure, LeavingPart
from walkgraph.engine.kv.pool import KVPools, Pool, page_bytes
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.kv.swap import SuspendedRuns, Swap
from walkgraph.engine.kv.transfer import StateTransfer

ARRIVING = StateKey("a", "kv", (-1, 1))
SHAPE = CacheShape(layers=2, kv_heads=1, head_dim=1, dtype=torch.float64, outputs=(("told", 2),))


class Node(NamedTuple):
    operator: object


NODES = {"llm": Node("op"), "eye": Node("another")}


def moves(states: StateTable, nodes: Mapping[str, Node] = NODES, pages: int = 100) -> StateTransfer:
    """`pages`: of a part."""
    most = pages * page_bytes(states.pools.each[0].shape)
    return StateTransfer(states, nodes=nodes, part_bytes=most)


def wide(pages: int = 60) -> StateTable:
    return StateTable(KVPools({"kv": Pool(SHAPE, pages, torch.device("cpu"))}), AttentionBackends())


def grow(states: StateTable, key: StateKey, sequence: int, count: int) -> None:
    """Append drawn numbers, with an output for each."""
    forward = states.transaction()
    attend = forward.attend([Segment(key, torch.arange(count), "causal", advance=3, sequence=sequence)])
    for layer in range(SHAPE.layers):
        attend(layer, *torch.randn(3, count, 1, 1, dtype=torch.float64))
    forward.keep(attend, {"told": torch.randn(count, 2, dtype=torch.float64)}, torch.arange(count))
    forward.commit(attend)
    forward.settle()


def given(here: StateTransfer, there: StateTransfer, departure: Departure, *, last: bool = False) -> list[LeavingPart]:
    """Carry parts over until none is left; also the last one."""
    found: list[LeavingPart] = []
    while (part := here.part(departure, last=last)) is not None:
        found.append(part)
        if part.last:
            there.import_state(departure.key, part.value, ARRIVING)
            return found
        held = there.take_part(ARRIVING, departure.key, part.value)
        if part.offers:
            departure.answer(held)
    return found


def rows(parts: list[LeavingPart]) -> int:
    """Tokens that were carried."""
    return sum(part.value["kv.0"].shape[2] for part in parts if "kv.0" in part.value)


@pytest.mark.parametrize("seed", range(12))
def test_what_leaves_in_parts_arrives_as_what_leaves_whole(seed: int) -> None:
    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(seed)

    def drawn(most: int) -> int:
        return 1 + int(torch.randint(most, (), generator=draw))

    width, here, whole, there = drawn(3), wide(), wide(), wide()
    ways = moves(here, pages=width * drawn(2)), moves(there)
    departure, parts = ways[0].departure(A), list[LeavingPart]()
    for _ in range(1 + drawn(5)):
        for sequence in range(width):
            grow(here, A, sequence, PAGE // 2 + drawn(32))
        parts += given(*ways, departure)
    parts += given(*ways, departure, last=True)
    assert len(parts) > 1
    StateTransfer(whole).import_state(A, StateTransfer(here).export(A))
    wanted, found = StateTransfer(whole).export(A), StateTransfer(there).export(A)
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    assert there.pools.pages() == whole.pools.pages()
    there.audit()


def test_parts_are_full_pages_and_of_bounded_size() -> None:
    here, there = table(), table()
    ways = moves(here, pages=2), moves(there)
    departure = ways[0].departure(A)
    add(here, A, LONG[: PAGE - 1])
    assert ways[0].part(departure, last=False) is None
    add(here, A, LONG[PAGE - 1 : 5 * PAGE - 3])
    assert [rows([part]) for part in given(*ways, departure)] == [2 * PAGE, 2 * PAGE]
    assert [rows([part]) for part in given(*ways, departure, last=True)] == [PAGE - 3]
    assert kept(there, A) == LONG[: 5 * PAGE - 3]


def test_a_rest_that_is_too_large_for_a_part_leaves_in_several() -> None:
    here, there = table(), table()
    ways = moves(here, pages=1), moves(there)
    departure = ways[0].departure(A)
    add(here, A, LONG[: 3 * PAGE + 2])
    assert [part.last for part in given(*ways, departure, last=True)] == [False, False, False, True]
    assert kept(there, A) == LONG[: 3 * PAGE + 2]


def test_pages_that_the_receiver_has_do_not_leave() -> None:
    here, there = table(20), table(20)
    ways = moves(here), moves(there)
    add(here, B, LONG[: 4 * PAGE])
    add(there, B, LONG[: 3 * PAGE])
    here.drop((B,))
    there.drop((B,))
    departure = ways[0].departure(A)
    add(here, A, LONG)
    parts = [*given(*ways, departure), *given(*ways, departure, last=True)]
    assert parts[0].offers
    assert rows(parts) == len(LONG) - 3 * PAGE
    assert kept(there, A) == LONG
    assert there.pools.prefix_stats().saved == 3 * PAGE
    there.audit()
    add(there, B, [*LONG, 1])
    assert there.pools.prefix_stats().saved == 3 * PAGE + len(LONG)


def test_what_was_there_before_is_offered_and_comes_back_alone() -> None:
    here, there = table(20), table(20)
    ways = moves(here), moves(there)
    add(here, A, LONG[: 2 * PAGE + 5])
    given(*ways, ways[0].departure(A), last=True)
    add(there, A, LONG[2 * PAGE + 5 :])
    back = given(ways[1], ways[0], ways[1].departure(A), last=True)
    assert back[0].offers
    assert rows(back) == len(LONG) - 2 * PAGE
    assert kept(here, A) == LONG
    here.audit()


@pytest.mark.parametrize(("nodes", "origin"), [({}, "op"), (NODES, "unknown"), ({"eye": Node("another")}, "op")])
def test_tokens_without_a_name_at_both_ends_leave_all(nodes: dict[str, Node], origin: str) -> None:
    here, there = table(20), table(20)
    ways = moves(here), moves(there, nodes)
    for states in (here, there):
        add(states, B, LONG, origin=origin)
        states.drop((B,))
    add(here, A, LONG, origin=origin)
    parts = given(*ways, ways[0].departure(A), last=True)
    assert rows(parts) == len(LONG)
    assert kept(there, A) == LONG
    there.audit()


def test_what_was_computed_here_alone_is_not_offered() -> None:
    here, there = table(), table()
    ways = moves(here), moves(there)
    departure = ways[0].departure(A)
    add(here, A, LONG)
    assert not any(part.offers for part in given(*ways, departure, last=True))


def test_a_state_that_is_replaced_leaves_anew() -> None:
    here, there = table(20), table(20)
    ways = moves(here), moves(there)
    departure = ways[0].departure(A)
    add(here, A, LONG[: 3 * PAGE])
    given(*ways, departure)
    add(here, B, OTHER)
    here.fork(B, A)
    given(*ways, departure)
    given(*ways, departure, last=True)
    assert kept(there, A) == OTHER
    here.drop((A,))
    given(*ways, ways[0].departure(A), last=True)
    assert StateTransfer(there).export(A) == {}
    there.audit()


def test_the_first_part_takes_the_place_of_what_is_out_of_date() -> None:
    here, there = table(), table(6)
    ways = moves(here), moves(there)
    add(there, A, LONG[: 3 * PAGE], named=False)
    departure = ways[0].departure(A)
    add(here, A, LONG, named=False)
    given(*ways, departure)
    given(*ways, departure, last=True)
    assert kept(there, A) == LONG


@pytest.mark.parametrize("at", ["here", "there", "both"])
def test_a_run_may_be_suspended_between_parts(at: str) -> None:
    here, there = table(), table()
    ways = moves(here), moves(there)
    departure = ways[0].departure(A)
    add(here, A, LONG[: 2 * PAGE], named=False)
    given(*ways, departure)
    nothing = lambda run: None  # noqa: E731
    for states in {"here": [here], "there": [there], "both": [here, there]}[at]:
        swap = Swap(states, SuspendedRuns(), nothing, lambda run: True, nothing, lambda run: ())
        swap.suspend("a")
        swap.advance()
        assert states.pools.pages()[0] == states.pools.pages()[1]
        assert states is there or ways[0].part(departure, last=False) is None
        # Others write into the pages meanwhile.
        add(states, B, OTHER, named=False)
        states.drop((B,))
        swap.resume("a")
        swap.advance()
    add(here, A, LONG[2 * PAGE :], named=False)
    assert rows(given(*ways, departure, last=True)) == len(LONG) - 2 * PAGE
    assert kept(there, A) == LONG
    there.audit()


def test_what_has_arrived_goes_with_its_run() -> None:
    here, there = table(), table()
    ways = moves(here), moves(there)
    departure = ways[0].departure(StateKey("session:s", "kv"))
    add(here, departure.key, LONG)
    given(*ways, departure)
    assert there.pools.pages()[0] < there.pools.pages()[1]
    there.drop_run("a")
    assert there.pools.pages()[0] == there.pools.pages()[1]
    there.audit()


def test_a_part_that_finds_no_pages_takes_none() -> None:
    here, there = table(), table(2)
    departure = moves(here).departure(A)
    add(here, A, LONG)
    part = moves(here).part(departure, last=False)
    assert part is not None
    with pytest.raises(OutOfPages):
        moves(there).take_part(ARRIVING, A, part.value)
    assert there.pools.pages() == (2, 2)


def test_a_part_that_is_lost_is_noticed() -> None:
    here, there = table(), table()
    departure = moves(here).departure(A)
    add(here, A, LONG[: 2 * PAGE])
    assert moves(here).part(departure, last=False) is not None
    last: Any = moves(here).part(departure, last=True)
    add(here, A, LONG[2 * PAGE :])
    with pytest.raises(PageFault):
        moves(there).import_state(A, last.value, ARRIVING)
    assert there.pools.pages()[0] == there.pools.pages()[1]
