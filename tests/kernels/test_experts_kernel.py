"""The kernels of a mixture of experts against its plain form, at tiny shapes. Types as in `test_linear_kernel`."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.checkpoints.language import ExpertSizes
from walkgraph.layers.invariance import batch_invariant
from walkgraph.layers.kernels.experts import counters, sparse_step, unfit
from walkgraph.layers.kernels.experts_config import MOST_ROWS, TABLE, Blocks, Sizes, blocks_of
from walkgraph.layers.moe.packed_experts import PackedExperts
from walkgraph.layers.moe.routing import route
from walkgraph.layers.moe.sparse_mlp import SparseMLP, masked_experts
from walkgraph.layers.tally import tally

torch.set_num_threads(1)
EPS = 1e-2


def case(
    rows: int, width: int, sizes: ExpertSizes, device: str, *, seed: int = 0
) -> tuple[Tensor, Tensor, PackedExperts, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(*shape, generator=generator)).to(device, torch.float16)

    packed = PackedExperts(
        normal(sizes.experts, 2 * sizes.hidden, width, scale=width**-0.5),
        normal(sizes.experts, width, sizes.hidden, scale=sizes.hidden**-0.5),
    )
    return normal(rows, width), normal(sizes.experts, width, scale=2 * width**-0.5), packed, 1 + normal(width) / 4


def exact(x: Tensor, router: Tensor, packed: PackedExperts, norm: Tensor, sizes: ExpertSizes) -> Tensor:
    normed = F.rms_norm(x.float(), norm.shape, norm.float(), EPS)
    routing = route(normed, router.float(), sizes.chosen, renormed=sizes.renormed)
    plain = packed.plain(torch.float32)
    return masked_experts(normed, routing, PackedExperts(plain.gate_up.float(), plain.down.float()))


def stepped(
    x: Tensor, router: Tensor, packed: PackedExperts, sizes: ExpertSizes, norm: Tensor, residual: Tensor | None = None
) -> Tensor:
    normed = F.rms_norm(x.double(), norm.shape, norm.double(), EPS)
    return sparse_step(x, (normed @ router.double().T).float(), packed, sizes, norm, EPS, residual)


@pytest.mark.parametrize(
    ("rows", "width", "sizes"),
    [
        (1, 32, ExpertSizes(experts=8, chosen=2, hidden=48, renormed=True)),
        # All slots are filled, and one expert has more rows than a tile.
        (21, 48, ExpertSizes(experts=3, chosen=2, hidden=16, renormed=False)),
        # Most experts have no row; their number is no power of two.
        (3, 32, ExpertSizes(experts=21, chosen=3, hidden=32, renormed=True)),
        (64, 16, ExpertSizes(experts=20, chosen=4, hidden=16, renormed=True)),
        (2, 16, ExpertSizes(experts=2, chosen=2, hidden=16, renormed=True)),
    ],
)
@pytest.mark.parametrize("residual", [False, True])
def test_it_equals_the_plain_form(rows: int, width: int, sizes: ExpertSizes, residual: bool, device: str) -> None:
    x, router, packed, norm = case(rows, width, sizes, device)
    wanted = exact(x, router, packed, norm, sizes) + (x.float() if residual else 0.0)
    got = stepped(x, router, packed, sizes, norm, x if residual else None)
    torch.testing.assert_close(got.float(), wanted, atol=8e-3, rtol=8e-3)
    # The next launch finds the counters as this one did.
    assert not counters(x.device).any()


@pytest.mark.parametrize("sharing", [(0, 1), (3, 0)])
def test_each_step_counts_the_experts_that_it_reads(
    sharing: tuple[int, int], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = ExpertSizes(experts=24, chosen=3, hidden=16, renormed=True)
    blocks = Blocks(16, 16, 32, 16, 2, 2, inner_sharing=sharing[0], outer_sharing=sharing[1])
    monkeypatch.setitem(TABLE, (32, 16, False), {MOST_ROWS: blocks})
    counted, wanted = tally(torch.device(device)), list[int]()
    for seed, rows in enumerate((1, 2, 19)):
        x, router, packed, norm = case(rows, 32, sizes, device, seed=seed)
        logits = (F.rms_norm(x.double(), norm.shape, norm.double(), EPS) @ router.double().T).float()
        alike = sparse_step(x, logits, packed, sizes, norm, EPS)
        assert torch.equal(sparse_step(x, logits, packed, sizes, norm, EPS, tally=counted), alike)
        chosen = np.argsort(-logits.cpu().numpy(), axis=1, kind="stable")[:, : sizes.chosen]
        wanted.append(len(np.unique(chosen)))
    assert wanted[0] == 3 < wanted[-1]
    assert counted.tolist() == [3, sum(wanted), max(wanted)]


@pytest.mark.parametrize("rows", [3, 19])
@pytest.mark.parametrize("sharing", [(0, 1), (3, 0)])
def test_however_programs_share_tiles_the_sums_are_the_same(
    rows: int, sharing: tuple[int, int], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three rows choose few of the experts, 19 choose most of them."""
    sizes = ExpertSizes(experts=12, chosen=2, hidden=48, renormed=True)
    x, router, packed, norm = case(rows, 64, sizes, device)
    blocks = Blocks(16, 16, 64, 16, 2, 2, inner_sharing=sharing[0], outer_sharing=sharing[1])
    monkeypatch.setitem(TABLE, (64, 48, False), {MOST_ROWS: blocks})
    got = stepped(x, router, packed, sizes, norm, x)
    torch.testing.assert_close(got.float(), exact(x, router, packed, norm, sizes) + x.float(), atol=8e-3, rtol=8e-3)
    assert not counters(x.device).any()


