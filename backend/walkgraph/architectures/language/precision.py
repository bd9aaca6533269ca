"""The number format of a language model's experts, which are nearly all of its weights."""

import torch

from walkgraph.abi.operator import PRECISION, LoadContext
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.architectures.precision import converts, freed
from walkgraph.errors import Refused
from walkgraph.layers.moe.sparse_mlp import SparseMLP


def at_precision(model: LanguageModel, context: LoadContext) -> LanguageModel:
    """The model with its experts in the node's format. Raises `Refused` if another node has chosen a different format,
    the model has no experts, or the device has no such numbers."""
    if not converts(context):
        return model
    mixtures = [part for part in model.modules() if isinstance(part, SparseMLP)]
    if not mixtures:
        raise Refused(f"`{PRECISION}` fp8 is for experts, and this model has none; leave it at bf16")
    if context.device.type == "cuda" and torch.cuda.get_device_capability(context.device) < (8, 9):
        raise Refused(f"`{PRECISION}` fp8 needs a GPU of compute capability 8.9 or above")
    for mixture in mixtures:
        mixture.quantise()
    freed(context.device)
    return model
