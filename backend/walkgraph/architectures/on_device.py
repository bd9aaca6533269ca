"""The base of operators that only create tensors and have no weights."""

from typing import Self

import torch

from walkgraph.abi.operator import LoadContext, Operator


class OnDevice(Operator):
    """An operator that creates tensors on its rank's device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(context.device)
