"""A mixture of experts: its router, its order of rows, and its forms against each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.architectures.drawn import drawn
from walkgraph.checkpoints.language import ExpertSizes
from walkgraph.checkpoints.sharding.experts import HeldExperts
from walkgraph.layers.invariance import batch_invariant
from walkgraph.layers.moe.packed_experts import PackedExperts
from walkgraph.layers.moe.routing import by_expert, route
from walkgraph.layers.moe.shared_expert import SharedExpertMLP
from walkgraph.layers.moe.sparse_mlp import SparseMLP, each_expert, grouped_experts, masked_experts
from walkgraph.layers.norm.rms_norm import RMSNorm
from walkgraph.layers.tally import tally

torch.set_num_threads(1)
WIDTH = 32
SIZES = ExpertSizes(experts=6, chosen=2, hidden=48, renormed=True)


def made(sizes: ExpertSizes = SIZES, *, packed: bool = True, held: HeldExperts | None = None) -> SparseMLP:
    mlp = drawn(lambda: SparseMLP(WIDTH, sizes, held), 0, device=torch.device("cpu"), dtype=torch.float32)
    if packed:
        mlp.pack()
    return mlp


def shared(*, packed: bool = True) -> SharedExpertMLP:
    sizes = replace(SIZES, shared=40)
    mlp = drawn(lambda: SharedExpertMLP(WIDTH, sizes), 0, device=torch.device("cpu"), dtype=torch.float32)
    if packed:
        mlp.pack()
    return mlp


def rows(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed))


def naive(mlp: SparseMLP, x: Tensor) -> Tensor:
    """Row by row, as a definition has it."""
    out = []
    for row in x:
        shares = (mlp.gate.weight @ row).softmax(0)
        best = shares.sort(descending=True).indices[: mlp.sizes.chosen].tolist()
        whole = shares[best].sum() if mlp.sizes.renormed else 1.0
        out.append(sum(shares[e] / whole * mlp.experts[str(e)](row) for e in best))
    return torch.stack(out)


@pytest.mark.parametrize("sizes", [SIZES, ExpertSizes(experts=5, chosen=3, hidden=16, renormed=False)])
@torch.inference_mode()
def test_every_form_is_the_definition(sizes: ExpertSizes) -> None:
    mlp, x = made(sizes), rows(17)
    assert mlp.packed is not None
    wanted, routing = naive(mlp, x), mlp.routed(x)
    for got in (
        made(sizes, packed=False)(x),
        mlp(x),
        each_expert(x, routing, lambda index: mlp.experts[str(index)]),
        grouped_experts(x, routing, mlp.packed),
        masked_experts(x, routing, mlp.packed),
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_a_step_norms_first_and_adds_the_residual() -> None:
    mlp, x, norm = made(), rows(5), RMSNorm(WIDTH, 1e-6)
    norm.weight.data = 1 + rows(1, seed=2)[0] / 4
    torch.testing.assert_close(mlp.step(x, norm, None), mlp(norm(x)))
    torch.testing.assert_close(mlp.step(x, norm, x), mlp(norm(x)) + x)
    with pytest.raises(RuntimeError, match="pack"):
        made(packed=False).step(x, norm, None)


@torch.inference_mode()
def test_a_shared_expert_computes_every_row_beside_the_chosen_ones() -> None:
    plain, mlp = shared(packed=False), shared()
    assert mlp.state_dict().keys() - made().state_dict().keys() == {
        "shared_expert_gate.weight",
        *(f"shared_expert.{part}_proj.weight" for part in ("gate", "up", "down")),
    }
    x, norm = rows(7), RMSNorm(WIDTH, 1e-6)
    norm.weight.data = 1 + rows(1, seed=2)[0] / 4
    share = (x @ mlp.shared_expert_gate.weight[0]).sigmoid()
    one = mlp.shared_expert
    inner = F.silu(x @ one.gate_proj.weight.t()) * (x @ one.up_proj.weight.t())
    wanted = naive(mlp, x) + share[:, None] * (inner @ one.down_proj.weight.t())
    for got in (plain(x), mlp(x)):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(mlp.step(x, norm, None), mlp(norm(x)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(mlp.step(x, norm, x), mlp(norm(x)) + x, rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="pack"):
        plain.step(x, norm, None)
    moved = mlp.to(torch.float64)
    torch.testing.assert_close(moved(x.double()), wanted.double(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("build", [made, shared], ids=["experts", "shared"])
@torch.inference_mode()
def test_a_row_steps_alike_among_any_others(build: Callable[[], SparseMLP]) -> None:
    mlp, x, norm = build(), rows(9), RMSNorm(WIDTH, 1e-6)
    with batch_invariant():
        together = mlp.step(x, norm, x)
        for part in (slice(0, 1), slice(3, 8)):
            assert torch.equal(mlp.step(x[part], norm, x[part]), together[part])


@pytest.mark.parametrize("invariant", [False, True])
@torch.inference_mode()
def test_steps_count_the_experts_of_all_their_rows_together(invariant: bool) -> None:
    mlp, norm = made(), RMSNorm(WIDTH, 1e-6)
    mlp.tally = tally(torch.device("cpu"))
    wanted: list[int] = []
    with batch_invariant(invariant):
        for seed, count in enumerate((1, 3, 20)):
            mlp.step(rows(count, seed), norm, None)
            wanted.append(len(np.unique(mlp.routed(norm(rows(count, seed))).experts.numpy())))
    mlp(rows(9))
    assert mlp.tally.tolist() == [3, sum(wanted), max(wanted)]
    assert wanted[0] < wanted[-1]


def test_weights_keep_their_names_and_are_held_once() -> None:
    plain, mlp = made(packed=False), made()
    assert mlp.state_dict().keys() == plain.state_dict().keys()
    assert {"gate.weight", "experts.5.down_proj.weight"} < mlp.state_dict().keys()
    for name, tensor in plain.state_dict().items():
        assert torch.equal(mlp.state_dict()[name], tensor)
    assert isinstance(mlp.packed, PackedExperts)
    expert = mlp.experts["3"]
    for part, whole in ((expert.up_proj, mlp.packed.gate_up[3, 48:]), (expert.down_proj, mlp.packed.down[3])):  # type: ignore[union-attr]
        assert part.weight.data_ptr() == whole.data_ptr()
    assert mlp.to(torch.float64).packed.down.dtype == torch.float64  # type: ignore[union-attr]


@torch.inference_mode()
def test_experts_in_eight_bits_are_a_few_percent_off() -> None:
    mlp, x, norm = made(), rows(9), RMSNorm(WIDTH, 1e-6)
    wanted, stepped = mlp(x), mlp.step(x, norm, x)
    mlp.quantise()
    assert not [name for name in mlp.state_dict() if "experts" in name], "nothing holds the old weights"
    assert 0 < (mlp(x) - wanted).norm() / wanted.norm() < 0.06
    assert 0 < (mlp.step(x, norm, x) - stepped).norm() / stepped.norm() < 0.06
    assert mlp.packed is not None
    plain = mlp.packed.plain(torch.float32)
    torch.testing.assert_close(grouped_experts(x, mlp.routed(x), plain), mlp(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="pack"):
        made(packed=False).quantise()


TWO = (
    HeldExperts((0, 2, 4, 5), ((0, 0), (4, 4), (1, 4), (4, 4), (2, 2), (4, 3))),
    HeldExperts((1, 2, 3, 5), ((4, 4), (0, 0), (4, 1), (2, 2), (4, 4), (3, 4))),
)
"""Shards that both hold experts 2 and 5: of odd rows the other one computes them."""


@torch.inference_mode()
def test_the_parts_of_shards_with_whole_experts_add_up() -> None:
    whole, shards, norm = made(), [made(held=held) for held in TWO], RMSNorm(WIDTH, 1e-6)
    for count in (1, 17):
        x = rows(count)
        wanted = naive(whole, x)
        for form in (SparseMLP.chosen, grouped, masked):
            torch.testing.assert_close(sum(form(mlp, x) for mlp in shards), wanted, rtol=1e-4, atol=1e-5)
        stepped = [mlp.step(x, norm, None) for mlp in shards]
        torch.testing.assert_close(sum(stepped), whole.step(x, norm, None), rtol=1e-4, atol=1e-5)
    for mlp, held in zip(shards, TWO, strict=True):
        assert {int(name.split(".")[1]) for name in mlp.state_dict() if name.startswith("experts.")} == {*held.experts}
    with pytest.raises(RuntimeError, match="pack"):
        made(packed=False, held=TWO[0])(rows(1))


def grouped(mlp: SparseMLP, x: Tensor) -> Tensor:
    assert mlp.packed is not None
    return grouped_experts(x, mlp.routed(x), mlp.packed)


def masked(mlp: SparseMLP, x: Tensor) -> Tensor:
    assert mlp.packed is not None
    return masked_experts(x, mlp.routed(x), mlp.packed)


@torch.inference_mode()
def test_shards_share_the_rows_of_an_expert_that_both_hold() -> None:
    whole, shards, x = made(), [made(held=held) for held in TWO], rows(64)
    routing = whole.routed(x)
    for expert in (2, 5):
        mine = []
        for mlp, held in zip(shards, TWO, strict=True):
            found = mlp.routed(x)
            mine.append({*(found.experts == held.experts.index(expert)).any(1).nonzero().flatten().tolist()})
        assert mine[0].isdisjoint(mine[1])
        assert mine[0] | mine[1] == {*(routing.experts == expert).any(1).nonzero().flatten().tolist()}
        assert min(map(len, mine)) > 2
    part = slice(9, 12)
    assert torch.equal(shards[0].routed(x[part]).experts, shards[0].routed(x).experts[part]), "wherever a row is"


@torch.inference_mode()
def test_a_shard_counts_the_experts_that_it_reads() -> None:
    norm, x = RMSNorm(WIDTH, 1e-6), rows(3)
    read = [expert.tolist() for expert in made().routed(norm(x)).experts]
    counted = []
    for held in TWO:
        mlp = made(held=held)
        mlp.tally = tally(torch.device("cpu"))
        mlp.step(x, norm, None)
        numbers = {held.numbers[expert][sum(row) % 2] for row in read for expert in row}
        counted.append(len(numbers - {4}))
        assert mlp.tally.tolist() == [1, counted[-1], counted[-1]]
    assert sum(counted) >= len({expert for row in read for expert in row})


@torch.inference_mode()
def test_whole_experts_in_eight_bits_are_those_of_the_whole() -> None:
    whole, shards, x = made(), [made(held=held) for held in TWO], rows(9)
    for mlp in (whole, *shards):
        mlp.quantise()
    torch.testing.assert_close(sum(mlp(x) for mlp in shards), whole(x), rtol=1e-4, atol=1e-5)


def test_pairs_are_in_the_order_of_their_experts() -> None:
    x, router = rows(7), rows(5, seed=3)
    routing = route(x, router, 3, renormed=True)
    torch.testing.assert_close(routing.shares.sum(1), torch.ones(7))
    order = by_expert(routing, 5)
    start = 0
    for expert, end in enumerate(order.ends.tolist()):
        mine = order.rows[start:end].tolist()
        assert mine == [row for row in range(7) if expert in routing.experts[row].tolist()]
        start = end
    assert start == 21
    for row in range(7):
        assert order.rows[order.places[row]].tolist() == [row] * 3
        assert order.shares[order.places[row]].tolist() == routing.shares[row].tolist()


def test_the_router_computes_in_float32() -> None:
    x, router = rows(4).bfloat16(), rows(6, seed=1).bfloat16()
    routing = route(x, router, 6, renormed=False)
    assert routing.shares.dtype == torch.float32
    wanted = F.linear(x.float(), router.float()).softmax(-1)
    torch.testing.assert_close(routing.shares, wanted.gather(1, routing.experts), rtol=1e-6, atol=1e-7)
