"""Attention in a window in one launch against its naive twin in float32. The interpreter multiplies float16."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from walkgraph.layers.attention.sliding_window import WindowAttend
from walkgraph.layers.kernels.window_attention import window_attention
from walkgraph.layers.rope import NeoxRope

COMPILES = """
import triton
from triton.backends.compiler import GPUTarget
from walkgraph.layers.kernels.window_attention import window_kernel as kernel

types = {"start": "*i64", "frequencies": "*fp32", "scale": "fp32"}
types |= dict.fromkeys(("frames", "past", "before_row", "after_row"), "i32")
for frames in 16, 32, 64:
    constants = {"H": 16, "G": 16, "HALF": 32, "M": frames, "P": 128, "PDL": True}
    signature = {name: "constexpr" if name in constants else types.get(name, "*bf16") for name in kernel.arg_names}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "launch_pdl": True})
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
    before = torch.randn(3, 2, 2, window - 1, groups, 32).to(dtype)
    qkv = torch.randn(3 * frames, (heads + 2 * groups) * 32).to(dtype)
    attend = WindowAttend(before.float(), start, frames, rope)
    wanted = attend(1, qkv.float(), heads)
    past, after = before.to(device)[:, 1], torch.full_like(before, torch.nan).to(device)
    given = (start.to(device), rope.frequencies(torch.device("cpu")).to(device), frames, heads)
    made = window_attention(qkv.to(device), past, after[:, 1], *given)
    close = {"rtol": 2e-2, "atol": 2e-2} if device == "cuda" else {"rtol": 2e-3, "atol": 2e-3}
    torch.testing.assert_close(made.cpu().float(), wanted, **close)
    torch.testing.assert_close(after[:, 1].cpu().float(), attend.after[:, 1], **close)
    assert after[:, 0].isnan().all(), "another layer's past is left alone"


def test_it_compiles_for_hopper() -> None:
    """In a process of its own: in this one, kernels are interpreted."""
    outside = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", COMPILES], env=outside, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["16", "32", "64"]
