"""Outputs that are kept with keys and values: whoever reuses a row finds them, wherever its page went."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from tests.unit.engine.prefix_tables import A, B
from walkgraph.abi.calls import StateKey
from walkgraph.abi.states import CacheShape, Segment
from walkgraph.engine.kv.allocator import PAGE
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.paged_attention import PagedAttention
from walkgraph.engine.kv.paged_state import TokensDigest
from walkgraph.engine.kv.pool import KVPools, Pool, page_bytes
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.kv.swap import SuspendedRuns, Swap
from walkgraph.engine.kv.transfer import StateTransfer

WIDTH = 3
PLAIN = CacheShape(layers=1, kv_heads=1, head_dim=1, dtype=torch.float64)
SHAPE = CacheShape(layers=1, kv_heads=1, head_dim=1, dtype=torch.float64, outputs=(("told", WIDTH),))
TOKENS = [*range(100, 100 + 2 * PAGE + 5)]


def table(shape: CacheShape = SHAPE) -> StateTable:
    pool = Pool(shape, 20, torch.device("cpu"))
    return StateTable(KVPools({"kv": pool}, prefix_cache=True), AttentionBackends())


def told(tokens: Sequence[int]) -> Tensor:
    """The output's rows of these tokens, `[n, WIDTH]`."""
    return torch.tensor(tokens).double()[:, None] + torch.arange(WIDTH) / 10


def append(
    states: StateTable, keys: Sequence[StateKey], tokens: Sequence[int], *, answered: bool = True
) -> list[tuple[int, Tensor]]:
    """Append tokens to several states in one forward, whose rows interleave -> for each state how many were found, and
    the output's rows of all."""
    transaction = states.transaction("op")
    found = [transaction.reuse(key, tokens, answered=answered) for key in keys]
    left = [tokens[there:] for there in found]
    if any(left):
        longest = max(map(len, left))
        order = [(key, i) for i in range(longest) for key, rest in enumerate(left) if i < len(rest)]
        rows = [torch.tensor([at for at, (mine, _) in enumerate(order) if mine == key]) for key in range(len(keys))]
        parts = zip(keys, rows, left, strict=True)
        attend = transaction.attend(
            [Segment(key, mine, "causal", advance=len(rest), tokens=rest) for key, mine, rest in parts if rest]
        )
        assert isinstance(attend, PagedAttention)
        values = torch.tensor([left[key][i] for key, i in order]).double().view(-1, 1, 1)
        attend(0, torch.zeros_like(values), torch.zeros_like(values), values)
        at = torch.randperm(len(order), generator=torch.Generator().manual_seed(len(order)))
        transaction.keep(attend, {"told": told([left[key][i] for key, i in order])[at]}, at)
        transaction.commit(attend)
    lengths = [transaction.length(key) for key in keys]
    made = [transaction.kept(key, "told", end - len(tokens), end) for key, end in zip(keys, lengths, strict=True)]
    states.confirm(transaction.settle())
    return list(zip(found, made, strict=True))


@pytest.mark.parametrize("answered", [True, False])
def test_found_rows_have_the_outputs_of_those_that_computed_them(answered: bool) -> None:
    states = table()
    [(none, first)] = append(states, [A], TOKENS)
    states.drop((A,))
    [(there, again)] = append(states, [B], TOKENS, answered=answered)
    assert none == 0
    assert there == (2 * PAGE if answered else len(TOKENS))
    assert torch.equal(first, told(TOKENS))
    assert torch.equal(again, told(TOKENS))
    states.audit()


def test_a_page_that_is_copied_takes_its_outputs_along() -> None:
    states = table()
    append(states, [A], TOKENS)
    states.fork(A, B)
    append(states, [B], [7])
    append(states, [A], [8, 9])
    transaction = states.transaction()
    for key, end in ((A, [8, 9]), (B, [7])):
        assert torch.equal(transaction.kept(key, "told", 0, len(TOKENS) + len(end)), told([*TOKENS, *end]))


def test_states_of_one_forward_keep_their_own() -> None:
    states = table()
    for _, made in append(states, [A, B], TOKENS):
        assert torch.equal(made, told(TOKENS))


def test_outputs_leave_with_a_state_and_arrive_with_it() -> None:
    here, there = table(), table()
    append(here, [A], TOKENS)
    StateTransfer(there).import_state(B, StateTransfer(here).export(A))
    assert torch.equal(there.transaction().kept(B, "told", 0, len(TOKENS)), told(TOKENS))


