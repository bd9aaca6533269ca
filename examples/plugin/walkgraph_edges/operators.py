"""The operators that workers run. Only this file of the package imports torch."""

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.networks.base import Call, Operator, Outputs, States

LUMA = (0.299, 0.587, 0.114)
"""Brightness of red, green and blue (ITU-R BT.601)."""


class Sobel(Operator):
    """Batches pictures of equal size."""

    def bucket(self, call: Call) -> Hashable:
        return tuple(call.inputs["pixels"].shape)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        pixels = torch.stack([call.inputs["pixels"] for call in calls])
        gains = torch.tensor([float(call.params["gain"]) for call in calls], device=pixels.device)
        return [{"pixels": picture} for picture in edges(pixels, gains)]


def edges(pixels: Tensor, gains: Tensor) -> Tensor:
    """float `[B, 3, h, w]` in [-1, 1], gains float `[B]` -> the same shape: `2 * gain * |gradient| - 1`, clamped."""
    weights = pixels.new_tensor(LUMA).view(1, 3, 1, 1)
    grey = F.pad((pixels * weights).sum(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    across = pixels.new_tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]) / 8
    kernels = torch.stack([across, across.T])[:, None]
    gradient = F.conv2d(grey, kernels).norm(dim=1, keepdim=True)
    return (2 * gains.view(-1, 1, 1, 1) * gradient - 1).clamp(-1, 1).expand_as(pixels)
