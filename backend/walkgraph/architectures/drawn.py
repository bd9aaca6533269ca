"""Random weights, for the configurations in `random:CONFIG:SEED` sources."""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from walkgraph.architectures.precision import Kept
from walkgraph.architectures.weights import cut_out, uncut
from walkgraph.checkpoints.sharding.cut import Cuts
from walkgraph.layers.unset import unset

M = TypeVar("M", bound=nn.Module)


def drawn(
    build: Callable[[], M],
    seed: int,
    *,
    device: torch.device,
    dtype: torch.dtype,
    precision: str = "bf16",
    cuts: Cuts = uncut,
) -> M:
    """A module with random tensors, even where training starts with zeros, so that no test passes because a tensor is
    0.

    Each tensor depends only on the seed and its own name, so a part gets the same values as within the whole.
    `precision`: as in `LoadContext`. `cuts`: the part of each tensor that is kept; one tensor at a time is drawn whole.
    CPU and GPU draw different numbers.
    """
    with unset():
        module = build()
    kept = Kept(module, precision)
    state = {
        name: kept(name, _part(name, tensor.shape, seed, device, cuts).to(dtype))
        for name, tensor in module.state_dict().items()
    }
    module.load_state_dict(state, assign=True)
    return module.eval().requires_grad_(False)


def _part(name: str, shape: torch.Size, seed: int, device: torch.device, cuts: Cuts) -> Tensor:
    cut = cuts(name)
    if cut is None:
        return _draw(name, shape, seed, device)
    return cut_out(_draw(name, cut.whole(shape), seed, device), cut)


def _draw(name: str, shape: Sequence[int], seed: int, device: torch.device) -> Tensor:
    """Matrices preserve the scale of their input; weight vectors are near 1, biases near 0."""
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=7).digest()
    generator = torch.Generator(device).manual_seed(int.from_bytes(digest, "big"))
    numbers = torch.randn(shape, generator=generator, device=device)
    if len(shape) > 1:
        return numbers / math.sqrt(math.prod(shape[1:]))
    return numbers * 0.1 + (0.0 if name.endswith("bias") else 1.0)
