"""The products of modulated rows, against their plain forms in float32, at tiny shapes.

The interpreter can't multiply matrices of bfloat16, so all is float16 here.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from walkgraph.layers.attention.heads import HeadTargets, RotaryTable
from walkgraph.layers.kernels import modulated as kernels
from walkgraph.layers.kernels.linear import workspace
from walkgraph.layers.kernels.modulated_config import TABLE, Cut, choose, fits
from walkgraph.layers.kernels.modulated_rows import enter, modulate, weigh
from walkgraph.layers.norm import modulated
from walkgraph.layers.norm.modulated import Rows
from walkgraph.layers.rope import NeoxRope

torch.set_num_threads(1)
EPS, WIDTH = 1e-2, 64
CUTS = {
    "whole": Cut(rows=16, columns=16, depth=32, stages=1),
    "split": Cut(rows=16, columns=32, depth=16, split=2, stages=1),
    "early": Cut(rows=16, columns=32, depth=32, split=2, stages=1, early=True),
    "library": Cut(rows=16, columns=16, library=True),
}
BLOCKS = [(1, 5), (3, 7), (2, 16)]  # a tile with padding, tiles over the ends of blocks, whole tiles


def drawn(device: str, seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half().to(device)


def begun(device: str, blocks: int, tokens: int) -> tuple[Rows, Rows]:
    """Rows as a kernel leaves them, and as the plain forms have them."""
    x, scale = drawn(device, 1, blocks * tokens, WIDTH), drawn(device, 2, blocks, 2 * WIDTH)[:, WIDTH:] / 2
    return Rows(x, scale, EPS, *weigh(x, scale)), Rows(x.float(), scale.float(), EPS)


def cut(name: str, device: str) -> Cut:
    return replace(CUTS[name], overlap=int(device == "cuda"), ahead=16)


def near(found: torch.Tensor, wanted: torch.Tensor) -> None:
    assert found.dtype == torch.float16
    assert ((found.float() - wanted.float()).norm() / wanted.float().norm()).item() < 2e-3


@pytest.mark.parametrize("size", BLOCKS, ids=str)
@pytest.mark.parametrize("name", CUTS)
def test_gated_rows_are_as_plainly(name: str, size: tuple[int, int], device: str) -> None:
    rows, plain = begun(device, *size)
    weight, bias = drawn(device, 3, 64, WIDTH) / 8, drawn(device, 4, size[0], 80)[:, 16:]
    found = kernels.gated(cut(name, device), rows.weighted, rows.squares, weight, bias, EPS)
    near(found, modulated.gated(plain, weight.float(), bias.float()))
    assert torch.equal(found, kernels.gated(cut(name, device), rows.weighted, rows.squares, weight, bias, EPS))
    assert not workspace(weight.device)[1].any()


@pytest.mark.parametrize("size", BLOCKS, ids=str)
@pytest.mark.parametrize("name", CUTS)
def test_added_rows_are_as_plainly_and_ready_for_the_next_product(
    name: str, size: tuple[int, int], device: str
) -> None:
    rows, plain = begun(device, *size)
    depth = 64 if name == "early" else 96
    inner, weight = drawn(device, 5, rows.x.shape[0], depth), drawn(device, 6, WIDTH, depth) / 8
    table = drawn(device, 7, size[0], 2 * WIDTH)
    gate, scale = table.split(WIDTH, 1)
    x, weighted, squares = kernels.added(cut(name, device), rows.x, inner, weight, gate, scale)
    wanted = modulated.add(plain, inner.float(), weight.float(), gate.float(), scale.float())
    near(x, wanted.x)
    near(weighted, x.float() * (1 + scale.float().repeat_interleave(size[1], 0)))
    torch.testing.assert_close(squares.sum(0), x.float().square().sum(1))
    up, bias = drawn(device, 8, 64, WIDTH) / 8, drawn(device, 9, size[0], 64)
    found = kernels.gated(cut(name, device), weighted, squares, up, bias, EPS)
    near(found, modulated.gated(wanted, up.float(), bias.float()))


@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize(
    ("name", "size"), [("whole", (3, 7)), ("split", (1, 5)), ("early", (2, 16)), ("library", (3, 7))], ids=str
)
def test_placed_heads_are_as_plainly(name: str, size: tuple[int, int], each: bool, device: str) -> None:
    (blocks, tokens), heads, groups, width = size, 3, 2, 32
    rows, plain = begun(device, *size)
    weight = drawn(device, 10, (heads + 2 * groups) * width, WIDTH) / 8
    bias = drawn(device, 11, blocks, weight.shape[0])
    positions = torch.arange(blocks, device=device) * 40
    positions = positions[:, None] + torch.arange(tokens, device=device) if each else positions
    turns = RotaryTable.at(positions, NeoxRope(width, 1e4).frequencies(torch.device(device)))
    slots = torch.randperm(90, generator=torch.Generator().manual_seed(12))[: blocks * tokens].to(device)

    def places(dtype: torch.dtype) -> HeadTargets:
        room = (drawn(device, 13 + i, 90, groups, width).to(dtype) for i in range(2))
        return HeadTargets(torch.zeros(blocks * tokens, heads, width, dtype=dtype, device=device), *room, slots)

    found, wanted = places(torch.float16), places(torch.float32)
    kernels.placed(cut(name, device), rows.weighted, rows.squares, weight, bias, EPS, turns, found)
    modulated.place(plain, weight.float(), bias.float(), turns, wanted)
    for part in ("q", "k", "v"):
        near(getattr(found, part), getattr(wanted, part))
    others = torch.ones(90, dtype=torch.bool, device=device)
    others[slots] = False
    assert torch.equal(found.k[others], places(torch.float16).k[others])


@pytest.mark.parametrize(("width", "numbers"), [(WIDTH, 7), (300, 32)])
def test_rows_enter_as_plainly(width: int, numbers: int, device: str) -> None:
    given, weight, bias = (
        drawn(device, 20 + len(size), *size).float() for size in ((6, numbers), (width, numbers), (width,))
    )
    scale = drawn(device, 23, 2, 2 * width)[:, width:]
    x, weighted, squares = enter(given, weight, bias, scale, torch.float16)
    wanted = modulated.enter(given.cpu(), weight.cpu(), bias.cpu(), scale.cpu(), EPS, torch.float32)
    near(x, wanted.x.to(device))
    near(weighted, x.float() * (1 + scale.float().repeat_interleave(3, 0)))
    torch.testing.assert_close(squares.sum(0), x.float().square().sum(1))


def test_a_whole_norm_is_as_plainly(device: str) -> None:
    rows, plain = begun(device, 3, 4)
    shift = drawn(device, 15, 3, WIDTH)
    found = modulate(rows.x, rows.scale, shift, EPS)
    near(found, modulated.modulated(plain.x, plain.scale, shift.float(), EPS))


def test_a_room_that_lies_otherwise_is_refused(device: str) -> None:
    rows, _ = begun(device, 1, 4)
    weight, bias = drawn(device, 16, 128, WIDTH), drawn(device, 17, 1, 128)
    turns, slots = RotaryTable(torch.ones(1, 16), torch.ones(1, 16)), torch.arange(4)
    room = torch.zeros(9, 32, 1).transpose(1, 2).expand(9, 1, 32)
    to = HeadTargets(torch.zeros(4, 2, 32)[:, ::2], room, room[::2], slots)
    with pytest.raises(ValueError, match="equal strides"):
        kernels.placed(CUTS["whole"], rows.weighted, rows.squares, weight, bias, EPS, turns, to)


CASES = [(2560, 1024, 128), (1024, 2048, 0), (8192, 1024, 4096), (1024, 4096, 0), (96, 64, 16), (128, 512, 0)]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("rows", [1, 50, 100, 200, 400, 4096])
def test_a_chosen_cut_fits(rows: int, case: tuple[int, int, int]) -> None:
    chosen = choose(rows, case)
    assert chosen is not None
    assert fits(chosen, rows, case)


def test_cuts_have_limits() -> None:
    assert choose(50, (100, 64, 0)) is None
    assert choose(50, (128, 20, 0)) is None
    assert choose(50, (128, 64, 24)) is None
    assert not fits(Cut(split=64, depth=16), 1 << 20, (1024, 1024, 0))
    assert all(fits(cut, rows, case) for case, cuts in TABLE.items() for rows, cut in cuts.items())
    for case in CASES[:4]:
        alike = {choose(rows, case, alike=True) for rows in (1, 50, 400, 4096)}
        assert len(alike) == 1
        # Torch's product sums rows in other orders in other batches.
        assert not any(cut is None or cut.library for cut in alike)
