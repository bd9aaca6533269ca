"""A plain runtime for training and evaluation: batches, no caches, one frame after another.

It keeps the model's contexts and positions and nothing of an engine's machinery.

Shape letters: B scenes, T frames, n patches, d width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from walkgraph.models.vjepa2.model import Vjepa2, Vjepa2Predictor, normed
from walkgraph.models.vjepa2.planning import Momentum, chosen, distance, normals, propose, refine, rest
from walkgraph.models.world.scene import MOST
from walkgraph.starters.world.data import reckoned


@dataclass(frozen=True, kw_only=True)
class Search:
    """Settings of a planner's search: plans per round, actions per plan, rounds, and the number of plans kept."""

    samples: int = 32
    horizon: int = 1
    rounds: int = 3
    top: int = 5
    momentum: tuple[float, float, float, float] = (0.1, 0.2, 0.15, 0.15)
    """The weights of `planning.Momentum`, in its order."""
    max_norm: float = MOST


def seen(model: Vjepa2, pixels: Tensor) -> Tensor:
    """pixels `[..., 3, h, w]` -> normed features `[..., n, d]`, float32."""
    features = normed(model.encoder(pixels.flatten(0, -4)).float())
    return features.unflatten(0, pixels.shape[:-3])


def imagined(predictor: Vjepa2Predictor, first: Tensor, actions: Tensor, pose: Tensor) -> Tensor:
    """first `[B, n, d]`, actions `[B, T, 7]`, pose `[B, 7]` -> the predicted frames after each action `[B, T, n,
    d]`."""
    frames, poses = [first], reckoned(pose, actions)
    for t in range(1, actions.shape[1] + 1):
        predicted = predictor(torch.stack(frames, 1), actions[:, :t], poses[:, :t])
        frames.append(normed(predicted[:, -1].float()))
    return torch.stack(frames[1:], 1)


def planned(
    predictor: Vjepa2Predictor, first: Tensor, goal: Tensor, pose: Tensor, how: Search, seeds: Tensor
) -> Tensor:
    """first and goal `[B, n, d]`, pose `[B, 7]`, seeds int64 `[B]` -> the action to take `[B, 7]`."""
    count, device = first.shape[0], first.device
    mean, std = (part.expand(count, -1, -1) for part in rest(how.horizon, how.max_norm, device=device))
    most = torch.full((count,), how.max_norm, device=device)
    momentum = Momentum(*torch.tensor(how.momentum, device=device)[:, None].expand(-1, count))
    many = first.repeat_interleave(how.samples, 0), pose.repeat_interleave(how.samples, 0)
    for number in range(how.rounds):
        noise = normals(seeds, torch.full_like(seeds, number), how.horizon, how.samples)
        tried = propose(noise, mean, std, most)
        last = imagined(predictor, many[0], tried.transpose(1, 2).flatten(0, 1), many[1])[:, -1]
        cost = distance(last.unflatten(0, (count, -1)), goal)
        mean, std = refine(tried, cost, mean, std, momentum, how.top)
    return chosen(mean)
