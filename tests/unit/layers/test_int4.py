"""Weights in four bits, on the CPU: against the numbers that they stand for, and against the layer that they are in."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.unit.layers.test_fp8 import GEN, SHAPE, layer, off
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.flow_linear import PlainFlowLinears
from walkgraph.layers.linear.int4 import GROUP, Int4Weight
from walkgraph.layers.linear.mlp import gated, gated_product
from walkgraph.layers.linear.packed import Packed
from walkgraph.layers.linear.step_linear import linear


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_a_group_keeps_its_largest_number_or_cuts_it_where_the_others_gain() -> None:
    weight = drawn(0, 4, 2 * GROUP) * torch.logspace(-8, 4, 4)[:, None]
    kept = Int4Weight.of(weight)
    assert (kept.numbers.dtype, kept.numbers.shape, kept.scales.shape) == (torch.uint8, (4, GROUP), (4, 2))
    groups, mine = weight.unflatten(1, (2, GROUP)), kept.plain().unflatten(1, (2, GROUP))
    error = (mine - groups).square().sum(2)
    plain = groups.gather(2, groups.abs().argmax(2, keepdim=True)) / -8
    simple = ((groups / plain).round().clamp(-8, 7) * plain - groups).square().sum(2)
    assert (error <= simple * 1.0001).all()
    assert 0.08 < off(mine, groups) < 0.11


def test_whole_numbers_and_zeros_are_kept_as_they_are() -> None:
    whole = torch.randint(-8, 8, (5, 3 * GROUP), generator=torch.Generator().manual_seed(1)).float()
    whole[:, ::GROUP] = -8
    whole[2] = 0
    assert torch.equal(Int4Weight.of(whole).plain(), whole)


def test_a_last_group_may_be_short() -> None:
    weight = drawn(2, 3, GROUP + 7)
    kept = Int4Weight.of(weight)
    assert (kept.shape, kept.numbers.shape, kept.plain().shape) == ((3, GROUP + 7), (3, GROUP), (3, GROUP + 7))
    assert torch.equal(kept.plain()[:, :GROUP], Int4Weight.of(weight[:, :GROUP].contiguous()).plain())


def test_two_numbers_share_a_byte() -> None:
    weight = drawn(3, 8, 8 * GROUP).bfloat16()
    kept = Int4Weight.of(weight)
    assert kept.nbytes == weight.nbytes * 33 // 128  # a sixteenth of a bit for the scales of each
    assert (kept.dtype, kept.plain().dtype) == (torch.bfloat16, torch.bfloat16)


def test_it_is_multiplied_joined_and_cut_as_other_weights_are() -> None:
    one, two = nn.Linear(GROUP, 6), nn.Linear(GROUP, 4)
    x, plain = drawn(4, 3, GROUP), [part.weight.detach().clone() for part in (one, two)]
    for part in (one, two):
        part.weight = nn.Parameter(Int4Weight.of(part.weight.detach()), requires_grad=False)
    wanted = [Int4Weight.of(weight).plain() for weight in plain]
    torch.testing.assert_close(one(x), F.linear(x, wanted[0], one.bias))
    packed = Packed.of(one, two)
    assert isinstance(packed.weight, Int4Weight)
    assert isinstance(two.weight, Int4Weight)
    assert torch.equal(packed.weight.plain(), torch.cat(wanted))
    assert torch.equal(two.weight.plain(), wanted[1])
    assert two.weight.numbers.data_ptr() == packed.weight.numbers[6:].data_ptr(), "a view"
    torch.testing.assert_close(F.linear(x, packed.weight[2:]), F.linear(x, torch.cat(wanted)[2:]))
    torch.testing.assert_close(linear(x, packed.weight, gated=True), gated(F.linear(x, torch.cat(wanted))))
    torch.testing.assert_close(gated_product(x, packed.weight), gated(F.linear(x, torch.cat(wanted))))
    torch.testing.assert_close(
        gated_product(x, packed.weight, "gelu_tanh"), gated(F.linear(x, torch.cat(wanted)), "gelu_tanh")
    )


def test_whatever_else_is_asked_of_it_is_refused() -> None:
    weight = Int4Weight.of(drawn(5, 4, GROUP))
    for ask in (lambda: weight + 1, weight.t, weight.clone, weight.float):
        with pytest.raises(TypeError):
            ask()
    with pytest.raises(ValueError, match="by rows"):
        weight[:, :2]
    with pytest.raises(ValueError, match="by rows"):
        torch.cat([weight, weight], 1)


def few_bits(made: DecoderLayer) -> DecoderLayer:
    """The layer with its linears in four bits."""
    for part in [part for part in made.modules() if isinstance(part, nn.Linear)]:
        part.weight = nn.Parameter(Int4Weight.of(part.weight.detach()), requires_grad=False)
    made.pack()
    return made


def twin(made: DecoderLayer) -> DecoderLayer:
    """The same layer, whose weights are those numbers in float32."""
    same = DecoderLayer(SHAPE, ("", GEN)).requires_grad_(False)
    state = {
        name: value.plain() if isinstance(value, Int4Weight) else value for name, value in made.state_dict().items()
    }
    same.load_state_dict(state)
    same.pack()
    return same


def test_many_rows_of_a_layer_take_the_numbers_in_four_bits() -> None:
    made = few_bits(layer())
    ours, theirs = PlainFlowLinears(made, GEN), PlainFlowLinears(twin(made), GEN)
    x, heads = drawn(6, 9, SHAPE.width), drawn(7, 1, 9, SHAPE.heads * SHAPE.head_dim)
    torch.testing.assert_close(ours.qkv(x), theirs.qkv(x))
    mine, wanted = x.clone(), x.clone()
    for one, stream in ((ours, mine), (theirs, wanted)):
        one.o(heads, stream)
        one.mlp(stream)
    torch.testing.assert_close(mine, wanted)


def test_few_rows_of_a_layer_do_so_too() -> None:
    made = few_bits(layer())
    x, heads = drawn(8, 3, SHAPE.width), drawn(9, 3, SHAPE.heads * SHAPE.head_dim)
    torch.testing.assert_close(made.attended(heads, x), twin(made).attended(heads, x))
