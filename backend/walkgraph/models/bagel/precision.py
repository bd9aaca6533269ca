"""The number format of BAGEL's gen weights: the rank's type, or eight bits for faster flow steps.

Eight bits take half the memory, and the original weights are freed, so all nodes of one weight set on a rank must
agree: guidance branches with different rounding would differ by their rounding errors too.
"""

from collections.abc import Sequence
from typing import cast

import torch

from walkgraph.abi.operator import LoadContext
from walkgraph.errors import Refused
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.fp8 import quantise, supported
from walkgraph.models.bagel.config import BagelConfig
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.mot import GEN

PRECISION = "precision"
"""The option's name: `bf16` keeps the weights in the rank's type, whatever that is."""


def at_precision(model: Bagel, context: LoadContext) -> Bagel:
    """The model with its gen weights in the node's format. Raises `Refused` if another node has chosen a different
    format or the device has no such products."""
    wanted = context.options.get(PRECISION, "bf16")
    first = PRECISION not in context.shared
    there = context.shared.setdefault(PRECISION, wanted)
    if there != wanted:
        raise Refused(f"nodes that share weights on a rank must have one `{PRECISION}`, not {there} and {wanted}")
    if wanted != "fp8" or not first:
        return model
    if not supported(context.device, context.dtype, *_widths(model.config)):
        raise Refused(f"`{PRECISION}` fp8 needs bfloat16 on a GPU of compute capability 9.0 or above")
    for layer in cast(Sequence[DecoderLayer], model.language_model.model.layers):
        quantise(layer, GEN)
    if context.device.type == "cuda":
        torch.cuda.empty_cache()  # free memory for later allocations of other sizes
    return model


def _widths(config: BagelConfig) -> tuple[int, ...]:
    llm = config.llm
    return llm.width, llm.hidden, llm.heads * llm.head_dim, llm.kv_heads * llm.head_dim
