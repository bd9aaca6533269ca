"""`walkgraph.layers.paged_blocks.placed_product` on a GPU: its launch.

Shape letters as in `walkgraph.layers.kernels.placed_product_tiles`.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportArgumentType=false, reportCallIssue=false

from typing import TYPE_CHECKING

import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from walkgraph.layers.kernels.placed_product_tiles import placed_blocks_kernel, placed_stays_kernel
from walkgraph.layers.kernels.product import blocks_arguments, stays_arguments, workspace
from walkgraph.layers.kernels.product_config import PROCESSORS, TAIL, Cut, tiles_of

if TYPE_CHECKING:
    from walkgraph.layers.paged_blocks import Places


def whole(cut: Cut, weight: Tensor, slot_k: Tensor) -> bool:
    """Whether every tile's columns are whole heads of one kind."""
    groups, width = slot_k.shape[1:]
    heads = weight.shape[0] // width - 2 * groups
    columns = cut.n // 2 if cut.stays else cut.n
    return columns % width == 0 and heads * width % columns == 0 and groups * width % columns == 0


def launch(cut: Cut, x: Tensor, weight: Tensor, bias: Tensor | None, to: "Places") -> Tensor:
    """x `[R, K]`, weight `[(H + 2G) * D, K]` -> q `[R, H, D]`. `product.unfit` has nothing against them, and the cut
    is `whole`."""
    (count, k), n = x.shape, weight.shape[0]
    groups, width = to.slot_k.shape[1:]
    heads = n // width - 2 * groups
    q = x.new_empty((count, heads, width))
    ends = (
        bias, to.cos, to.sin, q, to.slot_k, to.slot_v, to.rows.rows, to.rows.pages, to.rows.lengths,
    )  # fmt: skip
    strides = (to.tokens, to.rows.pages.shape[1], to.cos.stride(0), to.cos.stride(1), to.slot_k.stride(0))
    shape = {"H": heads, "G": groups, "D": width, "PAGE": to.page, "BIAS": bias is not None}
    options = {"num_warps": cut.warps, "num_stages": cut.stages, "launch_pdl": cut.pdl > 0}
    rows = TensorDescriptor(x, [count, k], list(x.stride()), [cut.m, cut.k])
    tiles = TensorDescriptor(weight, [n, k], list(weight.stride()), [cut.n, cut.k])
    if cut.stays:
        programs = min(PROCESSORS, triton.cdiv(count, cut.m) * triton.cdiv(n, cut.n))
        placed_stays_kernel[(programs,)](
            rows, tiles, *ends, count, *strides, **stays_arguments(cut, n, k), **shape, **options
        )  # fmt: skip
        return q
    down, across = tiles_of(cut, count, n)
    placed_blocks_kernel[(down * across * cut.split,)](
        rows, TensorDescriptor(x, [count, k], list(x.stride()), [TAIL, cut.k]), tiles, weight, *ends,
        *workspace(x.device), count, down, weight.stride(0), *strides, **blocks_arguments(cut, count, n, k), **shape,
        **options,
    )  # fmt: skip
    return q
