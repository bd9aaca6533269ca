"""The kernel of short vocabularies compiles for Hopper, where the interpreter sees no types."""

from __future__ import annotations

import pytest

from tests.support.compiling import Compiler

SCRIPT = """
import triton
from triton.backends.compiler import GPUTarget
from walkgraph.layers.kernels.sampling_short import LONGEST, WARPS, short_kernel

TYPES = {"logits": "*bf16", "stride": "i32", "counts": "*i16", "rows": "*i32", "out": "*i64"}
TYPES |= dict.fromkeys(("seed", "position", "top_k"), "*i64")
FLAGS = ("ROWS", "REPETITION", "PRESENCE", "FREQUENCY", "TOP_K", "TOP_P", "MIN_P", "PDL")

for used in (True, False):
    constants = dict.fromkeys(FLAGS, used) | {"UNIT": 8, "V": LONGEST - 1, "BLOCK": LONGEST}
    signature = {n: "constexpr" if n in constants else TYPES.get(n, "*fp32") for n in short_kernel.arg_names}
    source = triton.compiler.ASTSource(fn=short_kernel, signature=signature, constexprs=constants)
    options = {"num_warps": WARPS, "launch_pdl": used, "enable_fp_fusion": False}
    found = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert found.metadata.shared <= 227 << 10, found.metadata.shared
    assert "fma.rn.f32" not in found.asm["ptx"], "a recomputed score must be the same number"
    print(used)
"""


@pytest.mark.xdist_group("kernels/compiled")
def test_it_compiles_for_hopper(compiler: Compiler) -> None:
    assert compiler.run(SCRIPT).split() == ["True", "False"]
