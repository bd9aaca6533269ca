"""One step of a mixture of experts behind its router's logits: launches of the kernels in `experts_kernels`."""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportOperatorIssue=false

from typing import TYPE_CHECKING, Any

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from walkgraph.layers.invariance import is_batch_invariant
from walkgraph.layers.kernels.experts_config import MOST_ROWS, Blocks, Sizes
from walkgraph.layers.kernels.experts_kernels import choose_kernel, inner_kernel, outer_kernel
from walkgraph.layers.kernels.gpu import can_overlap, is_compiled, present
from walkgraph.layers.kernels.workspaces import Workspaces
from walkgraph.layers.linear.fp8_format import FP8

if TYPE_CHECKING:
    from walkgraph.checkpoints.language import ExpertSizes
    from walkgraph.layers.moe.packed_experts import PackedExperts

TILE = 16
"""Rows of a tile: the fewest that the tensor cores multiply. An expert rarely has more rows of a step."""
MOST_EXPERTS = 512
_MULTIPLE = 16
"""Widths must be multiples of this."""
_COUNTERS = 4096


def _made(device: torch.device) -> Tensor:
    return torch.zeros(_COUNTERS, dtype=torch.int32, device=device)


counters = Workspaces(_made, "run a mixture of experts")
"""int32, zeros between launches: of the tiles of down."""


def unfit(x: Tensor, weights: "PackedExperts") -> str | None:
    """The reason that these can't be computed here; None if they can."""
    gate_up, down = weights.gate_up, weights.down
    experts, width, hidden = down.shape
    if x.dtype not in (torch.bfloat16, torch.float16) or weights.dtype not in (x.dtype, FP8):
        return "rows must be of two-byte numbers, and weights of the same or of eight bits with scales"
    if not 0 < x.shape[0] <= MOST_ROWS or experts > MOST_EXPERTS:
        return f"at most {MOST_ROWS} rows and {MOST_EXPERTS} experts can be computed"
    if width % _MULTIPLE or hidden % _MULTIPLE or width // _MULTIPLE > _COUNTERS:
        return f"widths must be multiples of {_MULTIPLE}"
    return None if gate_up.is_contiguous() and down.is_contiguous() else "weights must be contiguous"


