"""A plain runtime for training and evaluation: batches, no caches, one frame after another.

It keeps the model's contexts and positions and nothing of an engine's machinery.

Shape letters: B scenes, T frames, n patches, d width, H actions of a plan, N plans tried at once.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from walkgraph.networks.vjepa2 import Vjepa2, Vjepa2Predictor, normed
from walkgraph.networks.world_scene import MOST
from walkgraph.starters.world.data import reckoned

GRIP = 0.75
"""Largest change of the grip that a planner tries."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """How a planner searches: plans a round, actions of a plan, rounds, and what it keeps of them."""

    samples: int = 64
    horizon: int = 2
    rounds: int = 4
    top: int = 8
    momentum_mean: float = 0.1
    momentum_std: float = 0.2
    max_norm: float = MOST


def seen(model: Vjepa2, pixels: Tensor) -> Tensor:
    """pixels `[..., 3, h, w]` -> normed features `[..., n, d]`, float32."""
    features = normed(model.encoder(pixels.flatten(0, -4)).float())
    return features.unflatten(0, pixels.shape[:-3])


def imagined(predictor: Vjepa2Predictor, first: Tensor, actions: Tensor, pose: Tensor) -> Tensor:
    """first `[B, n, d]`, actions `[B, T, 7]`, pose `[B, 7]` -> the frames after each action `[B, T, n, d]`."""
    frames, poses = [first], reckoned(pose, actions)
    for t in range(1, actions.shape[1] + 1):
        predicted = predictor(torch.stack(frames, 1), actions[:, :t], poses[:, :t])
        frames.append(normed(predicted[:, -1].float()))
    return torch.stack(frames[1:], 1)


def planned(predictor: Vjepa2Predictor, first: Tensor, goal: Tensor, pose: Tensor, how: Search) -> Tensor:
    """first and goal `[B, n, d]`, pose `[B, 7]` -> the action to take `[B, 7]`, by the cross-entropy method: tries
    plans, keeps the best by the last frame's mean absolute difference from the goal, and draws closer ones."""
    count, device = first.shape[0], first.device
    limit = torch.tensor([how.max_norm] * 3 + [GRIP], device=device)
    mean = torch.zeros(count, how.horizon, 4, device=device)
    std = torch.tensor([how.max_norm] * 3 + [1.0], device=device).expand_as(mean)
    many = first.repeat_interleave(how.samples, 0), pose.repeat_interleave(how.samples, 0)
    for _ in range(how.rounds):
        noise = torch.randn(count, how.samples, how.horizon, 4, device=device)
        tried = torch.maximum(torch.minimum(noise * std[:, None] + mean[:, None], limit), -limit)
        last = imagined(predictor, many[0], _seven(tried).flatten(0, 1), many[1])[:, -1]
        cost = (last.unflatten(0, (count, -1)) - goal[:, None]).abs().mean((-1, -2))
        best = cost.topk(how.top, largest=False).indices
        kept = tried.take_along_dim(best[..., None, None], 1)
        mean = mean * how.momentum_mean + kept.mean(1) * (1 - how.momentum_mean)
        std = std * how.momentum_std + kept.std(1) * (1 - how.momentum_std)
    return _seven(mean)[:, 0]


def _seven(numbers: Tensor) -> Tensor:
    """Shift and grip `[..., 4]` -> actions `[..., 7]`."""
    return torch.cat([numbers[..., :3], torch.zeros_like(numbers[..., :3]), numbers[..., 3:]], -1)
