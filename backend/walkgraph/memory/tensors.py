"""Tensors and their bytes: torch's dtypes by their names in headers."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from walkgraph.wire.tensors import ITEM_BYTES

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ITEM_BYTES}
"""Dtypes that can leave a rank."""


def tensor_of(raw: "np.ndarray[Any, Any]", dtype: str, shape: tuple[int, ...]) -> Tensor:
    """A tensor over the memory of `raw`, uint8 `[n]`; the header has been checked."""
    if not raw.nbytes:
        return torch.empty(shape, dtype=DTYPES[dtype])
    return torch.from_numpy(raw).view(DTYPES[dtype]).view(shape)


def copy_into(memory: Any, offset: int, tensor: Tensor) -> None:
    """Copy a non-empty tensor into a writable buffer."""
    there = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=offset)
    there.view(tensor.shape).copy_(tensor)
