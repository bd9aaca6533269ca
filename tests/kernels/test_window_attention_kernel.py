"""Attention in a window in one launch against its naive twin in float32. The interpreter multiplies float16."""

from __future__ import annotations

import pytest
import torch

from tests.support.compiling import Compiler
from walkgraph.layers.attention.sliding_window import WindowAttend
from walkgraph.layers.kernels.window_attention import window_attention
from walkgraph.layers.rope import NeoxRope

COMPILES = """
import triton
from triton.backends.compiler import GPUTarget
from walkgraph.layers.kernels.window_attention import WARPS, window_kernel as kernel

types = {"start": "*i64", "rows": "*i64", "frequencies": "*fp32", "scale": "fp32"}
types |= dict.fromkeys(("frames", "places", "past_row"), "i32")
for frames, warps in zip((16, 32, 64), (*WARPS.values(), 8)):
    constants = {"H": 16, "G": 16, "D": 64, "M": frames, "P": 128, "PDL": True}
    signature = {name: "constexpr" if name in constants else types.get(name, "*bf16") for name in kernel.arg_names}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "launch_pdl": True})
    print(frames)
"""


@pytest.mark.parametrize(("frames", "window"), [(1, 5), (10, 72), (25, 20), (40, 6)])
@pytest.mark.parametrize(("heads", "groups"), [(2, 2), (4, 2)])
def test_it_attends_and_keeps_what_its_twin_does(
    frames: int, window: int, heads: int, groups: int, device: str
) -> None:
    dtype = torch.bfloat16 if device == "cuda" else torch.float16
    torch.manual_seed(frames)
    rope, start = NeoxRope(32, 100.0), torch.tensor([0, 3, 2000])
    pasts, rows = torch.randn(5, 2, 2, window - 1, groups, 32).to(dtype), torch.tensor([4, 0, 3])
    # Nothing of what was there before a stream began is read.
    pasts[4] = torch.nan
    qkv = torch.randn(3 * frames, (heads + 2 * groups) * 32).to(dtype)
    exact, moved = pasts.float(), pasts.to(device, copy=True)
    wanted = WindowAttend(exact, rows, start, frames, rope)(1, qkv.float(), heads)
    given = (rows.to(device), start.to(device), rope.frequencies(torch.device("cpu")).to(device), frames, heads)
    made = window_attention(qkv.to(device), moved[:, 1], *given)
    rtol, atol = (2e-2, 2e-2) if device == "cuda" else (2e-3, 2e-3)
    torch.testing.assert_close(made.cpu().float(), wanted, rtol=rtol, atol=atol)
    torch.testing.assert_close(moved[rows.to(device), 1].cpu().float(), exact[rows, 1], rtol=rtol, atol=atol)
    left = moved.cpu()
    torch.testing.assert_close(left[:, 0], pasts[:, 0], rtol=0.0, atol=0.0, equal_nan=True)
    assert torch.equal(left[1:3], pasts[1:3]), "other streams' pasts are left alone"


@pytest.mark.xdist_group("kernels/compiled")
def test_it_compiles_for_hopper(compiler: Compiler) -> None:
    assert compiler.run(COMPILES).split() == ["16", "32", "64"]
