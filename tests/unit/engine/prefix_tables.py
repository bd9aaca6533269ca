"""State tables whose sequences hold the numbers of their tokens, and what is done with them."""

from collections.abc import Sequence

import torch

from walkgraph.abi.calls import StateKey
from walkgraph.abi.states import CacheShape, Segment
from walkgraph.engine.kv.allocator import PAGE, OutOfPages
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.paged_state import AppendedTokens, NamedTokens
from walkgraph.engine.kv.pool import KVPools, Pool, slots_of
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.kv.transfer import StateTransfer

SHAPE = CacheShape(layers=1, kv_heads=1, head_dim=1, dtype=torch.float64)
PAGES = 9
KEYS = [StateKey(run, "kv") for run in "abc"]
A, B, C = KEYS
LONG = [(i * i) % 97 for i in range(5 * PAGE)]
OTHER = [*LONG[: 2 * PAGE], *([5] * 3 * PAGE)]


def table(pages: int = PAGES) -> StateTable:
    return StateTable(KVPools({"kv": Pool(SHAPE, pages, torch.device("cpu"))}, prefix_cache=True), AttentionBackends())


def append(
    states: StateTable,
    key: StateKey,
    tokens: Sequence[int],
    *,
    origin: object = "op",
    named: bool = True,
    wrong: bool = False,
    answered: bool = True,
    block: bool = False,
) -> tuple[int, list[AppendedTokens]]:
    """-> how many were there, and what is to be confirmed. `wrong`: the forward writes what it should not."""
    transaction = states.transaction(origin)
    try:
        there = transaction.reuse(key, tokens, answered=answered, block=block) if named else 0
        if there == len(tokens):
            return there, transaction.settle()
        rows = torch.arange(len(tokens) - there)
        names = tokens[there:] if named else None
        mode, advance = ("block", 1) if block else ("causal", len(rows))
        attend = transaction.attend([Segment(key, rows, mode, advance=advance, tokens=names)])
    except OutOfPages:
        transaction.rollback()
        raise
    values = torch.tensor(tokens[there:]).double().view(-1, 1, 1) - (1000 if wrong else 0)
    attend(0, torch.zeros_like(values), torch.zeros_like(values), values)
    transaction.commit(attend)
    return there, transaction.settle()


def add(states: StateTable, key: StateKey, tokens: Sequence[int], origin: object = "op", **how: bool) -> int:
    there, fresh = append(states, key, tokens, origin=origin, **how)
    states.confirm(fresh)
    return there


def places(states: StateTable, key: StateKey) -> tuple[int, int]:
    """Length and position."""
    transaction = states.transaction()
    return transaction.length(key), transaction.position(key)


def kept(states: StateTable, key: StateKey) -> list[int]:
    found = StateTransfer(states).export(key)
    return found["kv.0"][1].flatten().int().tolist() if found else []


def held(states: StateTable) -> int:
    return len({page for state in states.paged.values() for sequence in state.sequences for page in sequence.pages})


def free(states: StateTable) -> int:
    return states.pools.by_state["kv"].pages.free


def iterate(states: StateTable, key: StateKey, tokens: Sequence[int]) -> list[AppendedTokens]:
    """Append as a device loop does."""
    length, pool = states.transaction().length(key), states.pools.by_state["kv"]
    states.hold(key, len(tokens) + 3)
    at = slots_of(states.paged[key].sequences[0].pages, length, length + len(tokens), pool.device)
    pool.v[0][at] = torch.tensor(tokens).double().view(-1, 1, 1)
    states.appended(key, len(tokens), len(tokens), NamedTokens("op", tokens))
    return []
