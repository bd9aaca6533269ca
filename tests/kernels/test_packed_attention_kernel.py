"""Attention within short blocks against its naive twin in float32. The interpreter multiplies float16."""

from __future__ import annotations

import pytest
import torch

from tests.support.compiling import Compiler
from walkgraph.layers.attention.packed_blocks import PackedBlocks
from walkgraph.layers.kernels.packed_attention import packed_attention

COMPILES = """
import triton
from triton.backends.compiler import GPUTarget
from walkgraph.layers.kernels.packed_attention import packed_kernel as kernel

types = {"bounds": "*i32", "rows": "i32", "stride": "i32", "bounds_count": "i32", "scale": "fp32"}
constants = {"H": 20, "D": 64, "M": 16, "KEYS": 128, "BOUNDS": 16}
signature = {name: "constexpr" if name in constants else types.get(name, "*bf16") for name in kernel.arg_names}
for capability in 80, 90:
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
    triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 4})
    print(capability)
"""


@pytest.mark.parametrize(
    ("bounds", "rows"),
    [([0, 13], 13), ([0, 5, 5, 39, 40, 64], 64), ([0, 104, 208, 250], 250), ([0, 20, 33, 33, 33], 48)],
)
def test_rows_attend_their_block_alone(bounds: list[int], rows: int, device: str) -> None:
    dtype = torch.bfloat16 if device == "cuda" else torch.float16
    torch.manual_seed(rows)
    q, k, v = torch.randn(rows, 3 * 2 * 32).to(dtype).unflatten(1, (3, 2, 32)).unbind(1)
    ends = torch.tensor(bounds, dtype=torch.int32)
    wanted = PackedBlocks(ends, 104, 2)(q.float(), k.float(), v.float())[: bounds[-1]]
    whole = torch.stack([q, k, v], 1).to(device)
    made = packed_attention(*whole.unbind(1), ends.to(device), 104)
    assert made.shape == q.shape
    rtol, atol = (2e-2, 2e-2) if device == "cuda" else (2e-3, 2e-3)
    torch.testing.assert_close(made[: bounds[-1]].float().cpu(), wanted, rtol=rtol, atol=atol)


@pytest.mark.xdist_group("kernels/compiled")
def test_it_compiles(compiler: Compiler) -> None:
    assert compiler.run(COMPILES).split() == ["80", "90"]
