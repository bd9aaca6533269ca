"""Shared functions of the sampling kernels: scores and noise of a block of tokens, and detecting a row's last block.

The formulas are those of `walkgraph.layers.sampling`, in the same order; compile with `enable_fp_fusion=False`, so that
a recomputed score is always the same number.
"""

# pyright: reportArgumentType=false, reportOperatorIssue=false

import triton
import triton.language as tl

_GOLDEN = tl.constexpr(-0x61C8864680B583EB)
_MIX_1 = tl.constexpr(-0x40A7B892E31B1A47)
_MIX_2 = tl.constexpr(-0x6B2FB644ECCEEE15)


@triton.jit
def _shift(x, BY: tl.constexpr):
    return (x >> BY) & ((1 << (64 - BY)) - 1)


@triton.jit
def _mix(x):
    x = x + _GOLDEN
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


@triton.jit
def draw(seed, position, index):
    return _mix(_mix(_mix(seed) + position * _GOLDEN) + index * _GOLDEN)


@triton.jit
def gumbel(seed, position, token):
    bits = draw(seed, position, token.to(tl.int64))
    u = _shift(bits, 1).to(tl.float32) * 1.0842021724855044e-19  # 2^-63
    u = tl.minimum(tl.maximum(u, 1.0842021724855044e-19), 0.99999994)
    series = u * (1 + u * (0.5 + u * (0.3333333333333333 + u * (0.25 + u * (0.2 + u * 0.16666666666666666)))))
    return -tl.log(tl.where(u < 0.0625, series, -tl.log(1 - u)))


@triton.jit
def scores(
    logits, stride, counts, rows, temperature, repetition, presence, frequency, row, token, V: tl.constexpr,
    UNIT: tl.constexpr, ROWS: tl.constexpr, REPETITION: tl.constexpr, PRESENCE: tl.constexpr,
    FREQUENCY: tl.constexpr,
):  # fmt: skip
    """float32 like `token`: -inf beyond the vocabulary, inf for NaN."""
    there = token < V
    x = given(logits, stride, row, token, V, UNIT)
    if REPETITION or PRESENCE or FREQUENCY:
        of = row.to(tl.int64)
        if ROWS:
            of = tl.load(rows + row).to(tl.int64)
        value = tl.load(counts + of * V + token, mask=there, other=0).to(tl.int32)
        made = (value >> 1).to(tl.float32)
        if REPETITION:
            factor = tl.load(repetition + row)
            x = tl.where(value > 0, tl.where(x > 0, x * tl.div_rn(1.0, factor), x * factor), x)
        if PRESENCE:
            x = x - tl.where(made > 0, tl.load(presence + row), 0.0)
        if FREQUENCY:
            x = x - made * tl.load(frequency + row)
    return x * cooling(temperature, row)


@triton.jit
def given(logits, stride, row, token, V: tl.constexpr, UNIT: tl.constexpr):
    """The `scores` before penalties and temperature. `stride` counts UNITs of logits, so that the compiler knows the
    alignment of rows."""
    x = tl.load(logits + row.to(tl.int64) * stride * UNIT + token, mask=token < V, other=float("-inf"))
    return tl.where(x != x, float("inf"), x.to(tl.float32))  # noqa: PLR0124


@triton.jit
def cooling(temperature, row):
    """The factor by which the temperature scales scores."""
    heat = tl.load(temperature + row)
    return tl.div_rn(1.0, tl.where(heat > 0, heat, 1.0))


@triton.jit
def first_best(value, token):
    """The largest value, and the lowest token that has it, from one reduction over both: a reduction costs more than
    its work."""
    # Zeros of either sign are equal.
    found = tl.min(((falling_key(value + 0.0) - 0x80000000) << 32) | token.to(tl.int64), axis=0)
    return of_falling_key((found >> 32) + 0x80000000), (found & 0x7FFFFFFF).to(tl.int32)


@triton.jit
def arrive(counter, programs):
    """True for the last of a row's programs to arrive: it sees the stores of the others, and resets the counter to
    zero."""
    tl.debug_barrier()
    last = tl.atomic_add(counter, 1, sem="acq_rel") == programs - 1
    tl.debug_barrier()
    if last:
        tl.store(counter, 0)
    return last


@triton.jit
def falling_key(x):
    """A 32-bit key in int64 that falls as x rises."""
    bits = x.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    return tl.where(bits >= 0x80000000, bits, 0x7FFFFFFF - bits)


@triton.jit
def of_falling_key(key):
    bits = tl.where(key >= 0x80000000, key, 0x7FFFFFFF - key)
    return bits.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def kth_largest(values, k, HALVES: tl.constexpr):
    """The k-th largest score of a block, from its falling key, two bits a step: one reduction counts the keys below
    three trials, with 16 bits for each count. HALVES: the scores are those of bfloat16, of half the bits."""
    tl.static_assert(values.numel < 1 << 16)
    keys, prefix = falling_key(values), tl.zeros((), tl.int64)
    for number in range(8 if HALVES else 16):
        unit = tl.full((), 1, tl.int64) << (30 - 2 * number)
        below = (keys < prefix + unit).to(tl.int64) + ((keys < prefix + 2 * unit).to(tl.int64) << 16)
        below = tl.sum(below + ((keys < prefix + 3 * unit).to(tl.int64) << 32), axis=0)
        digit = ((below & 0xFFFF) < k).to(tl.int64) + (((below >> 16) & 0xFFFF) < k).to(tl.int64)
        prefix += (digit + ((below >> 32) < k).to(tl.int64)) * unit
    if HALVES:
        # The lower bits of a number are zeros, and those of a positive one's key ones.
        prefix = tl.where(prefix < 0x80000000, prefix | 0xFFFF, prefix)
    return of_falling_key(prefix)
