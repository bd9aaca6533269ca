"""The logarithm of the sum of exponentials of each row of logits, and the rank of a logit in it, in one pass.

Shape letters: R rows, V vocabulary.
"""

# pyright: reportArgumentType=false, reportCallIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from walkgraph.layers.kernels.gpu import can_overlap
from walkgraph.layers.kernels.sampling import BLOCK, Workspace
from walkgraph.layers.kernels.sampling_blocks import arrive


@triton.jit(do_not_specialize=("stride", "R"))
def _totals(
    logits, stride, chosen, parts, likelier, counters, total, rank, R, V: tl.constexpr, BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr, PADDED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    block, row = tl.program_id(0), tl.program_id(1)
    token = block * BLOCK + tl.arange(0, BLOCK)
    there = token < V
    x = tl.load(logits + row.to(tl.int64) * stride + token, mask=there, other=float("-inf")).to(tl.float32)
    largest = tl.max(x, axis=0)
    at, plane = row * BLOCKS + block, R * BLOCKS
    tl.store(parts + at, largest)
    # A block without a finite logit adds nothing.
    tl.store(parts + plane + at, tl.sum(tl.exp(x - tl.maximum(largest, -3e38)), axis=0))
    tl.store(likelier + at, tl.sum((x > tl.load(chosen + row).to(tl.float32)).to(tl.int32), axis=0))
    if arrive(counters + row, BLOCKS):
        each = tl.arange(0, PADDED)
        here, all_at = each < BLOCKS, row * BLOCKS + each
        most = tl.load(parts + all_at, mask=here, other=float("-inf"), volatile=True)
        sums = tl.load(parts + plane + all_at, mask=here, other=0.0, volatile=True)
        top = tl.maximum(tl.max(most, axis=0), -3e38)
        tl.store(total + row, top + tl.log(tl.sum(sums * tl.exp(most - top), axis=0)))
        more = tl.sum(tl.load(likelier + all_at, mask=here, other=0, volatile=True), axis=0)
        tl.store(rank + row, 1 + more.to(tl.int64))


def totals(logits: Tensor, chosen: Tensor, *, pdl: bool = True) -> tuple[Tensor, Tensor]:
    """Logits `[R, V]` and one of each row, `[R]` -> ln(sum(exp(logits))) float32 `[R]`, rank int64 `[R]` from 1."""
    if logits.stride(1) != 1:
        raise ValueError("tokens of a row must be adjacent")
    R, V = logits.shape
    space = Workspace.of(logits.device, R, V)
    blocks = triton.cdiv(V, BLOCK)
    total = torch.empty(R, device=logits.device)
    rank = torch.empty(R, dtype=torch.int64, device=logits.device)
    pdl = pdl and can_overlap()
    how = {"launch_pdl": True} if pdl else {}
    _totals[blocks, R](
        logits, logits.stride(0), chosen.contiguous(), space.parts, space.tokens, space.counters, total, rank, R,
        V=V, BLOCK=BLOCK, BLOCKS=blocks, PADDED=triton.next_power_of_2(blocks), PDL=pdl, **how,
    )  # fmt: skip
    return total, rank
