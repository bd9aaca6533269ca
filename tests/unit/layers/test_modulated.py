"""Modulated norms, against their definition in float64."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from walkgraph.layers.attention.block_attention import rotary_from_first
from walkgraph.layers.attention.heads import HeadTargets
from walkgraph.layers.norm.modulated import Modulation, add, begin, gated, laid, lifted, modulated, place, product
from walkgraph.layers.rope import NeoxRope, rotate

BLOCKS, TOKENS, WIDTH, EPS = 2, 3, 8, 1e-6


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def defined(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """norm(x) * (1 + scale) + shift, row by row."""
    rows = []
    for index, row in enumerate(x.double()):
        normed = row / (row.square().mean() + EPS).sqrt()
        rows.append(normed * (1 + scale[index // TOKENS].double()) + shift[index // TOKENS].double())
    return torch.stack(rows)


def case() -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    given = drawn(1, BLOCKS, WIDTH), drawn(2, BLOCKS, WIDTH), drawn(3, BLOCKS, WIDTH)
    return drawn(4, BLOCKS * TOKENS, WIDTH), given


def near(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found.double(), wanted.double(), rtol=1e-5, atol=1e-5)


def test_a_norm_is_scaled_and_shifted_by_its_block() -> None:
    x, (scale, shift, _) = case()
    near(modulated(x, scale, shift, EPS), defined(x, scale, shift))


def test_a_shift_goes_through_the_product_beforehand() -> None:
    x, given = case()
    weight = drawn(5, 5, WIDTH)
    one = Modulation.of(*given, weight)
    near(product(begin(x, one.scale, EPS), weight, one.bias), defined(x, *given[:2]) @ weight.double().T)


def test_gate_rows_come_first_and_go_through_gelu() -> None:
    x, given = case()
    weight = drawn(6, 10, WIDTH)
    one = Modulation.of(*given, weight)
    gate, up = (defined(x, *given[:2]) @ weight.double().T).chunk(2, -1)
    near(gated(begin(x, one.scale, EPS), weight, one.bias), F.gelu(gate, approximate="tanh") * up)


def test_what_is_added_is_gated_by_its_block() -> None:
    x, given = case()
    inner, weight, scale = drawn(7, BLOCKS * TOKENS, 5), drawn(8, WIDTH, 5), drawn(9, BLOCKS, WIDTH)
    rows = add(begin(x, given[0], EPS), inner, weight, given[2], scale)
    added = inner.double() @ weight.double().T
    near(rows.x, x + given[2].repeat_interleave(TOKENS, 0) * added)
    near(
        product(rows, weight.T.contiguous(), drawn(10, BLOCKS, 5) * 0),
        defined(rows.x, scale, scale * 0) @ weight.double(),
    )


def test_heads_are_turned_token_by_token() -> None:
    x, given = case()
    heads, groups, width = 3, 1, 4
    weight = drawn(11, (heads + 2 * groups) * width, WIDTH)
    one, rope = Modulation.of(*given, weight), NeoxRope(width, 1e4)
    positions = torch.tensor([5, 90])[:, None] + torch.arange(TOKENS)
    slots = torch.tensor([9, 2, 4, 0, 7, 1])
    k, v = drawn(12, 10, groups, width), drawn(13, 10, groups, width)
    to = HeadTargets(drawn(14, BLOCKS * TOKENS, heads, width), k, v, slots)
    rows = begin(x, one.scale, EPS)
    place(rows, weight, one.bias, rotary_from_first(positions[:, 0], TOKENS, rope.frequencies(x.device)), to)
    q, own, value = product(rows, weight, one.bias).unflatten(1, (-1, width)).split([heads, groups, groups], 1)
    rotation = rope(positions.flatten())
    near(to.q, rotate(q, rotation))
    near(k[slots], rotate(own, rotation))
    near(v[slots], value)


def test_a_table_gives_back_what_was_laid_into_it() -> None:
    _, given = case()
    made = [Modulation.of(*given, drawn(20 + n, n, WIDTH)) for n in (5, 12)]
    table = laid(made)
    assert table.shape == (BLOCKS, 4 * WIDTH + 17)
    for found, wanted in zip(lifted(table, WIDTH, (5, 12)), made, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
        assert found.bias.untyped_storage().data_ptr() == table.untyped_storage().data_ptr()
