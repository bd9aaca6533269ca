"""Sampling from a vocabulary that fits one block: a row's token in one launch, a program a row.

The candidates are judged as in `walkgraph.layers.kernels.sampling`, of whose launches each costs more here than its
work.

Shape letters: R rows, V vocabulary.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from walkgraph.layers.kernels.sampling_blocks import cooling, first_best, given, gumbel, kth_largest, scores

LONGEST = 4096
"""The largest vocabulary: 16 scores a thread."""
WARPS = 8


@triton.jit
def _score(x, token, chosen):
    return tl.max(tl.where(token == chosen, x, float("-inf")), axis=0)


@triton.jit(do_not_specialize=("stride",))
def short_kernel(
    logits, stride, counts, rows, temperature, repetition, presence, frequency, seed, position, top_k, top_p, min_p,
    out, V: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, REPETITION: tl.constexpr, PRESENCE: tl.constexpr,
    FREQUENCY: tl.constexpr, TOP_K: tl.constexpr, TOP_P: tl.constexpr, MIN_P: tl.constexpr, UNIT: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    # Temperature keeps the order of scores, so that theirs have the k-th largest where the logits have.
    HALVES: tl.constexpr = (logits.dtype.element_ty == tl.bfloat16) and not (REPETITION or PRESENCE or FREQUENCY)
    row, token = tl.program_id(0), tl.arange(0, BLOCK)
    x = scores(logits, stride, counts, rows, temperature, repetition, presence, frequency, row, token, V, UNIT,
               ROWS, REPETITION, PRESENCE, FREQUENCY)  # fmt: skip
    largest, left = tl.max(x, axis=0), x
    share = tl.full((), 1.0, tl.float32)
    above, total = tl.zeros((), tl.float32), tl.zeros((), tl.float32)
    mass = tl.zeros_like(x)
    finite = (largest < float("inf")) & (largest > float("-inf"))
    if finite & (tl.load(temperature + row) > 0):
        left = x + gumbel(tl.load(seed + row), tl.load(position + row), token)
        kth = tl.full((), float("-inf"), tl.float32)
        if TOP_K:
            k = tl.load(top_k + row).to(tl.int64)
            if (k > 0) & (k < V):
                if HALVES:
                    halves = given(logits, stride, row, token, V, UNIT)
                    kth = kth_largest(halves, k, True) * cooling(temperature, row)
                else:
                    kth = kth_largest(x, k, False)
        bound = kth
        if MIN_P:
            least = tl.minimum(tl.load(min_p + row), 1.0)
            if least > 0:
                bound = tl.maximum(bound, largest + tl.log(tl.maximum(least, 1.2e-38)))
        left = tl.where((x >= bound) | (x >= largest), left, float("-inf"))
        if TOP_P:
            share = tl.load(top_p + row).to(tl.float32)
            mass = tl.exp(x - largest)
            total = tl.sum(tl.where(x >= kth, mass, 0.0), axis=0)
    _, chosen = first_best(left, token)
    if TOP_P:
        # Neither is any token of a refused one's score or less among those kept.
        score = _score(x, token, chosen)
        above = tl.sum(tl.where(x > score, mass, 0.0), axis=0)
        while (share < 1) & (score < largest) & (above >= share * total):
            left = tl.where(x > score, left, float("-inf"))
            _, chosen = first_best(left, token)
            score = _score(x, token, chosen)
            above = tl.sum(tl.where(x > score, mass, 0.0), axis=0)
    tl.store(out + row, tl.where(finite, chosen, -1).to(tl.int64))
