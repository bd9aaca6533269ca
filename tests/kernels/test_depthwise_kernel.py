"""The convolution of each channel with its norm, in one launch, against its naive twin in float32."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from tests.support.compiling import Compiler
from walkgraph.layers.kernels.depthwise import depthwise_norm
from walkgraph.layers.sound.causal_conv import DepthwiseConv, Tails

COMPILES = """
import triton
from triton.backends.compiler import GPUTarget
from walkgraph.layers.kernels.depthwise import depthwise_kernel as kernel

types = {"eps": "fp32"} | dict.fromkeys(("length", "before_row", "after_row"), "i32")
constants = {"C": 1024, "BLOCK": 1024, "TAPS": 7, "PDL": True}
signature = {name: "constexpr" if name in constants else types.get(name, "*bf16") for name in kernel.arg_names}
source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "launch_pdl": True})
print("compiled")
"""


@pytest.mark.parametrize("cuts", [(), (12,), (1, 3, 10)])
@pytest.mark.parametrize("channels", [64, 96])
def test_it_mixes_norms_and_keeps_what_its_twin_does(channels: int, cuts: tuple[int, ...], device: str) -> None:
    dtype = torch.bfloat16 if device == "cuda" else torch.float16
    torch.manual_seed(channels)
    conv, norm = DepthwiseConv(channels, 7).requires_grad_(False), nn.LayerNorm(channels, eps=1e-6)
    norm.requires_grad_(False).weight.normal_(1.0, 0.2)
    norm.bias.normal_()
    conv, norm = conv.to(dtype), norm.to(dtype)
    exact, plain = deepcopy(conv).float(), deepcopy(norm).float()
    conv, norm = conv.to(device), norm.to(device)
    x, (lacks, then), begin = torch.randn(3, 17, channels), torch.randn(2, channels), torch.randn(3, 6 * channels)
    x, lacks, then, begin = (one.to(dtype) for one in (x, lacks, then, begin))
    wanted = exact.normed(x.float(), lacks.float(), plain, tails := Tails(begin.float()), then=then.float())
    kept, normed, rest = list[Tensor](), list[Tensor](), begin.to(device)
    taps, bias = conv.conv.weight[:, 0], conv.conv.bias
    assert bias is not None
    for start, stop in pairwise((0, *cuts, 17)):
        part, after = x[:, start:stop].contiguous().to(device), torch.full_like(rest, torch.nan)
        one, two = depthwise_norm(part, lacks.to(device), then.to(device), rest, after, taps, bias, norm)
        kept.append(one.cpu().float())
        normed.append(two.cpu().float())
        rest = after
    rtol, atol = (2e-2, 3e-2) if device == "cuda" else (3e-3, 4e-3)
    torch.testing.assert_close(torch.cat(kept, 1), wanted[0], rtol=rtol, atol=atol)
    torch.testing.assert_close(torch.cat(normed, 1), wanted[1], rtol=rtol, atol=atol)
    torch.testing.assert_close(rest.cpu().float(), tails.after, rtol=rtol, atol=atol)


@pytest.mark.xdist_group("kernels/compiled")
def test_it_compiles_for_hopper(compiler: Compiler) -> None:
    assert compiler.run(COMPILES).split() == ["compiled"]
