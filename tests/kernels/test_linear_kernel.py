"""The streaming linears against float32, at tiny shapes.

The interpreter can't multiply matrices of bfloat16, so what goes to the tensor cores is float16 here.
"""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from walkgraph.layers.kernels.linear import stream_linear, workspace
from walkgraph.layers.kernels.linear_config import Config, choose, fits
from walkgraph.layers.linear.step_linear import _streamed

CONFIGS = {
    "vector": Config(n=4, k=32, vector=True, stages=1),
    "vector split": Config(n=8, k=16, split=2, vector=True, stages=1),
    "matrix": Config(n=16, k=32),
    "matrix swapped": Config(n=16, k=16, swap=True),
    "matrix split": Config(n=32, k=16, split=4),
    "matrix swapped split": Config(n=16, k=32, split=2, swap=True),
    "tiles": Config(n=16, k=32, stages=1, tiles=True),
    "tiles of few programs": Config(n=16, k=16, stages=1, tiles=True, programs=3),
    "tiles of many programs": Config(n=16, k=16, stages=1, tiles=True, programs=7),
}
FUSED = [
    {"norm": True},
    {"residual": True},
    {"norm": True, "gated": True},
    {"norm": True, "bias": True, "residual": True},
    {"gated": True, "bias": True, "residual": True},
]


def case(device, rows, n, k, *, dtype=torch.float16, norm=False, gated=False, bias=False, residual=False):
    generator = torch.Generator().manual_seed(rows)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).to(device, dtype)

    wide = n * (2 if gated else 1)
    return (
        normal(rows, k),
        normal(wide, k),
        {
            "norm": 1 + normal(k) / 4 if norm else None,
            "residual": normal(rows, n) * 4 if residual else None,
            "bias": normal(wide) if bias else None,
            "gated": gated,
            "eps": 1e-2,
        },
    )


def exact(x, weight, *, norm, residual, bias, gated, eps):
    x = x.float()
    if norm is not None:
        x = F.rms_norm(x, (x.shape[1],), norm.float(), eps)
    y = x @ weight.float().T
    if bias is not None:
        y += bias.float()
    if gated:
        gate, up = y.chunk(2, dim=1)
        y = F.silu(gate) * up
    return y if residual is None else y + residual.float()


def error(config, x, weight, options):
    config = replace(config, pdl=int(x.is_cuda))
    result, wanted = stream_linear(config, x, weight, **options), exact(x, weight, **options)
    assert result.dtype == x.dtype
    return ((result.float() - wanted).norm() / wanted.norm()).item()


@pytest.mark.parametrize("fused", FUSED, ids="+".join)
@pytest.mark.parametrize(("name", "rows"), [*((name, 3) for name in CONFIGS), ("vector", 1), ("tiles", 16)])
def test_a_linear_is_its_float32_self(device, name, rows, fused):
    config = CONFIGS[name]
    if config.programs and fused.get("gated"):
        pytest.skip("gate and up rows share a program")
    dtype = torch.bfloat16 if config.vector else torch.float16
    x, weight, options = case(device, rows, 21, 64, dtype=dtype, **fused)  # 21: the last block is ragged
    assert error(config, x, weight, options) < 5e-3


@pytest.mark.parametrize("name", ["vector split", "matrix split", "tiles"])
def test_sums_can_be_kept_as_they_are(device, name):
    """Rounded to the type of the rows, they are the plain result."""
    config = replace(CONFIGS[name], pdl=int(device == "cuda"))
    x, weight, options = case(device, 3, 21, 64, norm=True, bias=True)
    sums = stream_linear(config, x, weight, **options, exact=True)
    assert sums.dtype == torch.float32
    assert torch.equal(sums.to(x.dtype), stream_linear(config, x, weight, **options))


@pytest.mark.parametrize("rows", [17, 40])
def test_more_rows_take_larger_tiles(device, rows):
    x, weight, options = case(device, rows, 20, 32, norm=True)
    assert error(Config(n=16, k=16), x, weight, options) < 5e-3


