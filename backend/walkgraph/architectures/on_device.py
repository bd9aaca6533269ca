"""The base of operators that make tensors themselves, and hold nothing else."""

from typing import Self

import torch

from walkgraph.abi.operator import LoadContext, Operator


class OnDevice(Operator):
    """An operator that makes tensors on its rank's device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(context.device)
