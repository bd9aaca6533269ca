"""Sampling on NVIDIA GPUs without a sort: the twin of `walkgraph.layers.sampling`.

A token is in the nucleus if the mass of strictly likelier ones is less than top-p's share, so one token can be judged
by one sum, and the largest of `score + noise` over all tokens is the answer if it is in: with probability top-p. If it
is not, neither is any token of its score or less, and the largest among the rest is judged next. So

1. `_first` finds each row's largest score and first candidate; rows without a filter are done. With top-k it also finds
   a score that k groups of tokens reach, so that the k-th largest is no less;
2. `_top` (top-k alone) lists the scores from there on, mostly about k of them, and finds the k-th largest exactly;
   `_rest` finds it by counting digits over the whole row, a row per program, where k or the list is too long;
3. `_judge` (three or four times) judges three candidates of each row that is not done, and finds the next ones;
4. `_finish` goes on with what is left, a row per program; of 1,000 rows of top-p 0.9 none or one, as a rule.

A vocabulary that fits one block needs one launch (`sampling_short`).

Programs of `_top` and `_judge` take several blocks of a row each where rows are many: a launch that finds its rows done
costs what its programs cost.

Sums are of fixed blocks in fixed order and the rest is integers, so that a row's token depends on nothing but its row.
The last block of a row to arrive reduces what the others left.

Shape letters: R rows, V vocabulary.
"""

# pyright: reportArgumentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

from math import gcd
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from walkgraph.layers.kernels.gpu import can_overlap
from walkgraph.layers.kernels.sampling_blocks import (
    arrive,
    falling_key,
    first_best,
    gumbel,
    kth_largest,
    of_falling_key,
    scores,
)
from walkgraph.layers.kernels.sampling_short import LONGEST, WARPS, short_kernel
from walkgraph.layers.sampling_params import SamplingParams

BLOCK = 2048
"""Never a function of the batch, as it decides the order of the sums."""
_WIDE = 8192
_FEW_ROWS = 8
_FEW = ((True, True), (True, True), (True, True))
"""The work of each `_judge` launch: judge the candidates, find the next ones. With few rows launches are the cost; with
many rows most are done after their first sum, so no noise is made for them. The sums are the same."""
_MANY = ((True, False), (False, True), (True, True), (True, True))
_PROGRAMS = 1024
"""Approximate programs of a launch whose rows may be done."""
_GROUPS = tl.constexpr(8)
"""Groups of tokens in a block, each with its largest score: up to this many tokens can be the top k without counting
digits."""
_ROOM = tl.constexpr(4096)
"""The most scores in a row's list."""
# What a row keeps between launches: floats, then integers.
_STATE = tl.constexpr(4)
_NUMBERS = tl.constexpr(2)
_LARGEST = tl.constexpr(0)
_BOUND = tl.constexpr(1)  # least score kept by min-p and top-k
_KTH = tl.constexpr(2)  # least score kept by top-k; while k is set, a lower bound of it
_SCORE = tl.constexpr(3)  # score of the candidate
_DONE = tl.constexpr(0)
_K = tl.constexpr(1)  # 0: the least score kept by top-k is known


class Workspace:
    """Memory that the launches of one `sample` share, on one device, for R rows; one stream at a time."""

    _made: dict[tuple[torch.device, int, int], "Workspace"] = {}  # noqa: RUF012

    def __init__(self, device: torch.device, rows: int, vocab: int) -> None:
        blocks = triton.cdiv(vocab, BLOCK)
        self.floats = torch.zeros(rows, 4, device=device)
        self.integers = torch.zeros(rows, 2, dtype=torch.int64, device=device)
        self.parts = torch.zeros(5, rows, blocks, device=device)
        self.tokens = torch.zeros(rows, blocks, dtype=torch.int32, device=device)
        self.counters = torch.zeros(rows, dtype=torch.int32, device=device)
        self.groups = torch.zeros(rows, blocks * _GROUPS.value, device=device)
        self.listed = torch.zeros(rows, dtype=torch.int32, device=device)
        self.lists = torch.zeros(rows, _ROOM.value, device=device)

    @classmethod
    def of(cls, device: torch.device, rows: int, vocab: int) -> "Workspace":
        key = (device, rows, vocab)
        if key not in cls._made:
            if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
                raise RuntimeError("sample a batch of this shape once before it is captured")
            cls._made[key] = cls(device, rows, vocab)
        return cls._made[key]


