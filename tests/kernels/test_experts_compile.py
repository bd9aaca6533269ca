"""The kernels of a mixture of experts compile for Hopper and fit its shared memory, where the interpreter sees neither
types nor memory.
"""

from __future__ import annotations

import pytest

from tests.support.compiling import Compiler

SCRIPT = """
import triton
from triton.backends.compiler import GPUTarget
from walkgraph.layers.kernels import experts
from walkgraph.layers.kernels.experts_config import Sizes

TYPES = dict.fromkeys("logits shares partials scales".split(), "*fp32")
TYPES |= dict.fromkeys("table masks counters".split(), "*i32")
TYPES |= {"tally": "*i64", "eps": "fp32", "rows": "i32", "pairs": "i32"}
OPTIONS = ("num_warps", "num_stages", "launch_pdl")


def compiled(kernel, constants, eight):
    given = {name: constants.pop(name) for name in OPTIONS if name in constants}
    names, weight = kernel.arg_names, "fp8e4nv" if eight else "bf16"
    halves = "2," if kernel is experts.inner_kernel else ""
    tile = f"tensordesc<{weight}[{halves}{constants.get('BLOCK')},{constants.get('DEPTH')}]>"
    known = TYPES | {"tiles": tile, "down": f"*{weight}", "gate_up": f"*{weight}"}
    if not eight:
        constants["scales"] = None
    constants = {name: value for name, value in constants.items() if name in names}
    signature = {name: "constexpr" if name in constants else known.get(name, "*bf16") for name in names}
    apart = {"counters"}
    even = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names)
            if signature[name][0] == "*" and name not in apart}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=even)
    found = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=given)
    assert ("mma" in found.asm["ptx"]) == (kernel is not experts.choose_kernel)
    assert ("griddepcontrol.wait" in found.asm["ptx"]) == given["launch_pdl"]
    assert found.metadata.shared <= 227 << 10, found.metadata.shared
    print(kernel.__name__)


for rows, eight in ((1, False), (9, False), (64, False), (64, True)):
    sizes = Sizes(rows=rows, width=2048, hidden=768, experts=128, chosen=8, eight=eight)
    for kernel, constants in experts.constants(sizes, renormed=True, residual=True, pdl=True):
        compiled(kernel, constants, eight)
"""


@pytest.mark.xdist_group("kernels/compiled")
def test_they_compile_for_hopper(compiler: Compiler) -> None:
    assert compiler.run(SCRIPT).split() == ["choose_kernel", "inner_kernel", "outer_kernel"] * 4
