from __future__ import annotations

import torch

from walkgraph.engine.weights import Weights
from walkgraph.placement.tables import WeightsPlan

CPU = torch.device("cpu")


def test_a_context_says_where_weights_are_and_what_is_shared() -> None:
    weights = Weights(WeightsPlan(family="bagel", source="random:bagel-tiny:7"), (), CPU)
    context = weights.context({"x": 1}, lambda n: None)
    assert (context.random, context.folder, context.dtype, dict(context.options)) == (
        ("bagel-tiny", 7),
        None,
        torch.float32,
        {"x": 1},
    )
    context.shared["module"] = 1
    assert weights.context({}, lambda n: None).shared == {"module": 1}
    assert weights.bytes == 0
    none = Weights(None, (), CPU).context({}, lambda n: None)
    assert (none.random, none.folder) == (None, None)