@triton.jit
def _candidate(x, token, seed, position, row, hot):
    """The best of a block's tokens by score and noise, with its score; -inf where x is."""
    noisy = x
    if hot:
        noisy = x + gumbel(tl.load(seed + row), tl.load(position + row), token)
    value, best = first_best(noisy, token)
    return value, best, tl.max(tl.where(token == best, x, float("-inf")), axis=0)


@triton.jit
def _settle(floats, out, row, values, tokens, xs):
    """Make the best of the blocks' candidates the row's candidate."""
    _, token = first_best(values, tokens)
    tl.store(floats + row * _STATE + _SCORE, tl.max(tl.where(tokens == token, xs, float("-inf")), axis=0))
    tl.store(out + row, token.to(tl.int64))


@triton.jit(do_not_specialize=("stride", "R"))
def _first(
    logits, stride, counts, rows, temperature, repetition, presence, frequency, seed, position, top_k, top_p, min_p,
    floats, integers, parts, tokens, groups, counters, out, R, V: tl.constexpr, BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, REPETITION: tl.constexpr, PRESENCE: tl.constexpr,
    FREQUENCY: tl.constexpr, TOP_K: tl.constexpr, TOP_P: tl.constexpr, UNIT: tl.constexpr,
    MIN_P: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    block, row = tl.program_id(0), tl.program_id(1)
    hot = tl.load(temperature + row) > 0
    token = block * BLOCK + tl.arange(0, BLOCK)
    x = scores(logits, stride, counts, rows, temperature, repetition, presence, frequency, row, token, V, UNIT,
               ROWS, REPETITION, PRESENCE, FREQUENCY)  # fmt: skip
    value, best, score = _candidate(x, token, seed, position, row, hot)
    at, plane = row * BLOCKS + block, R * BLOCKS
    tl.store(parts + at, value)
    tl.store(parts + plane + at, score)
    tl.store(parts + 2 * plane + at, tl.max(x, axis=0))
    tl.store(tokens + at, best)
    if TOP_K:
        tops = tl.max(tl.reshape(x, (_GROUPS, BLOCK // _GROUPS)), axis=1)
        tl.store(groups + at * _GROUPS + tl.arange(0, _GROUPS), tops)
    if arrive(counters + row, BLOCKS):
        each = tl.arange(0, PADDED)
        there, all_at = each < BLOCKS, row * BLOCKS + each
        values = tl.load(parts + all_at, mask=there, other=float("-inf"), volatile=True)
        xs = tl.load(parts + plane + all_at, mask=there, other=float("-inf"), volatile=True)
        most = tl.load(parts + 2 * plane + all_at, mask=there, other=float("-inf"), volatile=True)
        bests = tl.load(tokens + all_at, mask=there, other=2147483647, volatile=True)
        _settle(floats, out, row, values, bests, xs)
        largest = tl.max(most, axis=0)
        finite = (largest < float("inf")) & (largest > float("-inf"))
        if not finite:
            tl.store(out + row, tl.full((), -1, tl.int64))
        bound, filtered, k, kth = float("-inf"), False, tl.zeros((), tl.int64), tl.full((), float("-inf"), tl.float32)
        if MIN_P:
            least = tl.minimum(tl.load(min_p + row), 1.0)
            filtered |= least > 0
            bound = tl.where(least > 0, largest + tl.log(tl.maximum(least, 1e-38)), bound)
        if TOP_P:
            filtered |= tl.load(top_p + row) < 1
        if TOP_K:
            k = tl.load(top_k + row).to(tl.int64)
            k = tl.where((k > 0) & (k < V), k, 0)
            filtered |= k > 0
            if (k > 0) & (k <= BLOCKS * _GROUPS):
                group, inside = tl.arange(0, PADDED * _GROUPS), tl.arange(0, PADDED * _GROUPS) < BLOCKS * _GROUPS
                group += row * (BLOCKS * _GROUPS)
                reached = tl.load(groups + group, mask=inside, other=float("-inf"), volatile=True)
                kth = kth_largest(reached, k, False)
        tl.store(floats + row * _STATE + _LARGEST, largest)
        tl.store(floats + row * _STATE + _BOUND, bound)
        tl.store(floats + row * _STATE + _KTH, kth)
        tl.store(integers + row * _NUMBERS + _DONE, (~(finite & hot & filtered)).to(tl.int64))
        tl.store(integers + row * _NUMBERS + _K, k)


@triton.jit
def _cut(floats, integers, row, kth):
    """Record `kth` as the least score kept by top-k."""
    state = floats + row * _STATE
    tl.store(state + _KTH, kth)
    tl.store(state + _BOUND, tl.maximum(tl.load(state + _BOUND), kth))
    tl.store(integers + row * _NUMBERS + _K, tl.zeros((), tl.int64))


@triton.jit(do_not_specialize=("stride",))
def _top(
    logits, stride, counts, rows, temperature, repetition, presence, frequency, floats, integers, listed, lists,
    counters, V: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr,
    REPETITION: tl.constexpr, PRESENCE: tl.constexpr, FREQUENCY: tl.constexpr, UNIT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The k-th largest score of rows whose list holds all scores that it can be."""
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    block, row = tl.program_id(0), tl.program_id(1)
    k, least = tl.load(integers + row * _NUMBERS + _K), tl.load(floats + row * _STATE + _KTH)
    if (tl.load(integers + row * _NUMBERS + _DONE) == 0) & (k > 0) & (least > float("-inf")):
        while block < BLOCKS:
            token = block * BLOCK + tl.arange(0, BLOCK)
            x = scores(logits, stride, counts, rows, temperature, repetition, presence, frequency, row, token, V, UNIT,
                       ROWS, REPETITION, PRESENCE, FREQUENCY)  # fmt: skip
            # If most scores are equal, count only as many as show that the list is too short.
            wanted = (x >= least) & (tl.load(listed + row, volatile=True) <= _ROOM)
            place = tl.atomic_add(listed + row + tl.zeros_like(token), 1, mask=wanted, sem="relaxed")
            tl.store(lists + row * _ROOM + place, x, mask=wanted & (place < _ROOM))
            block += tl.num_programs(0)
        if arrive(counters + row, tl.num_programs(0)):
            count = tl.load(listed + row, volatile=True)
            tl.debug_barrier()
            tl.store(listed + row, 0)
            if count <= _ROOM:
                each = tl.arange(0, _ROOM)
                found = tl.load(lists + row * _ROOM + each, mask=each < count, other=float("-inf"), volatile=True)
                _cut(floats, integers, row, kth_largest(found, k, False))


@triton.jit(do_not_specialize=("stride",))
def _rest(
    logits, stride, counts, rows, temperature, repetition, presence, frequency, floats, integers, V: tl.constexpr,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, REPETITION: tl.constexpr, PRESENCE: tl.constexpr,
    FREQUENCY: tl.constexpr, UNIT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The k-th largest score of the other rows, from its falling key, eight bits at a time."""
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    row = tl.program_id(0)
    rank = tl.load(integers + row * _NUMBERS + _K)
    if (tl.load(integers + row * _NUMBERS + _DONE) == 0) & (rank > 0):
        prefix = tl.zeros((), tl.int64)
        for number in range(4):
            shift = 24 - 8 * number
            bins = tl.zeros((256,), tl.int32)
            for start in range(0, V, BLOCK):
                token = start + tl.arange(0, BLOCK)
                x = scores(logits, stride, counts, rows, temperature, repetition, presence, frequency, row, token, V,
                           UNIT, ROWS, REPETITION, PRESENCE, FREQUENCY)  # fmt: skip
                key = falling_key(x)
                digit = ((key >> shift) & 255).to(tl.int32)
                bins += tl.histogram(digit, 256, mask=(token < V) & ((key >> (shift + 8)) == prefix))
            upto = tl.cumsum(bins, axis=0)
            short = upto < rank
            prefix = (prefix << 8) | tl.sum(short.to(tl.int64), axis=0)
            rank -= tl.max(tl.where(short, upto, 0), axis=0)
        _cut(floats, integers, row, of_falling_key(prefix))


@triton.jit
def _stays(score, above, total, top_p, floats, row, TOP_P: tl.constexpr):
    """True if the candidate is one of the tokens kept: `above` is the mass of likelier ones, `total` that of top-k."""
    floats += row * _STATE
    stays = score >= tl.load(floats + _BOUND)
    if TOP_P:
        share = tl.load(top_p + row)
        stays &= (above < share * total) | (share >= 1) | (score >= tl.load(floats + _LARGEST))
    return stays


@triton.jit(do_not_specialize=("stride", "R"))
def _judge(
    logits, stride, counts, rows, temperature, repetition, presence, frequency, seed, position, top_p, floats,
    integers, parts, tokens, counters, out, R, V: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
    PADDED: tl.constexpr, ROWS: tl.constexpr, REPETITION: tl.constexpr, PRESENCE: tl.constexpr,
    FREQUENCY: tl.constexpr, TOP_P: tl.constexpr, UNIT: tl.constexpr, SUM: tl.constexpr, DRAW: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    block, row = tl.program_id(0), tl.program_id(1)
    state, plane = floats + row * _STATE, R * BLOCKS
    score, bound, kth = tl.load(state + _SCORE), tl.load(state + _BOUND), tl.load(state + _KTH)
    # A candidate below the bound is refused without a sum if another launch finds the next one.
    if (tl.load(integers + row * _NUMBERS + _DONE) == 0) & (DRAW | (score >= bound)):
        while block < BLOCKS:
            token = block * BLOCK + tl.arange(0, BLOCK)
            x = scores(logits, stride, counts, rows, temperature, repetition, presence, frequency, row, token, V, UNIT,
                       ROWS, REPETITION, PRESENCE, FREQUENCY)  # fmt: skip
            at = row * BLOCKS + block
            if SUM and TOP_P:
                mass = tl.exp(x - tl.load(state + _LARGEST))
                tl.store(parts + 3 * plane + at, tl.sum(tl.where(x > score, mass, 0.0), axis=0))
                tl.store(parts + 4 * plane + at, tl.sum(tl.where(x >= kth, mass, 0.0), axis=0))
            if DRAW:
                # The best of more tokens in a block is the best of fewer, if it is among them.
                was = tl.load(parts + plane + at)
                if (was <= score) | (was < bound):
                    left = tl.where((x > score) & (x >= bound), x, float("-inf"))
                    value, best, its = _candidate(left, token, seed, position, row, True)
                    tl.store(parts + at, value)
                    tl.store(parts + plane + at, its)
                    tl.store(tokens + at, best)
            block += tl.num_programs(0)
        if arrive(counters + row, tl.num_programs(0)):
            each = tl.arange(0, PADDED)
            there, all_at = each < BLOCKS, row * BLOCKS + each
            stays = tl.zeros((), tl.int1)
            if SUM:
                above = tl.sum(tl.load(parts + 3 * plane + all_at, mask=there, other=0.0, volatile=True), axis=0)
                total = tl.sum(tl.load(parts + 4 * plane + all_at, mask=there, other=0.0, volatile=True), axis=0)
                stays = _stays(score, above, total, top_p, floats, row, TOP_P)
                tl.store(integers + row * _NUMBERS + _DONE, stays.to(tl.int64))
            if DRAW and not stays:
                values = tl.load(parts + all_at, mask=there, other=float("-inf"), volatile=True)
                xs = tl.load(parts + plane + all_at, mask=there, other=float("-inf"), volatile=True)
                bests = tl.load(tokens + all_at, mask=there, other=2147483647, volatile=True)
                _settle(floats, out, row, values, bests, xs)


@triton.jit(do_not_specialize=("stride",))
def _finish(
    logits, stride, counts, rows, temperature, repetition, presence, frequency, seed, position, top_p, floats,
    integers, out, V: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, REPETITION: tl.constexpr,
    PRESENCE: tl.constexpr, FREQUENCY: tl.constexpr, TOP_P: tl.constexpr, UNIT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    row = tl.program_id(0)
    state = floats + row * _STATE
    done, score, chosen = tl.load(integers + row * _NUMBERS + _DONE), tl.load(state + _SCORE), tl.load(out + row)
    while done == 0:
        largest, bound, kth = tl.load(state + _LARGEST), tl.load(state + _BOUND), tl.load(state + _KTH)
        above, total, value = 0.0, 0.0, float("-inf")
        following, next_score = chosen, score
        for start in range(0, V, BLOCK):
            token = start + tl.arange(0, BLOCK)
            x = scores(logits, stride, counts, rows, temperature, repetition, presence, frequency, row, token, V,
                       UNIT, ROWS, REPETITION, PRESENCE, FREQUENCY)  # fmt: skip
            mass = tl.exp(x - largest)
            above += tl.sum(tl.where(x > score, mass, 0.0), axis=0)
            total += tl.sum(tl.where(x >= kth, mass, 0.0), axis=0)
            left = tl.where((x > score) & (x >= bound), x, float("-inf"))
            new, best, its = _candidate(left, token, seed, position, row, True)
            following = tl.where(new > value, best.to(tl.int64), following)
            next_score = tl.where(new > value, its, next_score)
            value = tl.maximum(value, new)
        if _stays(score, above, total, top_p, floats, row, TOP_P):
            done = tl.full((), 1, tl.int64)
        else:
            score, chosen = next_score, following
    tl.store(out + row, chosen)


@triton.jit
def _count(counts, rows, tokens, n, V, LANES: tl.constexpr, PDL: tl.constexpr):
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    lane = tl.arange(0, LANES)
    there = lane < n
    row = tl.load(rows + lane, mask=there, other=0).to(tl.int64)
    token = tl.load(tokens + lane, mask=there, other=-1)
    there &= token >= 0
    value = tl.load(counts + row * V + token, mask=there, other=0)
    tl.store(counts + row * V + token, value + 2, mask=there & (value < 32765))


def sample(
    logits: Tensor,
    params: SamplingParams,
    counts: Tensor | None = None,
    rows: Tensor | None = None,
    *,
    pdl: bool = True,
) -> Tensor:
    """Like `walkgraph.layers.sampling.sample`, in 1 to 9 launches without a host read. They can be captured once a
    batch of as many rows has been sampled before."""
    if logits.stride(1) != 1 or (counts is not None and not counts.is_contiguous()):
        raise ValueError("tokens of a row must be adjacent, in logits and in counts")
    R, V = logits.shape
    out = torch.empty(R, dtype=torch.int64, device=logits.device)
    p = SamplingParams(*(None if one is None else one.contiguous() for one in params))  # type: ignore[arg-type]
    one, unit = p.temperature, gcd(logits.stride(0), 8)
    common: dict[str, Any] = {
        "logits": logits, "stride": logits.stride(0) // unit, "UNIT": unit, "counts": one if counts is None else counts,
        "rows": one if rows is None else rows.contiguous(), "temperature": one,
        "repetition": _or(p.repetition, one), "presence": _or(p.presence, one), "frequency": _or(p.frequency, one),
        "V": V, "ROWS": rows is not None, "REPETITION": p.repetition is not None, "PRESENCE": p.presence is not None,
        "FREQUENCY": p.frequency is not None, **_options(logits, pdl),
    }  # fmt: skip
    drawn = {"seed": p.seed, "position": p.position, "out": out}
    tops = {"top_p": _or(p.top_p, one), "TOP_P": p.top_p is not None}
    least = {"top_k": _or(p.top_k, one), "min_p": _or(p.min_p, one), "TOP_K": p.top_k is not None}
    least |= {"MIN_P": p.min_p is not None}
    if V <= LONGEST:
        short_kernel[R,](**common, **drawn, **tops, **least, BLOCK=triton.next_power_of_2(V), num_warps=WARPS)
        return out
    space, blocks = Workspace.of(logits.device, R, V), triton.cdiv(V, BLOCK)
    several = min(blocks, triton.cdiv(_PROGRAMS, R))
    common |= {"floats": space.floats, "integers": space.integers}
    whole = {"counters": space.counters, "BLOCK": BLOCK, "BLOCKS": blocks}
    parts = {"parts": space.parts, "tokens": space.tokens, "R": R, "PADDED": triton.next_power_of_2(blocks)}
    _first[blocks, R](**common, **whole, **drawn, **parts, **tops, **least, groups=space.groups)
    if p.top_k is not None:
        _top[several, R](**common, **whole, listed=space.listed, lists=space.lists)
        _rest[R,](**common, BLOCK=_WIDE, num_warps=16)
    if not (p.top_k is None and p.top_p is None and p.min_p is None):
        for judges, draws in _FEW if R <= _FEW_ROWS else _MANY:
            _judge[several, R](**common, **whole, **drawn, **parts, **tops, SUM=judges, DRAW=draws)
        _finish[R,](**common, **drawn, **tops, BLOCK=_WIDE, num_warps=16)
    return out


def count(counts: Tensor, rows: Tensor, tokens: Tensor, *, pdl: bool = True) -> None:
    """Like `walkgraph.layers.sampling.count`, in one launch."""
    n, V = len(tokens), counts.shape[1]
    lanes = max(32, triton.next_power_of_2(n))
    _count[1,](counts, rows.contiguous(), tokens.contiguous(), n, V, LANES=lanes, num_warps=1, **_options(counts, pdl))


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    return other if tensor is None else tensor


def _options(tensor: Tensor, pdl: bool) -> dict[str, Any]:
    """Options for a launch that starts while the previous one drains, if the device supports it."""
    pdl = pdl and can_overlap()
    return {"PDL": pdl, "enable_fp_fusion": False, **({"launch_pdl": True} if pdl else {})}
