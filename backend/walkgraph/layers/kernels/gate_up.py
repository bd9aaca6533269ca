"""silu(x @ gate.T) * (x @ up.T), or the tanh form of gelu, for thousands of rows in one launch: the intermediate result
stays in registers, which saves writing and reading twice a model's hidden width.

Programs stay on their multiprocessor and process tile after tile. A tile's gate and up columns form one operand of 256
columns for the tensor cores, so that the rows are read from shared memory once for both; the next tile's loads overlap
the end of the present one.

Shape letters: R rows, W model width, F hidden width.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from walkgraph.layers.kernels.gated import opened

ROWS, COLUMNS, DEPTH = 128, 128, 64
WARPS, STAGES = 8, 4
"""Two groups of four warps hold a tile's sums; four stages of operands and the result fill Hopper's shared memory."""
GROUP = 16
"""Tiles of rows that step through the columns together: they stay in L2, and each weight is read once for all of
them."""
_ALIGNED = 16
"""Bytes of a row's stride, for copies of tiles."""


@triton.jit(do_not_specialize=["rows"])
def gate_up_kernel(
    x, weight, out, rows, columns, depth,
    BLOCK_R: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_W: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr,
    GELU: tl.constexpr,
):  # fmt: skip
    """Descriptors of x `[R, W]`, weight `[2, F, W]` and out `[R, F]`; what lies outside is 0 and not written."""
    down, across = tl.cdiv(rows, BLOCK_R), tl.cdiv(columns, BLOCK_F)
    for tile in tl.range(tl.program_id(0), down * across, PROGRAMS, flatten=True):
        first = tile // (GROUP * across) * GROUP
        within, high = tile % (GROUP * across), tl.minimum(down - first, GROUP)
        r, f = (first + within % high) * BLOCK_R, within // high * BLOCK_F
        total = tl.zeros((BLOCK_R, 2 * BLOCK_F), tl.float32)
        for w in range(0, depth, BLOCK_W):
            both = weight.load([0, f, w]).reshape(2 * BLOCK_F, BLOCK_W)
            total = tl.dot(x.load([r, w]), both.T, total)
        gate, up = total.reshape(BLOCK_R, 2, BLOCK_F).permute(0, 2, 1).split()
        out.store([r, f], (opened(gate, GELU) * up).to(out.dtype))


@cache
def programs_of(device: torch.device) -> int:
    """Number of programs that the device runs at once; 0 if the tiles aren't made for it."""
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count if properties.major == 9 else 0


def unfit(x: Tensor, weight: Tensor) -> str | None:
    """The reason that these can't be multiplied here; None if they can."""
    if x.dtype not in (torch.bfloat16, torch.float16) or weight.dtype != x.dtype:
        return "rows and weights must have one type of two-byte numbers"
    if not (x.is_contiguous() and weight.is_contiguous()):
        return "rows and weights must be contiguous"
    if any(width * x.itemsize % _ALIGNED for width in (x.shape[1], weight.shape[0] // 2)):
        return f"rows must be multiples of {_ALIGNED} bytes"
    return None


def gate_up(x: Tensor, weight: Tensor, programs: int, *, gelu: bool = False) -> Tensor:
    """x `[R, W]`, weight `[2F, W]`, gate rows first -> `[R, F]` of x's type, rounded once.

    Raises ValueError for what is `unfit`."""
    if (why := unfit(x, weight)) is not None:
        raise ValueError(why)
    (rows, depth), columns = x.shape, weight.shape[0] // 2
    out = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    tiles = triton.cdiv(rows, ROWS) * triton.cdiv(columns, COLUMNS)
    gate_up_kernel[(min(tiles, programs),)](
        TensorDescriptor.from_tensor(x, [ROWS, DEPTH]),
        TensorDescriptor(weight, [2, columns, depth], [columns * depth, depth, 1], [2, COLUMNS, DEPTH]),
        TensorDescriptor.from_tensor(out, [ROWS, COLUMNS]),
        rows, columns, depth,
        BLOCK_R=ROWS, BLOCK_F=COLUMNS, BLOCK_W=DEPTH, GROUP=GROUP, PROGRAMS=programs, GELU=gelu,
        num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return out
