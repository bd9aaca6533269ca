"""Planning by the cross-entropy method: sequences of actions are drawn around a mean, and mean and spread move towards
the best.

Shifts and the grip are drawn; the arm doesn't turn in a plan. Noise is a pure function of (seed, round, step, sample,
number), so it needs no state, and CPUs and GPUs draw the same up to the last bits.

Shape letters: B runs, t actions of a sequence, w sequences of a round.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.layers.sampling import draw
from walkgraph.models.vjepa2.model import ACTION

SHIFTS = 3
GRIP_MOST = 0.75
"""Bound of a drawn change of the grip, in either direction."""
GRIP_LEAST = 0.25
"""A smaller change of the grip becomes 0 in the action that is carried out."""
_SAMPLES, _NUMBERS = 1 << 20, 1 << 3
"""Strides for samples and numbers in a draw's counter, so a sample's noise doesn't depend on how many there are."""
_BITS = 53


class Momentum(NamedTuple):
    """Weights of the old values, each float32 `[B]`."""

    mean: Tensor
    std: Tensor
    mean_grip: Tensor
    std_grip: Tensor


def rest(horizon: int, max_norm: float, *, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and spread at the start of a plan, each float32 `[t, 7]`."""
    std = torch.tensor([max_norm] * SHIFTS + [0.0] * (ACTION - SHIFTS - 1) + [1.0]).expand(horizon, -1)
    return torch.zeros(horizon, ACTION, device=device), std.to(device).contiguous()


def normals(seed: Tensor, number: Tensor, steps: int, samples: int) -> Tensor:
    """seed and number (of the round) int64 `[B]` -> float32 `[B, t, w, 7]` of deviation 1; all seven numbers."""
    on = seed.device
    places = torch.arange(steps, device=on)[:, None, None] * _SAMPLES + torch.arange(samples, device=on)[:, None]
    index = places * _NUMBERS + torch.arange(ACTION, device=on)
    bits = draw(seed[:, None, None, None], number[:, None, None, None], index)
    # The middle of one of 2^53 equal parts of (-1, 1), which keeps the distribution symmetric.
    uniform = ((bits >> (63 - _BITS)) & ((1 << _BITS) - 1)).double().add(0.5).mul(2.0 ** (1 - _BITS)).sub(1)
    return (uniform.erfinv() * math.sqrt(2)).float()


def propose(noise: Tensor, mean: Tensor, std: Tensor, max_norm: Tensor) -> Tensor:
    """noise `[B, t, w, 7]`, mean and std `[B, t, 7]`, max_norm `[B]` (metres) -> actions float32 `[B, t, w, 7]`."""
    actions = torch.addcmul(mean[:, :, None], noise, std[:, :, None])
    most = max_norm[:, None, None, None]
    shifts = torch.minimum(torch.maximum(actions[..., :SHIFTS], -most), most)
    turns = torch.zeros_like(actions[..., SHIFTS:-1])
    return torch.cat([shifts, turns, actions[..., -1:].clamp(-GRIP_MOST, GRIP_MOST)], -1)


def distance(features: Tensor, goal: Tensor) -> Tensor:
    """features `[B, w, n, d]`, goal `[B, n, d]` -> mean absolute differences, float32 `[B, w]`."""
    # Summed in float32. A difference rounded to 16 bits is off by at most 2^-9, without bias, and 1e5 of them are
    # summed.
    apart = features - goal[:, None]
    return torch.linalg.vector_norm(apart, 1, (-2, -1), dtype=torch.float32) / (apart.shape[-1] * apart.shape[-2])


def refine(
    actions: Tensor, cost: Tensor, mean: Tensor, std: Tensor, momentum: Momentum, top: int
) -> tuple[Tensor, Tensor]:
    """actions `[B, t, w, 7]`, cost `[B, w]`, mean and std of the round before `[B, t, 7]` -> the next mean and std.

    `top`: number of sequences with the lowest costs (the first among equals) that give mean and (unbiased)
    deviation."""
    best = cost.sort(dim=-1, stable=True).indices[:, :top]
    chosen = actions.gather(2, best[:, None, :, None].expand(-1, actions.shape[1], -1, ACTION))
    found = chosen.mean(2)
    spread = chosen.std(2) if top > 1 else torch.zeros_like(found)
    return (
        torch.lerp(found, mean, _shares(momentum.mean, momentum.mean_grip)),
        torch.lerp(spread, std, _shares(momentum.std, momentum.std_grip)),
    )


def chosen(mean: Tensor) -> Tensor:
    """mean `[B, t, 7]` -> the first action `[B, 7]` in the form that is carried out."""
    first = mean[:, 0]
    grip = first[:, -1:]
    return torch.cat([first[:, :-1], grip.where(grip.abs() >= GRIP_LEAST, 0.0)], -1)


def _shares(others: Tensor, grip: Tensor) -> Tensor:
    """`[B]` twice -> `[B, 1, 7]`."""
    return torch.cat([others[:, None].expand(-1, ACTION - 1), grip[:, None]], -1)[:, None]
