"""The kernels of blocks in a paged cache and of norms compile for Hopper and fit its shared
memory, where the interpreter sees neither types nor memory.
"""

from __future__ import annotations

import pytest

from tests.support.compiling import Compiler

SCRIPT = """
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from tests.kernels.everywhere.driver import Imagined
from walkgraph.layers.kernels.gpu import KINDS
from walkgraph.layers.kernels import layer_norm, paged_block_kernels, paged_blocks, paged_many_kernels

TYPES = dict.fromkeys("parts weights cos sin".split(), "*fp32")
TYPES |= dict.fromkeys("rows pages lengths counters".split(), "*i32") | {"eps": "fp32"}
NUMBERS = "tokens count whole splits least reach qkv_stride row_stride token_stride slot_stride"
TYPES |= dict.fromkeys(NUMBERS.split(), "i32")
OPTIONS = ("num_warps", "num_stages", "maxnreg", "launch_pdl")


def compiled(kernel, constants, tensor_cores=True, **types):
    given = {name: constants.pop(name) for name in OPTIONS if name in constants}
    names = kernel.arg_names
    known = {name: types.get(name, TYPES.get(name, "*bf16")) for name in names}
    signature = {name: "constexpr" if name in constants else known[name] for name in names}
    even = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names)
            if signature[name][0] == "*" or name.endswith("stride")}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=even)
    found = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=given)
    assert ("wgmma" in found.asm["ptx"]) == tensor_cores
    assert found.metadata.shared <= 227 << 10, found.metadata.shared
    print(kernel.__name__)


driver.set_active(Imagined(KINDS["H100"], 0))
for cut in paged_blocks.CUTS.values():
    kernel = paged_many_kernels.attend_many_kernel if cut.joined else paged_block_kernels.attend_kernel
    given = paged_blocks.constants(cut, 258, 16, 16, 64, 16)
    compiled(kernel, given | ({"SLOT": 1024} if cut.joined else {}))
heads = {"H": 22, "G": 22, "D": 64, "HEADS": 32, "EACH": 2, "PAGE": 16, "PDL": True}
compiled(paged_block_kernels.place_kernel, heads | {"launch_pdl": True}, tensor_cores=False)
compiled(
    layer_norm.norm_kernel,
    {"W": 1408, "BLOCK": 2048, "EACH": 4, "ADDS": False, "SHIFTS": True, "PDL": True, "launch_pdl": True},
    tensor_cores=False, rows="i32", weight="*bf16",
)
"""


@pytest.mark.xdist_group("kernels/compiled")
def test_they_compile_for_hopper(compiler: Compiler) -> None:
    names = ["attend_kernel"] * 2 + ["attend_many_kernel"] + ["place_kernel", "norm_kernel"]
    assert compiler.run(SCRIPT).split() == names
