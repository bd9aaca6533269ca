"""Sample the next token from logits. The noise is a pure function of (seed, position, token): equal logits give equal
samples in any row of any batch on any device, except for the last bits of logarithms and sums.

Tokens of equal logits are kept or dropped together, so the order among equals doesn't matter. On CUDA kernels do all of
it without a host read; the code here is their twin on CPUs.

Shape letters: R rows, V vocabulary, T rows of a table of counts.
"""

import torch
from torch import Tensor

from walkgraph.layers.sampling_params import SamplingParams

_GOLDEN = -0x61C8864680B583EB
"""2^64 divided by the golden ratio, as a signed number: the step between the streams of splitmix64."""
_MIX_1 = -0x40A7B892E31B1A47
_MIX_2 = -0x6B2FB644ECCEEE15
_BELOW_ONE = 1 - 2.0**-24
_SERIES_BELOW = 2.0**-4
_FULL = 32765
"""A count at or above this stays as it is, as int16 has no room for another 2."""


def sample(logits: Tensor, params: SamplingParams, counts: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
    """Logits `[R, V]` (bf16, fp16, fp32; tokens adjacent) -> tokens int64 `[R]`; -1 for a row with a largest logit that
    is NaN or infinite.

    In this order: penalties by `counts` int16 `[T, V]` (see `count`) of the table's `rows` `[R]` (all in turn if None),
    temperature, top-k, top-p, min-p. The likeliest token always stays. A request's biases come before all of these
    (see `biased`), and its log-probabilities are those of the logits before its biases (see `scored`).
    """
    if params.penalised and counts is None:
        raise ValueError("penalties need the counts of tokens")
    if logits.is_cuda:
        from walkgraph.layers.kernels import sampling as kernels

        return kernels.sample(logits, params, counts, rows)
    return sample_plainly(logits, params, counts, rows)


def sample_plainly(
    logits: Tensor, params: SamplingParams, counts: Tensor | None = None, rows: Tensor | None = None
) -> Tensor:
    """`sample` in torch operators only, on any device: the reference for the kernels."""
    x = scores(logits, params, counts, rows)
    largest = x.amax(-1)
    hot = (params.temperature > 0)[:, None]
    tokens = torch.arange(logits.shape[1], device=logits.device)
    noisy = x + gumbel(params.seed[:, None], params.position[:, None], tokens)
    drawn = torch.where(hot, noisy.masked_fill(~kept(x, params), -torch.inf), x).argmax(-1)
    return torch.where(largest.isfinite(), drawn, -1)


def scores(logits: Tensor, params: SamplingParams, counts: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
    """float32 `[R, V]`: logits after penalties and temperature (cold rows: after penalties)."""
    x = logits.float()
    if params.penalised and counts is not None:
        value = counts[: len(x)] if rows is None else counts[rows.long()]
        made = (value >> 1).float()
        if params.repetition is not None:
            factor = params.repetition[:, None]
            x = torch.where(value > 0, torch.where(x > 0, x * (1 / factor), x * factor), x)
        if params.presence is not None:
            x = x - torch.where(made > 0, params.presence[:, None], 0.0)
        if params.frequency is not None:
            x = x - made * params.frequency[:, None]
    hot = params.temperature > 0
    return x * (1 / torch.where(hot, params.temperature, 1.0))[:, None]


def kept(x: Tensor, params: SamplingParams) -> Tensor:
    """bool `[R, V]`: the tokens that top-k, top-p and min-p keep of the scores `x` float32 `[R, V]`."""
    stays = torch.ones_like(x, dtype=torch.bool)
    if params.top_k is not None or params.top_p is not None:
        order = x.sort(dim=-1, descending=True).values
        among = torch.ones_like(stays)
        if params.top_k is not None:
            wanted = torch.where(params.top_k > 0, params.top_k, x.shape[1]).clamp(max=x.shape[1])
            among = order >= order.gather(1, wanted[:, None] - 1)
        if params.top_p is not None:
            mass = torch.where(among, (order - order[:, :1]).double().exp(), 0.0)
            before = mass.cumsum(-1) - mass
            top_p = params.top_p[:, None]
            among &= (before < top_p * mass.sum(-1, keepdim=True)) | (top_p >= 1)
        among[:, 0] = True
        stays &= x >= order.masked_fill(~among, torch.inf).amin(-1, keepdim=True)
    if params.min_p is not None:
        largest = x.amax(-1, keepdim=True)
        stays &= x >= largest + params.min_p.clamp(0, 1).log()[:, None]
    return stays


def count(counts: Tensor, rows: Tensor, tokens: Tensor) -> None:
    """Count one generated token for each of the table's `rows` `[R]`, in place; tokens int64 `[R]`, -1: none.

    counts int16 `[T, V]`: twice the times that a token was generated, plus one if it is in the prompt. Where a row is
    named several times (the pad row of a batch), some of its tokens may be lost.
    """
    if counts.is_cuda:
        from walkgraph.layers.kernels import sampling as kernels

        kernels.count(counts, rows, tokens)
        return
    at = (rows.long(), tokens.clamp(min=0))
    value = counts[at]
    counts[at] = value + 2 * ((tokens >= 0) & (value < _FULL)).to(counts.dtype)


def count_prompt(counts: Tensor, row: int, tokens: Tensor) -> None:
    """Reset a row of `counts` to a prompt's tokens int64 `[n]`."""
    counts[row].zero_().index_fill_(0, tokens, 1)


def biased(logits: Tensor, bias: Tensor) -> Tensor:
    """Logits `[R, V]` and pairs of a token and what is added to its logit, float32 `[R, n, 2]` -> float32 `[R, V]`. A
    token outside the vocabulary is none. A row names a token once."""
    tokens, values = bias[..., 0].long(), bias[..., 1]
    known = (tokens >= 0) & (tokens < logits.shape[1])
    return logits.float().scatter_add(1, tokens.where(known, 0), values.where(known, 0.0))


def scored(logits: Tensor, tokens: Tensor, k: int) -> Tensor:
    """Pairs of a token and its log-probability, float32 `[R, 1 + k, 2]`: the chosen `tokens` int64 `[R]`, then the k
    likeliest. (float32 has every integer up to 2^24 as it is.)"""
    ids, top, chosen, _ = top_logprobs(logits, tokens, k)
    of = torch.cat([tokens[:, None], ids], 1).float()
    return torch.stack([of, torch.cat([chosen[:, None], top], 1)], -1)


def top_logprobs(logits: Tensor, tokens: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The k likeliest tokens of logits `[R, V]` -> ids int64 and natural log-probabilities float32 `[R, k]`; and of
    the chosen `tokens` int64 `[R]` the log-probability float32 `[R]` and the rank int64 `[R]`: 1 + likelier tokens.
    """
    top, ids = logits.topk(k, dim=-1)
    chosen = logits.gather(1, tokens.clamp(min=0)[:, None])[:, 0]
    if logits.is_cuda:
        from walkgraph.layers.kernels.sampling_totals import totals

        total, rank = totals(logits, chosen)
    else:
        total = torch.stack([row.float().logsumexp(-1) for row in logits])
        rank = 1 + (logits > chosen[:, None]).sum(-1)
    return ids, top.float() - total[:, None], chosen.float() - total, rank


def gumbel(seed: Tensor, position: Tensor, token: Tensor) -> Tensor:
    """float32 Gumbel noise; int64 arguments broadcast.

    It comes from an exponential variate of a uniform number near zero, where float32 is dense, as the largest noise
    decides.
    """
    u = (_shift(draw(seed, position, token), 1).float() * 2.0**-63).clamp(2.0**-63, _BELOW_ONE)
    series = u * (1 + u * (1 / 2 + u * (1 / 3 + u * (1 / 4 + u * (1 / 5 + u * (1 / 6))))))
    return -torch.where(u < _SERIES_BELOW, series, -(1 - u).log()).log()


def draw(seed: Tensor, position: Tensor, index: Tensor) -> Tensor:
    """64 random bits as int64: splitmix64 over the three numbers in turn."""
    return _mix(_mix(_mix(seed) + position * _GOLDEN) + index * _GOLDEN)


def _mix(x: Tensor) -> Tensor:
    """splitmix64's finaliser; int64 arithmetic wraps."""
    x = x + _GOLDEN
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def _shift(x: Tensor, by: int) -> Tensor:
    """Shift right without the sign."""
    return (x >> by) & ((1 << (64 - by)) - 1)
