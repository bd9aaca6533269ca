"""The linears of many rows, in parts of rows and whole, against the layer's plain modules."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch.nn import functional as F

from tests.unit.layers.test_fp8 import GEN, SHAPE, layer
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.flow_linear import PlainFlowLinears, down_rows
from walkgraph.layers.linear.mlp import SwiGLU, gated_product


@pytest.mark.parametrize("each", [3, 10, 99])
def test_parts_of_rows_are_multiplied_as_all_of_them(each: int) -> None:
    made, x = layer(), torch.randn(10, SHAPE.width)
    norm, mlp = made.get_submodule(f"post_attention_layernorm{GEN}"), made.get_submodule(f"mlp{GEN}")
    found, wanted = x.clone(), x + mlp(norm(x))
    PlainFlowLinears(made, GEN, down_rows=lambda rows: min(each, rows)).mlp(found)
    torch.testing.assert_close(found, wanted)


def test_few_rows_go_down_in_parts_and_many_at_once() -> None:
    assert [down_rows(rows) for rows in (1, 4096, 4097, 8192)] == [1024, 1024, 4097, 8192]


def test_gate_and_up_are_those_of_the_packed_weight() -> None:
    mlp, x = cast(SwiGLU, layer().get_submodule(f"mlp{GEN}")), torch.randn(5, SHAPE.width)
    assert mlp.gate_up is not None
    wanted = F.silu(mlp.gate_proj(x)) * mlp.up_proj(x)
    torch.testing.assert_close(gated_product(x, mlp.gate_up.weight), wanted)


def test_a_layer_that_is_not_packed_is_refused() -> None:
    with pytest.raises(RuntimeError, match="pack"):
        PlainFlowLinears(DecoderLayer(SHAPE, ("",)), "")
