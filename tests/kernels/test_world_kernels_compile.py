"""The kernels of many rows' products, of blocks in a paged cache and of norms compile for Hopper and fit its shared
memory, where the interpreter sees neither types nor memory.

In a process of its own: in this one, kernels are interpreted.
"""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import triton
from triton.backends.compiler import GPUTarget
from walkgraph.layers.kernels import layer_norm, paged_block_kernels, paged_blocks, product, product_tiles
from walkgraph.layers.kernels.product_config import ALIKE, STAYS, Cut

TYPES = dict.fromkeys("parts weights partials cos sin".split(), "*fp32")
TYPES |= dict.fromkeys("rows pages lengths counters".split(), "*i32") | {"eps": "fp32"}
NUMBERS = "down stride tokens count whole splits least reach qkv_stride row_stride token_stride slot_stride"
TYPES |= dict.fromkeys(NUMBERS.split(), "i32")
OPTIONS = ("num_warps", "num_stages", "launch_pdl")


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


def tile(*shape):
    return f"tensordesc<bf16[{','.join(map(str, shape))}]>"


ending = {"BIAS": True, "ACT": 1, "RESIDUAL": True, "ON_GPU": True}
for cut in (Cut(64, 128), ALIKE):
    options = {"num_warps": cut.warps, "num_stages": cut.stages, "launch_pdl": True}
    compiled(
        product_tiles.blocks_kernel, product.blocks_arguments(cut, 258, 4096, 1024) | ending | options,
        x=tile(cut.m, cut.k), x_tail=tile(16, cut.k), tiles=tile(cut.n, cut.k), rows="i32",
    )
cut = STAYS
half = tile(cut.m, cut.n // 2)
options = {"num_warps": cut.warps, "num_stages": cut.stages, "launch_pdl": True}
compiled(
    product_tiles.stays_kernel, product.stays_arguments(cut, 4096, 1024) | ending | options,
    x=tile(cut.m, cut.k), tiles=tile(cut.n, cut.k), residual=half, out=half, rows="i32",
)
for cut in paged_blocks.CUTS.values():
    compiled(paged_block_kernels.attend_kernel, paged_blocks.constants(cut, 258, 16, 16, 64, 16, True))
heads = {"H": 22, "G": 22, "D": 64, "HEADS": 32, "EACH": 2, "PAGE": 16, "PDL": True}
compiled(paged_block_kernels.place_kernel, heads | {"launch_pdl": True}, tensor_cores=False)
compiled(
    layer_norm.norm_kernel, {"W": 1408, "BLOCK": 2048, "EACH": 4, "ADDS": False, "SHIFTS": True, "PDL": True, "launch_pdl": True},
    tensor_cores=False, rows="i32", weight="*bf16",
)
"""


def test_they_compile_for_hopper() -> None:
    outside = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=outside, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    names = ["blocks_kernel"] * 2 + ["stays_kernel"] + ["attend_kernel"] * 3 + ["place_kernel", "norm_kernel"]
    assert done.stdout.split() == names
