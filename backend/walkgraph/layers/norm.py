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
        """x `[..., width]`, normalised over the last dimension."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
