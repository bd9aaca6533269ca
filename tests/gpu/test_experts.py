"""On a GPU, in bfloat16: a full-size layer of experts against itself in float32, alone, in batches and captured."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from walkgraph.architectures.drawn import drawn
from walkgraph.checkpoints.language import ExpertSizes
from walkgraph.layers.invariance import batch_invariant
from walkgraph.layers.linear.step_linear import linear
from walkgraph.layers.moe.packed_experts import PackedExperts
from walkgraph.layers.moe.routing import by_expert, likeliest, route
from walkgraph.layers.moe.sparse_mlp import SparseMLP, masked_experts
from walkgraph.layers.norm.rms_norm import RMSNorm

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
WIDTH, SIZES = 2048, ExpertSizes(experts=128, chosen=8, hidden=768, renormed=True)
CUDA = torch.device("cuda")


@pytest.fixture(scope="module", params=["bf16", "fp8"])
def mlp(request: pytest.FixtureRequest) -> SparseMLP:
    made = drawn(lambda: SparseMLP(WIDTH, SIZES), 0, device=CUDA, dtype=torch.bfloat16)
    made.pack()
    if request.param == "fp8":
        made.quantise()
    return made


@pytest.fixture(scope="module")
def norm() -> RMSNorm:
    return drawn(lambda: RMSNorm(WIDTH, 1e-6), 1, device=CUDA, dtype=torch.bfloat16)


def rows(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed)).to(CUDA, torch.bfloat16)


def logits(mlp: SparseMLP, norm: RMSNorm, x: Tensor) -> Tensor:
    return linear(x, mlp.gate.weight, norm=norm.weight, eps=norm.eps, exact=True)


def exact(mlp: SparseMLP, norm: RMSNorm, x: Tensor, *, step: bool = False) -> Tensor:
    """float32, but for the roundings that decide close choices of experts: those of a step, or of many rows."""
    assert mlp.packed is not None
    normed, how = norm(x), {"chosen": SIZES.chosen, "renormed": SIZES.renormed}
    routing = likeliest(logits(mlp, norm, x), **how) if step else route(normed, mlp.gate.weight, **how)
    plain = mlp.packed.plain(torch.float32)
    return masked_experts(normed.float(), routing, PackedExperts(plain.gate_up.float(), plain.down.float()))


def off(got: Tensor, wanted: Tensor) -> float:
    return float((got.float() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("count", [1, 3, 8, 16, 17, 33, 64])
@torch.inference_mode()
def test_a_step_is_near_to_float32(mlp: SparseMLP, norm: RMSNorm, count: int) -> None:
    x = rows(count)
    wanted = exact(mlp, norm, x, step=True)
    assert off(logits(mlp, norm, x), norm(x).float() @ mlp.gate.weight.float().T) < 0.01
    assert off(mlp.step(x, norm, None), wanted) < 0.03
    assert off(mlp.step(x, norm, x), wanted + x.float()) < 0.03


@pytest.mark.parametrize("count", [65, 700, 9000])
@torch.inference_mode()
def test_many_rows_are_near_to_float32(mlp: SparseMLP, norm: RMSNorm, count: int) -> None:
    x = rows(count)
    assert off(mlp(norm(x)), exact(mlp, norm, x)) < 0.03


@torch.inference_mode()
def test_a_captured_graph_serves_any_routing(mlp: SparseMLP, norm: RMSNorm) -> None:
    for count, work in ((16, lambda x: mlp.step(x, norm, x)), (300, lambda x: mlp(norm(x)))):
        x, stream, graph = rows(count), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            work(x)
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            out = work(x)
        for seed in (1, 2):
            fresh = rows(count, seed)
            x.copy_(fresh)
            graph.replay()
            assert torch.equal(out, work(fresh))


@torch.inference_mode()
def test_a_row_steps_alike_among_any_others(mlp: SparseMLP, norm: RMSNorm) -> None:
    x = rows(64)
    with batch_invariant():
        together = mlp.step(x, norm, x)
        for first, last in ((0, 1), (17, 18), (63, 64), (0, 3), (5, 21), (30, 63)):
            assert torch.equal(mlp.step(x[first:last], norm, x[first:last]), together[first:last]), (first, last)


@torch.inference_mode()
def test_one_expert_may_have_all_rows(mlp: SparseMLP, norm: RMSNorm) -> None:
    x = rows(1).expand(64, WIDTH).contiguous()
    routing = mlp.routed(norm(x))
    assert int(by_expert(routing, SIZES.experts).ends[-1]) == 64 * SIZES.chosen
    assert len(routing.experts.unique()) == SIZES.chosen
    got = mlp.step(x, norm, None)
    assert off(got, exact(mlp, norm, x, step=True)) < 0.03
    assert torch.equal(got, got[:1].expand_as(got))
