"""RMS norm of few rows, for linears that read their rows too often to norm them on the way."""
# Triton has no types for launches.
# pyright: reportCallIssue=false

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _norm(x, weight, out, eps, K: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    inside = columns < K
    scale = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    if PDL == 2:
        gdc_launch_dependents()
    if PDL > 0:
        gdc_wait()
    if PDL == 1:
        gdc_launch_dependents()
    row = tl.program_id(0) * K
    value = tl.load(x + row + columns, mask=inside, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(value * value, 0) / K + eps)
    tl.store(out + row + columns, (value * rstd * scale).to(out.dtype.element_ty), mask=inside)


def norm_rows(x: Tensor, weight: Tensor, eps: float, out: Tensor, pdl: int) -> None:
    """x `[R, K]`, weight `[K]` -> out `[R, K]`, all contiguous. pdl: as in a `Config`."""
    rows, k = x.shape
    _norm[(rows,)](x, weight, out, eps, K=k, BLOCK=triton.next_power_of_2(k), PDL=pdl, num_warps=8, launch_pdl=pdl > 0)
