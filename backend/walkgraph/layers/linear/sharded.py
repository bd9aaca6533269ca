"""The ends of linear layers whose inputs are divided over a tensor-parallel group: each shard has a part of the sum.

Shape letters: R rows, K inputs of this shard, W model width.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.collectives.base import Shard
from walkgraph.layers.linear.int4 import Int4Weight
from walkgraph.layers.linear.step_linear import linear


def added(x: Tensor, shard: Shard, product: Callable[[Tensor | None], Tensor]) -> Tensor:
    """x `[R, W]` + the sum over the shards. `product`: makes this shard's part, with the residual that it gets added
    before rounding; the first shard's has it."""
    return shard.sum(product(x if shard.index == 0 else None))


def add_product(x: Tensor, shard: Shard, rows: Tensor, weight: Tensor) -> None:
    """x `[R, W]` += the sum over the shards of rows `[R, K]` @ weight `[W, K]`.T. With one shard it is summed in
    float32 and rounded once."""
    with torch.no_grad():
        if shard.count > 1:
            x.add_(shard.sum(F.linear(rows, weight)))
        elif isinstance(weight, Int4Weight):
            x.copy_(linear(rows, weight, residual=x))
        else:
            x.addmm_(rows, weight.t())
