"""The number format of BAGEL's gen weights: guidance branches with different rounding would differ by their rounding
errors too.
"""

from collections.abc import Sequence
from typing import cast

from walkgraph.abi.operator import PRECISION, LoadContext
from walkgraph.architectures.precision import converts, freed
from walkgraph.errors import Refused
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.fp8 import quantise, supported
from walkgraph.models.bagel.config import BagelConfig
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.mot import GEN


def at_precision(model: Bagel, context: LoadContext) -> Bagel:
    """The model with its gen weights in the node's format. Raises `Refused` if another node has chosen a different
    format or the device has no such products."""
    if not converts(context):
        return model
    if not supported(context.device, context.dtype, *_widths(model.config)):
        raise Refused(f"`{PRECISION}` fp8 needs bfloat16 on a GPU of compute capability 9.0 or above")
    for layer in cast(Sequence[DecoderLayer], model.language_model.model.layers):
        quantise(layer, GEN)
    freed(context.device)
    return model


def _widths(config: BagelConfig) -> tuple[int, ...]:
    llm = config.llm
    return llm.width, llm.hidden, llm.heads * llm.head_dim, llm.kv_heads * llm.head_dim
