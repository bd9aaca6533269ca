"""The number format of a part of a model's weights: the rank's type, or fewer bits, which take less memory and are less
exact.

The engine gives it to every operator of a weight set, whose nodes must agree: the original weights are not kept. Eight
bits are converted once a model is read; four bits tensor by tensor while it is read or drawn, so that the whole is
never there in the rank's type.
"""

import torch
from torch import Tensor, nn

from walkgraph.abi.operator import PRECISION, LoadContext
from walkgraph.errors import Refused
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.int4 import Int4Weight
from walkgraph.layers.moe.sparse_mlp import SparseMLP

_CONVERTED = "converted"
"""The key under which the modules of a weight set record that they are in eight bits."""


def converts(context: LoadContext) -> bool:
    """True for the first operator of a weight set whose nodes ask for eight bits: it converts the weights."""
    first = _CONVERTED not in context.shared
    context.shared[_CONVERTED] = True
    return first and context.precision == "fp8"


def freed(device: torch.device) -> None:
    """Give the memory of the converted weights back to later allocations of other sizes."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


class Kept:
    """The format in which each tensor of a module is kept. The module is built only for its names."""

    def __init__(self, module: nn.Module, precision: str) -> None:
        """Raises `Refused` if the module has no weights that four bits are for."""
        self.few: frozenset[str] = frozenset()
        """Names of the tensors that are kept in four bits."""
        if precision != "int4":
            return
        layers = {path: layer for path, layer in module.named_modules() if isinstance(layer, DecoderLayer)}
        if not layers or any(isinstance(part, SparseMLP) for part in module.modules()):
            raise Refused(f"`{PRECISION}` int4 is for layers without experts; use fp8 for experts, or leave it at bf16")
        self.few = frozenset(
            f"{path}.{name}.weight"
            for path, layer in layers.items()
            for name, part in layer.named_modules()
            if isinstance(part, nn.Linear)
        )

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        """The tensor of this name, in the rank's type, as it is kept."""
        return Int4Weight.of(tensor) if name in self.few else tensor