def sparse_step(
    x: Tensor,
    logits: Tensor,
    weights: "PackedExperts",
    sizes: "ExpertSizes",
    norm: Tensor,
    eps: float,
    residual: Tensor | None = None,
    tally: Tensor | None = None,
) -> Tensor:
    """x `[R, W]`, not yet normed, the router's logits float32 `[R, E]`, norm `[W]`, residual `[R, W]` -> `[R, W]`.
    `tally`: counts the experts that are read.

    Raises ValueError for what is `unfit`."""
    if (why := unfit(x, weights)) is not None:
        raise ValueError(why)
    eight = weights.dtype == FP8
    made = Sizes(*x.shape, weights.down.shape[2], sizes.experts, sizes.chosen, eight, is_batch_invariant())
    x, logits = x.contiguous(), logits.contiguous()
    residual = None if residual is None else residual.contiguous()
    table = torch.empty(made.pairs, dtype=torch.int32, device=x.device)
    shares, partials = (torch.empty(n, device=x.device) for n in (made.pairs, made.pairs * made.width))
    inner, normed, out = x.new_empty(made.pairs, made.hidden), torch.empty_like(x), torch.empty_like(x)
    launches = constants(made, renormed=sizes.renormed, residual=residual is not None, pdl=can_overlap())
    (_, chosen), (_, first), (_, second) = launches
    masks = torch.empty(made.rows, chosen["ALL"] // 32, dtype=torch.int32, device=x.device)
    gate_up, down = maps(weights, made.blocks)
    first_grid, second_grid = (
        (one["SHARING"] * processors() or made.groups * (width // one["BLOCK"]),)
        for one, width in ((first, made.hidden), (second, made.width))
    )
    choose_kernel[(made.rows,)](x, norm, logits, normed, table, shares, masks, eps, **chosen)
    inner_kernel[first_grid](
        normed, gate_up, weights.gate_up, weights.gate_up_scale, table, masks, inner, tally, made.rows, **first
    )
    outer_kernel[second_grid](
        inner, down, weights.down, weights.down_scale, table, masks, shares, residual, partials, counters(x.device),
        out, made.rows, **second,
    )  # fmt: skip
    return out


def processors() -> int:
    """The GPU's processors; a few for the interpreter."""
    return present().processors if is_compiled() else 3


def maps(weights: "PackedExperts", blocks: Blocks) -> tuple[TensorDescriptor, TensorDescriptor]:
    """Tensor maps of gate and up, `[2E, F, W]`, and of down, `[E * W, F]`."""
    experts, width, hidden = weights.down.shape
    return (
        TensorDescriptor(
            weights.gate_up, [2 * experts, hidden, width], [hidden * width, width, 1], [2, blocks.inner, blocks.depth]
        ),
        TensorDescriptor(weights.down, [experts * width, hidden], [hidden, 1], [blocks.outer, blocks.outer_depth]),
    )


def constants(
    sizes: Sizes, *, renormed: bool, residual: bool, pdl: bool, blocks: Blocks | None = None
) -> list[tuple[Any, dict[str, Any]]]:
    """The kernels in their order, with their compile-time arguments and options."""
    blocks = blocks or sizes.blocks
    common: dict[str, Any] = {"CHOSEN": sizes.chosen, "PDL": pdl, "launch_pdl": pdl}
    experts = max(32, _power(sizes.experts))
    products = {
        "W": sizes.width, "F": sizes.hidden, "E": sizes.experts, "M": TILE, "ALL": experts,
        "MOST": 1 if sizes.rows == 1 else _power(sizes.rows), "PLACES": triton.next_power_of_2(sizes.chosen),
        "LIKELY": sizes.pairs >= sizes.experts, "ON_GPU": is_compiled(), **common,
    }  # fmt: skip
    chosen = {
        "W": sizes.width, "WIDTH": _power(sizes.width), "E": sizes.experts, "ALL": experts, "RENORMED": renormed,
        "num_warps": 4, **common,
    }  # fmt: skip
    first = {
        "BLOCK": blocks.inner, "DEPTH": blocks.depth, "STAGES": blocks.inner_stages, "SHARING": blocks.inner_sharing,
        "num_warps": blocks.inner_warps,
    }  # fmt: skip
    second = {
        "BLOCK": blocks.outer, "DEPTH": blocks.outer_depth, "STAGES": blocks.outer_stages, "RESIDUAL": residual,
        "SHARING": blocks.outer_sharing,
        "COUNTED": max(32 * blocks.outer_warps, _power(sizes.width // blocks.outer)), "num_warps": blocks.outer_warps,
    }  # fmt: skip
    return [(choose_kernel, chosen), (inner_kernel, products | first), (outer_kernel, products | second)]


def _power(least: int) -> int:
    """The smallest power of two of at least this, and 16."""
    return max(16, 1 << (least - 1).bit_length())


def warm(sizes: Sizes, blocks: Blocks, dtype: torch.dtype) -> None:
    """Compile the products with these tiles into Triton's cache, for bfloat16 rows and the present GPU; nothing is
    launched. `dtype`: of the weights."""
    from walkgraph.layers.moe.packed_experts import PackedExperts

    given, exact, whole = torch.bfloat16, torch.float32, torch.int32
    scale = exact if dtype == FP8 else None
    experts, width, hidden = sizes.experts, sizes.width, sizes.hidden
    like = (torch.empty(shape, dtype=dtype, device="meta") for shape in ((2 * hidden, width), (width, hidden)))
    gate_up, down = maps(PackedExperts(*(one.expand(experts, -1, -1) for one in like)), blocks)
    _, (_, first), (_, second) = constants(sizes, renormed=True, residual=True, pdl=True, blocks=blocks)
    inner_kernel.warmup(given, gate_up, dtype, scale, whole, whole, given, torch.int64, sizes.rows, **first, grid=(1,))
    outer_kernel.warmup(
        given, down, dtype, scale, whole, whole, exact, given, exact, whole, given, sizes.rows, **second, grid=(1,)
    )  # fmt: skip
