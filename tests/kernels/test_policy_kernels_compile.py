"""The kernels of modulated rows and of narrow blocks compile for Hopper, where the interpreter sees no types."""

from __future__ import annotations

import pytest

from tests.support.compiling import Compiler

SCRIPT = """
import triton
from triton.backends.compiler import GPUTarget
from walkgraph.layers.kernels import modulated, narrow_attention
from walkgraph.layers.kernels.modulated_config import Cut

TYPES = dict.fromkeys("squares partials cos sin weights".split(), "*fp32")
TYPES |= dict.fromkeys("counters bounds".split(), "*i32") | {"slots": "*i64", "eps": "fp32"}
TYPES |= dict.fromkeys("rows tokens stride bias_stride slot_stride gate_stride scale_stride".split(), "i32")


def compiled(kernel, constants, given, **types):
    names = [name for name in kernel.arg_names if name not in constants]
    known = {name: types.get(name, TYPES.get(name, "*bf16")) for name in names}
    signature = {name: "constexpr" if name in constants else known[name] for name in kernel.arg_names}
    even = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names)
            if signature[name][0] == "*" or name.endswith("stride")}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=even)
    found = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=given)
    assert "wgmma" in found.asm["ptx"] and found.metadata.shared <= 227 << 10, found.metadata.shared
    print(kernel.__name__)


def split(constants):
    return {k: constants.pop(k) for k in ("num_warps", "num_stages", "launch_pdl")}


cut = Cut(columns=32, depth=128, split=2, stages=4, ahead=512)
for kernel, halves, more in (
    (modulated.gated_kernel, 2, {"HEIGHT": 4096, "PARTS": 32}),
    (modulated.added_kernel, 1, {"HEIGHT": 1024}),
    (modulated.placed_kernel, 2, {"HEIGHT": 128, "PARTS": 32, "H": 8, "G": 1, "TURNS": True}),
):
    constants = modulated.constants(cut, 1024) | {"K": 1024, **more}
    given, tile = split(constants), f"tensordesc<bf16[{halves},{32 // halves},128]>"
    maps = {kernel.arg_names[0]: "tensordesc<bf16[64,128]>", "tiles": tile}
    compiled(kernel, constants, given, parts="i32", **maps)
constants = {"GROUPS": 1, "GROUP": 8, "D": 256, "ROWS": 64, "BLOCK": 64, "SPLITS": 16, "STAGES": 2, "JOINED": True,
             "OVERLAP": 1, "ON_GPU": True}
compiled(narrow_attention.parts_kernel, constants, {"num_warps": 8, "launch_pdl": True}, parts="*bf16")
"""


@pytest.mark.xdist_group("kernels/compiled")
def test_they_compile_for_hopper(compiler: Compiler) -> None:
    assert compiler.run(SCRIPT).split() == ["gated_kernel", "added_kernel", "placed_kernel", "parts_kernel"]
