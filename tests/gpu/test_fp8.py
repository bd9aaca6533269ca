"""On a GPU: products in eight bits against the same rounded numbers on a CPU, and a layer of them, captured."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from walkgraph.checkpoints.decoder import DecoderShape
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.flow_linear import FlowLinears, PlainFlowLinears
from walkgraph.layers.linear.fp8 import (
    Fp8FlowLinears,
    Scaled,
    product,
    quantise,
    scaled,
    scaled_gated,
    scaled_norm,
    supported,
)
from walkgraph.layers.norm.rms_norm import RMSNorm

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or not supported(torch.device("cuda"), torch.bfloat16),
        reason="needs an NVIDIA GPU of compute capability 9.0",
    ),
]
SHAPE = DecoderShape(
    width=512, heads=6, kv_heads=2, head_dim=128, hidden=1152, norm_eps=1e-6, qkv_bias=True, qk_norm=True
)
GEN = "_gen"


def off(got: torch.Tensor, wanted: torch.Tensor) -> float:
    wanted = wanted.float().cpu()
    return ((got.float().cpu() - wanted).norm() / wanted.norm()).item()


def normal(*shape: int) -> torch.Tensor:
    dice = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=dice).to("cuda", torch.bfloat16)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 64, 512), (34, 1152, 512), (4096, 512, 18944), (300, 4608, 3584)])
def test_a_product_is_that_of_the_rounded_numbers(m: int, n: int, k: int) -> None:
    x, weight, bias = scaled(normal(1, m, k)), Scaled.of(normal(n, k)), normal(n)
    wanted = F.linear(x.plain(), weight.plain(), bias.float())
    error = 4e-3 if k < 1024 else 2e-2  # the tensor cores' sums have fewer bits than float32
    assert off(product(x, weight, torch.bfloat16, bias), wanted) < error
    assert off(product(x, weight.rows(16, n - 16), torch.bfloat16), wanted[:, 16:] - bias[16:].float()) < error


def test_rows_are_those_of_a_cpu() -> None:
    x, norm = normal(70, 512), RMSNorm(512, 1e-6).to("cuda", torch.bfloat16)
    norm.weight.data.normal_(1, 0.2)
    plain = RMSNorm(512, 1e-6).bfloat16()
    plain.weight.data.copy_(norm.weight)
    for got, wanted in (
        (scaled_norm(x, norm), scaled_norm(x.cpu(), plain)),
        (scaled_gated(x), scaled_gated(x.cpu())),
        (scaled(x[None]), scaled(x[None].cpu())),
    ):
        assert off(got.plain(), wanted.plain()) < 2e-3  # a few lie between two


def layer() -> DecoderLayer:
    torch.manual_seed(3)
    made = DecoderLayer(SHAPE, ("", GEN)).requires_grad_(False)
    for name, value in made.named_parameters():
        value.normal_(std=0.3 if value.dim() == 1 else value.shape[-1] ** -0.5)
        if "norm" in name:
            value.add_(1)
    made.to("cuda", torch.bfloat16).pack()
    return made


def through(linears: FlowLinears, x: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    heads = heads + linears.qkv(x)[:, :768].view(3, -1, 768)
    linears.o(heads[:, 2:-2], x[: 3 * (heads.shape[1] - 4)])
    linears.mlp(x)
    return x


def test_a_captured_layer_gives_what_it_gives_outside_and_is_close_to_the_plain_one() -> None:
    plain, kept = layer(), layer()
    before = torch.cuda.memory_allocated()
    quantise(kept, GEN)
    assert torch.cuda.memory_allocated() < before
    x, heads = normal(360, 512), normal(3, 120, 768)
    with torch.inference_mode():
        small = Fp8FlowLinears(kept, GEN)
        wanted, theirs = through(small, x, heads), through(PlainFlowLinears(plain, GEN), x, heads)
        assert 0.005 < off(wanted - x, theirs - x) < 0.06
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = through(small, x, heads)
        for _ in range(2):
            got.zero_()
            graph.replay()
            assert off(got, wanted) < 1e-3
