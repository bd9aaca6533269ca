"""The number format of a part of a model's weights: the rank's type, or eight bits, which are faster to read and less
exact.

Eight bits take half the memory, and the original weights are freed, so all nodes of one weight set on a rank must
agree.
"""

import torch

from walkgraph.abi.operator import LoadContext
from walkgraph.errors import Refused

PRECISION = "precision"
"""The option's name: `bf16` keeps the weights in the rank's type, whatever that is."""


def converts(context: LoadContext) -> bool:
    """True for the first operator of a weight set whose node asks for eight bits: it converts the weights. Raises
    `Refused` if another node has chosen a different format."""
    wanted = context.options.get(PRECISION, "bf16")
    first = PRECISION not in context.shared
    there = context.shared.setdefault(PRECISION, wanted)
    if there != wanted:
        raise Refused(f"nodes that share weights on a rank must have one `{PRECISION}`, not {there} and {wanted}")
    return first and wanted == "fp8"


def freed(device: torch.device) -> None:
    """Give the memory of the converted weights back to later allocations of other sizes."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
