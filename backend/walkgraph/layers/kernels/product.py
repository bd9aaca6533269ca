"""`walkgraph.layers.product` on a GPU: which kernel, and its launch.

Shape letters: R rows, N columns of the result, K.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportArgumentType=false, reportCallIssue=false

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from walkgraph.layers.kernels.product_config import COUNTERS, PARTIAL_BYTES, PROCESSORS, TAIL, Cut, tail_of, tiles_of
from walkgraph.layers.kernels.product_tiles import blocks_kernel, stays_kernel
from walkgraph.layers.kernels.workspaces import Workspaces

if TYPE_CHECKING:
    from walkgraph.layers.product import Activation

ACTIVATIONS = {None: 0, "gelu": 1, "gelu_tanh": 2}
_ALIGNED = 16
"""Bytes of a row's stride and of a tensor's beginning, for copies of tiles."""


class Ending(NamedTuple):
    """What stands after a product."""

    bias: Tensor | None = None
    """`[N]`"""
    activation: "Activation | None" = None
    residual: Tensor | None = None
    """`[R, N]`, contiguous."""


@cache
def programs_of(device: torch.device) -> int:
    """How many programs the device runs at once; 0 where it isn't one that the tiles are made for."""
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count if properties.major == 9 else 0


def _made(device: torch.device) -> tuple[Tensor, Tensor]:
    return (
        torch.empty(PARTIAL_BYTES // 4, dtype=torch.float32, device=device),
        torch.zeros(COUNTERS, dtype=torch.int32, device=device),
    )


workspace = Workspaces(_made, "run a product")
"""Partial sums (float32) and counters (int32, zeros between launches): of a device and its current stream, as a loop's
steps and an encoder beside them are launched at the same time."""


def unfit(x: Tensor, weight: Tensor, end: Ending) -> str | None:
    """Why these can't be multiplied here; None where they can."""
    if x.dtype not in (torch.bfloat16, torch.float16) or weight.dtype != x.dtype:
        return "tiles are of numbers of two bytes"
    given = [t for t in (x, weight, end.residual) if t is not None]
    if any(t.stride(1) != 1 or t.stride(0) * t.itemsize % _ALIGNED or t.data_ptr() % _ALIGNED for t in given):
        return f"rows must lie side by side, at multiples of {_ALIGNED} bytes"
    if weight.shape[0] * x.itemsize % _ALIGNED or (end.residual is not None and not end.residual.is_contiguous()):
        return "the result's rows must be contiguous"
    return None


def launch(cut: Cut, x: Tensor, weight: Tensor, end: Ending) -> Tensor:
    """x `[R, K]`, weight `[N, K]` -> `[R, N]`; as `unfit` wants them. A residual's memory is the result's."""
    (rows, k), n = x.shape, weight.shape[0]
    out = x.new_empty((rows, n)) if end.residual is None else end.residual
    if cut.stays:
        _launch_stays(cut, x, weight, end, out)
        return out
    down, across = tiles_of(cut, rows, n)
    blocks_kernel[(down * across * cut.split,)](
        TensorDescriptor(x, [rows, k], list(x.stride()), [cut.m, cut.k]),
        TensorDescriptor(x, [rows, k], list(x.stride()), [TAIL, cut.k]),
        TensorDescriptor(weight, [n, k], list(weight.stride()), [cut.n, cut.k]),
        weight, end.bias, end.residual, out, *workspace(x.device), rows, down, weight.stride(0),
        **blocks_arguments(cut, rows, n, k), **_ending(end, x), num_warps=cut.warps, num_stages=cut.stages,
        launch_pdl=cut.pdl > 0,
    )  # fmt: skip
    return out


def blocks_arguments(cut: Cut, rows: int, n: int, k: int) -> dict[str, Any]:
    """The compile-time arguments of `blocks_kernel`, without what stands after the product."""
    return {
        "N": n, "K": k, "M": cut.m, "BLOCK_N": cut.n, "BLOCK_K": cut.k, "SPLIT": cut.split, "STAGES": cut.stages,
        "SWAP": cut.swap, "TAIL": tail_of(cut, rows), "AHEAD": cut.ahead, "PDL": cut.pdl,
    }  # fmt: skip


def _launch_stays(cut: Cut, x: Tensor, weight: Tensor, end: Ending, out: Tensor) -> None:
    (rows, k), n = x.shape, out.shape[1]
    tiles = TensorDescriptor(weight, [n, k], list(weight.stride()), [cut.n, cut.k])
    result = TensorDescriptor.from_tensor(out, [cut.m, cut.n // 2])
    count = triton.cdiv(rows, cut.m) * triton.cdiv(n, cut.n)
    stays_kernel[(min(count, PROCESSORS),)](
        TensorDescriptor(x, [rows, k], list(x.stride()), [cut.m, cut.k]), tiles, end.bias,
        None if end.residual is None else result, result, rows,
        **stays_arguments(cut, n, k), **_ending(end, x), num_warps=cut.warps, num_stages=cut.stages,
        launch_pdl=cut.pdl > 0,
    )  # fmt: skip


def stays_arguments(cut: Cut, n: int, k: int) -> dict[str, Any]:
    """The compile-time arguments of `stays_kernel`, without what stands after the product."""
    return {
        "N": n, "K": k, "M": cut.m, "BLOCK_N": cut.n, "BLOCK_K": cut.k, "STAGES": cut.stages, "GROUP": cut.group,
        "PROGRAMS": PROCESSORS, "PDL": cut.pdl,
    }  # fmt: skip


def _ending(end: Ending, x: Tensor) -> dict[str, Any]:
    return {
        "BIAS": end.bias is not None,
        "ACT": ACTIVATIONS[end.activation],
        "RESIDUAL": end.residual is not None,
        "ON_GPU": x.is_cuda,
    }