def test_shares_of_tiles_that_end_with_a_block(device):
    x, weight, options = case(device, 5, 64, 64, norm=True)
    for programs in (4, 8):
        assert error(Config(n=16, k=16, stages=1, tiles=True, programs=programs), x, weight, options) < 5e-3


def test_more_rows_make_higher_tiles(device):
    x, weight, options = case(device, 40, 20, 32, norm=True, residual=True)
    for n, programs in ((16, 0), (64, 0), (16, 3)):  # 64: the weights are the left operand
        assert error(Config(n=n, k=16, stages=1, tiles=True, programs=programs), x, weight, options) < 5e-3


@pytest.mark.parametrize("name", ["matrix swapped split", "tiles"])
def test_tiles_of_one_height_give_a_row_the_same_among_any_others(device, name):
    x, weight, options = case(device, 35, 24, 64, norm=True)
    config = replace(CONFIGS[name], height=64, pdl=int(x.is_cuda))
    together = stream_linear(config, x, weight, **options)
    for first, last in ((0, 1), (34, 35), (3, 20)):
        assert torch.equal(stream_linear(config, x[first:last], weight, **options), together[first:last])


def test_the_norm_may_be_a_launch_of_its_own(device):
    x, weight, options = case(device, 5, 16, 48, norm=True, residual=True)
    assert error(Config(n=16, k=16, before=True), x, weight, options) < 5e-3


def test_weights_may_be_rows_of_a_wider_tensor(device):
    x, weight, options = case(device, 2, 16, 32)
    wide = torch.cat([weight, torch.full_like(weight, 1e4)], 1)
    assert error(CONFIGS["matrix"], x, wide[:, :32], options) < 5e-3


@pytest.mark.parametrize("name", ["matrix split", "tiles of many programs"])
def test_a_split_leaves_its_counters_at_zero_and_its_order_fixed(device, name):
    x, weight, options = case(device, 3, 64, 64, norm=True)
    config = replace(CONFIGS[name], pdl=int(x.is_cuda))
    first = stream_linear(config, x, weight, **options)
    assert not workspace(x.device)[1].any()
    assert torch.equal(first, stream_linear(config, x, weight, **options))
    assert error(replace(config, split=1, programs=0), x, weight, options) < 5e-3


@pytest.mark.parametrize("rows", [1, 2, 7, 16, 32, 64])
@pytest.mark.parametrize(
    ("n", "k", "gated"),
    [
        (5120, 3072, False),
        (3072, 3072, False),
        (8192, 3072, True),
        (3072, 8192, False),
        (156940, 3072, False),
        (4608, 3584, False),
        (3584, 3584, False),
        (18944, 3584, True),
        (3584, 18944, False),
        (152064, 3584, False),
        (96, 80, True),
    ],
)
def test_a_chosen_config_fits(rows, n, k, gated):
    config = choose(rows, n, k, gated)
    assert config is not None
    assert fits(config, rows, n, k, gated)


@pytest.mark.parametrize(
    ("config", "gated"),
    [
        (Config(64, 64, tiles=True, programs=132), True),
        (Config(16, 64, tiles=True, programs=132), False),
        (Config(64, 64, tiles=True, programs=9999), False),
        (Config(64, 64, split=2, tiles=True), False),
    ],
    ids=["gated", "more than two blocks", "more programs than tiles", "split"],
)
def test_tiles_have_limits(config, gated):
    assert not fits(config, 16, 3072, 3072, gated)
    assert fits(Config(64, 64, tiles=True), 16, 3072, 3072, gated)


def test_a_width_without_tiles_has_no_config():
    assert choose(1, 64, 40, False) is None


@pytest.mark.parametrize("capability", [(8, 9), (12, 0)])
def test_other_processors_are_left_to_torch(capability, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    x, weight = torch.zeros(2, 64, dtype=torch.bfloat16), torch.zeros(32, 64, dtype=torch.bfloat16)
    assert choose(2, 32, 64, False) is not None
    assert _streamed(x, weight, None, 1e-6, None, False, None, False) is None
