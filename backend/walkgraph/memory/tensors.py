"""Tensors and their bytes: torch's dtypes by the names that headers have for them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from walkgraph.wire.tensors import ITEM_BYTES

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ITEM_BYTES}
"""Those that can leave a rank."""


def tensor_of(raw: "np.ndarray[Any, Any]", dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Over the memory of `raw`, uint8 `[n]`; the header was checked."""
    if not raw.nbytes:
        return torch.empty(shape, dtype=DTYPES[dtype])
    return torch.from_numpy(raw).view(DTYPES[dtype]).view(shape)


def copy_into(memory: Any, offset: int, tensor: Tensor) -> None:
    """Of a tensor that has elements, into a buffer that can be written."""
    there = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=offset)
    there.view(tensor.shape).copy_(tensor)
