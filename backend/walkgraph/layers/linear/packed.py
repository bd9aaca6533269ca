"""Several linear maps of one input as one matrix, whose parts stay parameters under their own names."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

UNPACKED = "a layer steps once it is packed; call `pack` after its weights are loaded"


class Packed(NamedTuple):
    weight: Tensor
    """`[N, K]`: the rows of every part, in their order."""
    bias: Tensor | None
    """`[N]`"""

    @classmethod
    def of(cls, *parts: nn.Linear) -> Self:
        """Re-homes the parts' parameters in one tensor each, as frozen views of it; no weights are held twice.

        After replacing a part's parameter, pack again.
        """
        with torch.no_grad():
            weight = torch.cat([part.weight.data for part in parts])
            biases = [part.bias.data for part in parts if part.bias is not None]
            bias = torch.cat(biases) if biases else None
        sizes = [part.out_features for part in parts]
        for part, rows in zip(parts, weight.split(sizes), strict=True):
            part.weight = nn.Parameter(rows, requires_grad=False)
        if bias is not None:
            for part, rows in zip(parts, bias.split(sizes), strict=True):
                part.bias = nn.Parameter(rows, requires_grad=False)
        return cls(weight, bias)


class Packable(nn.Module, ABC):
    """Lays its weights out differently for serving, and again whenever it is moved or cast, as that recreates its
    parameters."""

    @property
    @abstractmethod
    def is_packed(self) -> bool: ...

    @abstractmethod
    def pack(self) -> None: ...

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        if self.is_packed:
            self.pack()
        return self
