"""Launches whose tiles fit their rows, on a GPU, against their naive twins in float64."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.abi.step import PagedRows
from walkgraph.layers.attention.dense_attention import BlockAttend
from walkgraph.layers.attention.paged_blocks import Places, plain_place
from walkgraph.layers.encoder import EncoderRows, EncoderWeights
from walkgraph.layers.fitted_blocks import FittedBlocks, FittedMap, Projection, fits
from walkgraph.layers.kernels.fitted_product import Cut, Norm, added, choose, mapped, placed
from walkgraph.layers.norm.layer_norm import row_sums
from walkgraph.memory.cuda_source import is_available

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs Hopper"
    ),
    pytest.mark.skipif(not is_available(), reason="needs cuda-bindings"),
]

EPS = 1e-6
CUTS = [None, Cut(8), Cut(88, wide=2, split=2), Cut(136, split=4), Cut(256, stages=4)]
"""None: the chosen one."""


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda")


def near(found: Tensor, wanted: Tensor, most: float = 4e-3) -> bool:
    return float((found.double() - wanted).norm() / wanted.norm()) < most


class Given:
    """x with a mean that differs from row to row, and a weight that includes a norm's scale."""

    def __init__(self, rows: int, columns: int, depth: int) -> None:
        torch.manual_seed(rows + columns)
        self.x = (2 * drawn(rows, depth) + drawn(rows, 1)).bfloat16()
        self.weight = (drawn(columns, depth) / depth**0.5).bfloat16()
        self.bias = drawn(columns)
        self.norm = Norm(row_sums(self.x), self.weight.float().sum(1), EPS)
        normed = F.layer_norm(self.x.double(), (depth,), eps=EPS)
        self.wanted = normed @ self.weight.double().T + self.bias
        self.product = self.x.double() @ self.weight.double().T + self.bias

    def cut(self, cut: Cut | None) -> Cut:
        found = cut or choose(len(self.x), *self.weight.shape)
        assert found is not None
        return found


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize(
    ("rows", "columns", "depth"), [(258, 1024, 512), (256, 384, 1408), (83, 128, 256), (1, 128, 256)]
)
@pytest.mark.parametrize("gelu", [True, False])
def test_it_norms_and_maps_as_its_twin_does(rows: int, columns: int, depth: int, gelu: bool, cut: Cut | None) -> None:
    if cut is not None and (columns % cut.columns or depth % (64 * cut.split)):
        pytest.skip("the cut doesn't divide these widths")
    given = Given(rows, columns, depth)
    found = mapped(given.x, given.weight, given.bias, given.norm, given.cut(cut), gelu=gelu)
    assert near(found, F.gelu(given.wanted, approximate="tanh") if gelu else given.wanted)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize(("rows", "columns", "depth"), [(258, 1024, 4096), (256, 1408, 512), (83, 128, 256)])
def test_it_adds_and_leaves_the_sums_of_the_result(rows: int, columns: int, depth: int, cut: Cut | None) -> None:
    if cut is not None and columns % cut.columns:
        pytest.skip("the cut doesn't divide these widths")
    given = Given(rows, columns, depth)
    residual = drawn(rows, columns).bfloat16()
    found, sums = added(given.x, given.weight, given.bias, residual, given.cut(cut))
    assert near(found, residual.double() + given.product)
    # Of the result as it is stored, rounded.
    assert torch.allclose(sums, row_sums(found), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize(("sequences", "tokens", "heads", "groups"), [(1, 258, 4, 4), (3, 83, 6, 2), (2, 9, 4, 4)])
def test_it_turns_and_places_as_its_twin_does(
    sequences: int, tokens: int, heads: int, groups: int, page: int, cut: Cut | None
) -> None:
    width = 64
    given = Given(sequences * tokens, (heads + 2 * groups) * width, 512)
    if cut is not None and len(given.weight) % cut.columns:
        pytest.skip("the cut doesn't divide these widths")
    angles = drawn(sequences, tokens, width)
    lengths = torch.tensor([7, 0, 30, 5], device="cuda", dtype=torch.int32)
    pages = torch.randperm(4 * 320 // page, device="cuda").int().view(4, -1)
    which = torch.tensor([2, 0, 3], device="cuda", dtype=torch.int32)[:sequences]
    rows = PagedRows(which, pages, lengths, lengths)
    k, v, wanted_k, wanted_v = torch.zeros(4, 4 * 320, groups, width, device="cuda", dtype=torch.bfloat16).unbind()
    cos, sin, qkv = angles.cos(), angles.sin(), given.wanted.bfloat16()
    wanted_q = plain_place(qkv, cos, sin, wanted_k, wanted_v, rows, tokens, page=page)
    places = Places(cos, sin, k, v, rows, tokens, page)
    q = placed(given.x, given.weight, given.bias, given.norm, places, given.cut(cut))
    for found, wanted in ((q, wanted_q), (k, wanted_k), (v, wanted_v)):
        assert near(found, wanted.double(), 6e-3)
        assert torch.equal(found == 0, wanted == 0)


def test_a_plain_map_is_one_too() -> None:
    given = Given(256, 1024, 1408)
    linear = nn.Linear(1408, 1024, device="cuda", dtype=torch.bfloat16)
    linear.weight.data, linear.bias.data = given.weight, given.bias.bfloat16()
    with torch.inference_mode():
        fitted = FittedMap.of(linear)
        assert fitted is not None
        assert fits(given.x)
        assert near(fitted(given.x), given.product - given.bias + linear.bias.double())


def test_equal_rows_give_equal_bits_wherever_they_stand() -> None:
    given = Given(258, 1024, 1024)
    cut = given.cut(None)
    alone = mapped(given.x, given.weight, given.bias, given.norm, cut, gelu=True)
    order = torch.randperm(258, device="cuda")
    moved = given.norm._replace(sums=given.norm.sums[order].contiguous())
    again = mapped(given.x[order].contiguous(), given.weight, given.bias, moved, cut, gelu=True)
    assert torch.equal(again, alone[order])


def test_layers_with_folded_norms_compute_what_they_did() -> None:
    torch.manual_seed(5)
    norms = [nn.LayerNorm(128), nn.LayerNorm(128)]
    maps = [nn.Linear(128, 384), nn.Linear(128, 128), nn.Linear(128, 512), nn.Linear(512, 128)]
    for one in (*norms, *maps):
        for parameter in one.parameters():
            parameter.data = (parameter.data + 0.1 * torch.randn_like(parameter)).cuda().bfloat16()
    qkv, out, fc1, fc2 = maps
    layer = EncoderWeights(norms[0], (qkv.weight, qkv.bias), 2, out, norms[1], fc1, fc2, "gelu_tanh")
    x = drawn(70, 128).bfloat16()
    blocks = BlockAttend([30, 40])
    with torch.inference_mode():
        exact = layer._replace(
            **{name: copied(getattr(layer, name)) for name in ("norm", "out", "mlp_norm", "fc1", "fc2")}
        )
        exact = exact._replace(qkv=(qkv.weight.float(), qkv.bias.float()))
        wanted = EncoderRows(x.float()).layer(0, exact, blocks, None).whole()
        fitted = FittedBlocks.of([layer])
        assert fitted is not None

        def attended(index: int, projection: Projection) -> Tensor:
            return blocks(index, *(part.unflatten(1, (2, -1)) for part in projection.rows().chunk(3, 1)))

        assert near(fitted(x, attended), wanted.double(), 8e-3)
        # The plain form of the same weights.
        assert near(EncoderRows(x).layer(0, layer, blocks, None).whole(), wanted.double(), 1e-2)


def copied(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module).float()
