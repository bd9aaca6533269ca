"""Root-mean-square norm."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x `[..., width]`, normalized over the last dimension."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Many wide rows, x `[R, W]` contiguous, without a gradient: statistics in float32, rounded once to x's type."""
    if x.is_cuda:
        from walkgraph.layers.kernels.norm import wide_rms_norm

        return wide_rms_norm(x, weight, eps)
    return F.rms_norm(x, weight.shape, weight, eps)
