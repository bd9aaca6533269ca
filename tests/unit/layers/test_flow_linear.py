"""The linears of many rows, in parts of rows and whole, against the layer's plain modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.support.shards import Imagined
from tests.unit.layers.test_fp8 import GEN, SHAPE, layer
from walkgraph.architectures.drawn import drawn
from walkgraph.checkpoints.language import ExpertSizes
from walkgraph.collectives.base import WHOLE
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.flow_linear import FlowLinears, PlainFlowLinears, down_rows
from walkgraph.layers.linear.fp8 import flow_linears, quantise
from walkgraph.layers.linear.mlp import SwiGLU, gated_product
from walkgraph.layers.moe.flow_linear import row_linears
from walkgraph.layers.moe.sparse_mlp import SparseMLP

EXPERTS = ExpertSizes(experts=4, chosen=2, hidden=16, renormed=True)


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


def plain(made: DecoderLayer) -> FlowLinears:
    return PlainFlowLinears(made, GEN, down_rows=lambda rows: 3)


def eight_bits(made: DecoderLayer) -> FlowLinears:
    quantise(made, GEN)
    return flow_linears(made, GEN)


def sparse(made: DecoderLayer) -> FlowLinears:
    experts = drawn(lambda: SparseMLP(SHAPE.width, EXPERTS), 0, device=torch.device("cpu"), dtype=torch.float32)
    experts.pack()
    made.add_module(f"mlp{GEN}", experts)
    return row_linears(made, GEN)


@pytest.mark.parametrize("kind", [plain, eight_bits, sparse])
def test_what_is_added_to_rows_is_summed_over_the_shards(kind: Callable[[DecoderLayer], FlowLinears]) -> None:
    x, heads = torch.randn(10, SHAPE.width), torch.randn(1, 10, SHAPE.heads * SHAPE.head_dim)
    added: list[list[Tensor]] = []
    for shard in (WHOLE, Imagined(times=2)):
        made = layer()
        made.shard = shard
        linears, rows = kind(made), [x.clone(), x.clone()]
        linears.o(heads, rows[0])
        linears.mlp(rows[1])
        added.append([one - x for one in rows])
    for one, two in zip(*added, strict=True):
        torch.testing.assert_close(two, 2 * one)


def test_a_layer_that_is_not_packed_is_refused() -> None:
    with pytest.raises(RuntimeError, match="pack"):
        PlainFlowLinears(DecoderLayer(SHAPE, ("",)), "")