def test_a_row_has_the_same_numbers_among_any_others(device: str) -> None:
    sizes = ExpertSizes(experts=6, chosen=2, hidden=32, renormed=True)
    x, router, packed, norm = case(19, 32, sizes, device)
    with batch_invariant():
        together = stepped(x, router, packed, sizes, norm, x)
        for rows in (slice(0, 1), slice(4, 7), slice(2, 19)):
            assert torch.equal(stepped(x[rows], router, packed, sizes, norm, x[rows]), together[rows])
    same = Sizes(rows=1, width=2048, hidden=768, experts=128, chosen=8, alike=True)
    assert same.blocks == same._replace(rows=MOST_ROWS).blocks


def test_a_row_of_nothing_leaves_the_others_alone(device: str) -> None:
    sizes = ExpertSizes(experts=5, chosen=3, hidden=16, renormed=True)
    x, router, packed, norm = case(4, 32, sizes, device)
    wanted = stepped(x, router, packed, sizes, norm)
    x[2] = float("nan")
    got = stepped(x, router, packed, sizes, norm)
    assert got[2].isnan().all()
    assert torch.equal(got[[0, 1, 3]], wanted[[0, 1, 3]])


@pytest.mark.parametrize("rows", [1, 19])
def test_weights_in_eight_bits_are_scaled(rows: int, device: str) -> None:
    sizes = ExpertSizes(experts=6, chosen=2, hidden=32, renormed=True)
    x, router, packed, norm = case(rows, 48, sizes, device)
    mlp = SparseMLP(48, sizes)
    mlp.packed = packed
    mlp.quantise()
    kept = mlp.packed
    assert kept.dtype == torch.float8_e4m3fn
    got = stepped(x, router, kept, sizes, norm, x)
    torch.testing.assert_close(got.float(), exact(x, router, kept, norm, sizes) + x.float(), atol=8e-3, rtol=8e-3)
    rounding = exact(x, router, kept, norm, sizes) - exact(x, router, packed, norm, sizes)
    assert 0 < rounding.norm() / exact(x, router, packed, norm, sizes).norm() < 0.1


def test_equal_logits_choose_the_first_experts(device: str) -> None:
    sizes = ExpertSizes(experts=7, chosen=3, hidden=16, renormed=True)
    x, router, packed, norm = case(2, 32, sizes, device)
    router = torch.zeros_like(router)
    few = PackedExperts(packed.gate_up[:3].contiguous(), packed.down[:3].contiguous())
    alone = ExpertSizes(experts=3, chosen=3, hidden=16, renormed=True)
    wanted = stepped(x, router[:3], few, alone, norm)
    torch.testing.assert_close(stepped(x, router, packed, sizes, norm), wanted)


def test_tiles_divide_the_widths_and_their_depth_depends_on_nothing_else() -> None:
    shapes = ((2048, 768), (1024, 384), (48, 80), (4096, 1536))
    for (width, hidden), eight in product(shapes, (False, True)):
        made = {rows: blocks_of(rows, width, hidden, eight=eight) for rows in (1, 2, 3, 16, 64)}
        assert {(one.depth, one.outer_depth) for one in made.values()} == {(made[1].depth, made[1].outer_depth)}
        for one in (*made.values(), *TABLE.get((width, hidden, eight), {}).values()):
            assert (one.depth, one.outer_depth) == (made[1].depth, made[1].outer_depth)
            assert not hidden % one.inner
            assert not width % one.outer
            assert not width % one.depth
            assert not hidden % one.outer_depth


def test_what_it_can_not_compute_is_said() -> None:
    sizes = ExpertSizes(experts=4, chosen=2, hidden=16, renormed=True)
    x, _, packed, _ = case(2, 32, sizes, "cpu")
    assert unfit(x, packed) is None
    assert "two-byte" in str(unfit(x.float(), packed))
    assert "at most 64 rows" in str(unfit(x.repeat(40, 1), packed))
    assert "multiples" in str(unfit(x, PackedExperts(packed.gate_up[:, :10], packed.down[..., :5])))
    with pytest.raises(ValueError, match="two-byte"):
        sparse_step(x.float(), x, packed, sizes, x[0], EPS)