def test_outputs_go_to_the_host_and_back() -> None:
    states = table()
    append(states, [A], TOKENS)
    nothing = lambda run: None  # noqa: E731
    swap = Swap(states, SuspendedRuns(), nothing, lambda run: True, nothing, lambda run: ())
    swap.suspend(A.run)
    swap.advance()
    for rows in states.pools.by_state["kv"].outputs.values():
        rows.zero_()
    swap.resume(A.run)
    swap.advance()
    assert torch.equal(states.transaction().kept(A, "told", 0, len(TOKENS)), told(TOKENS))


def test_a_page_counts_them() -> None:
    assert page_bytes(SHAPE) - page_bytes(PLAIN) == PAGE * WIDTH * 8
    assert not Pool(PLAIN, 2, torch.device("cpu")).outputs


def test_a_span_counts_with_the_last_row_alone() -> None:
    """Parts of a prompt whose rows don't take one position each."""
    states = table()

    def read(key: StateKey, span: float) -> tuple[int, float]:
        transaction = states.transaction("op")
        found = transaction.reuse(key, TOKENS, answered=False, span=span)
        if rest := TOKENS[found:]:
            segment = Segment(key, torch.arange(len(rest)), "causal", span=span, tokens=rest)
            attend = transaction.attend([segment])
            zeros = torch.zeros(len(rest), 1, 1, dtype=torch.float64)
            attend(0, zeros, zeros, zeros)
            transaction.commit(attend)
        states.confirm(transaction.settle())
        return found, transaction.place(key)

    assert read(A, 9.5) == (0, 9.5)
    assert read(B, 9.5) == (2 * PAGE, 9.5)
    states.drop((A,))
    assert read(StateKey("c", "kv"), 9.5) == (len(TOKENS), 9.5)


def test_a_digest_is_of_all_rows_or_none() -> None:
    states = table()
    append(states, [A], TOKENS)
    assert states.transaction().digest(A, len(TOKENS)) == TokensDigest().over(TOKENS).made.digest()
    assert states.transaction().digest(B, 1) is None
    transaction = states.transaction("op")
    attend = transaction.attend([Segment(A, torch.arange(1), "causal")])
    zeros = torch.zeros(1, 1, 1, dtype=torch.float64)
    attend(0, zeros, zeros, zeros)
    transaction.commit(attend)
    assert transaction.digest(A, 1) is None


def test_a_digest_goes_on_with_a_sequence_as_if_all_of_it_were_read_anew() -> None:
    """Also beside a copy that goes on otherwise, and after a forward that left no trace."""
    states, texts = table(), {A: TOKENS[:5], B: TOKENS[:5]}

    def same() -> bool:
        digests = {key: TokensDigest().over(text).made.digest() for key, text in texts.items()}
        return {key: states.transaction().digest(key, len(text)) for key, text in texts.items()} == digests

    append(states, [A], TOKENS[:5])
    assert states.transaction().digest(A, 5) == TokensDigest().over(TOKENS[:5]).made.digest()
    states.fork(A, B)
    assert same()
    for piece in ([7], [1, 23], [-(1 << 60), -3], [4] * PAGE):
        for key, more in ((A, piece), (B, piece[::-1])):
            texts[key] = [*texts[key], *more]
            append(states, [key], more)
            assert same()
            # That of the first rows alone, although more of them have been read.
            assert states.transaction().digest(key, 3) == TokensDigest().over(TOKENS[:3]).made.digest()
    transaction = states.transaction("op")
    attend = transaction.attend([Segment(A, torch.arange(2), "causal", advance=2, tokens=[8, 9])])
    zeros = torch.zeros(2, 1, 1, dtype=torch.float64)
    attend(0, zeros, zeros, zeros)
    transaction.commit(attend)
    assert transaction.digest(A, len(texts[A]) + 2) == TokensDigest().over([*texts[A], 8, 9]).made.digest()
    transaction.rollback()
    assert same()


def test_digests_differ_where_tokens_do() -> None:
    texts = ([], [1, 2], [12], [2, 1], [1, 2, 0], [-1, 2], [1, -2], [1], [-(1 << 160), 1])
    assert len({TokensDigest().over(text).made.digest() for text in texts}) == len(texts)
