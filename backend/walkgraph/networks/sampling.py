"""The next token from logits. Its noise is a pure function of (seed, position, token): equal logits give equal samples
in any row of any batch, on any device.

Shape letters: R rows, V vocabulary.
"""

import torch
from torch import Tensor

_GOLDEN = -0x61C8864680B583EB
"""2^64 divided by the golden ratio, as a signed number: the step between the streams of splitmix64."""
_MIX_1 = -0x40A7B892E31B1A47
_MIX_2 = -0x6B2FB644ECCEEE15
_BITS = 52


def sample(
    logits: Tensor, *, seed: Tensor, position: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor
) -> Tensor:
    """Logits `[R, V]` -> tokens int64 `[R]`.

    Per row: int64 seed, position and top_k (0: all tokens), float temperature (0: the likeliest token) and top_p.
    Temperature comes first, then top-k, then top-p; the likeliest token always stays.
    """
    hot = temperature > 0
    if not bool(hot.any()):
        return logits.argmax(-1)
    scaled = logits.double() / torch.where(hot, temperature, 1.0).double()[:, None]
    if bool(((top_k > 0) | (top_p < 1)).any()):
        scaled, tokens = scaled.sort(dim=-1, descending=True, stable=True)
        scaled = scaled.masked_fill(~_kept(scaled, top_k, top_p), -torch.inf)
    else:
        tokens = torch.arange(logits.shape[1], device=logits.device).expand_as(logits)
    drawn = (scaled + gumbel(seed[:, None], position[:, None], tokens)).argmax(-1, keepdim=True)
    return torch.where(hot, tokens.gather(1, drawn)[:, 0], logits.argmax(-1))


def gumbel(seed: Tensor, position: Tensor, token: Tensor) -> Tensor:
    """float64 Gumbel noise; int64 arguments broadcast."""
    return -torch.log(-torch.log(uniform(seed, position, token)))


def uniform(seed: Tensor, position: Tensor, index: Tensor) -> Tensor:
    """float64 in (0, 1), never an end."""
    bits = _shift(draw(seed, position, index), 64 - _BITS)
    return (bits.double() + 0.5) * 2.0**-_BITS


def draw(seed: Tensor, position: Tensor, index: Tensor) -> Tensor:
    """64 random bits as int64: splitmix64 over the three numbers in turn."""
    return _mix(_mix(_mix(seed) + position * _GOLDEN) + index * _GOLDEN)


def _kept(scaled: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """bool `[R, V]` over logits sorted downward."""
    rank = torch.arange(scaled.shape[1], device=scaled.device)
    among = rank < torch.where(top_k > 0, top_k, scaled.shape[1])[:, None]
    probability = scaled.masked_fill(~among, -torch.inf).softmax(-1)
    before = probability.cumsum(-1) - probability
    return among & (before < top_p.double()[:, None]) | (rank == 0)


def _mix(x: Tensor) -> Tensor:
    """splitmix64's finaliser; int64 arithmetic wraps."""
    x = x + _GOLDEN
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def _shift(x: Tensor, by: int) -> Tensor:
    """Shift right without the sign."""
    return (x >> by) & ((1 << (64 - by)) - 1)
