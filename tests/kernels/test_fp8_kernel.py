"""Rows of eight-bit floats from the kernels, against those of torch."""

import pytest
import torch
from torch.nn import functional as F

from walkgraph.layers.kernels.fp8 import gated_fp8, halves, norm_fp8, rows_fp8
from walkgraph.layers.linear.fp8 import Scaled
from walkgraph.layers.linear.fp8_format import LARGEST


def normal(device, *shape, dtype=torch.bfloat16, scale=1.0):
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(*shape, generator=generator) * scale).to(device, dtype)


def agree(got, wanted):
    """Equal scales, and equal numbers, but for some that lie between two. The interpreter halves what it rounds up to
    a power of two: there those are left out."""
    got, wanted = Scaled(*got), Scaled.of(wanted)
    assert (got.numbers.dtype, got.scale.dtype) == (torch.float8_e4m3fn, torch.float32)
    torch.testing.assert_close(got.scale, wanted.scale, rtol=1e-5, atol=0)
    mine, theirs = got.numbers.float(), wanted.numbers.float()
    assert (mine.abs().amax(1) == LARGEST).all()
    told = torch.ones_like(mine, dtype=torch.bool) if mine.is_cuda else theirs.frexp().mantissa.abs() != 0.5
    assert told.float().mean() > 0.7
    assert (mine != theirs)[told].float().mean() < 0.02
    if mine.is_cuda:
        torch.testing.assert_close(mine, theirs, rtol=0.13, atol=2**-9)


@pytest.mark.parametrize("width", [48, 64])
def test_normed_rows(device, width):
    x, weight = normal(device, 5, width, scale=30), 1 + normal(device, width, scale=0.2)
    agree(norm_fp8(x, weight, 1e-2), F.rms_norm(x.float(), (width,), weight.float(), 1e-2))


def test_blocks_of_rows_may_lie_apart(device):
    wide = normal(device, 3, 6, 80)
    wide[1] *= 1e-3
    for x in (wide, wide[:, 1:5], wide[:, ::2, 16:64]):
        agree(rows_fp8(x), x.flatten(0, 1))


@pytest.mark.parametrize("width", [48, 64, 36])
def test_gated_rows(device, width):
    gate_up = normal(device, 4, 2 * width, scale=2)
    gate, up = gate_up.float().chunk(2, 1)
    agree(gated_fp8(gate_up), F.silu(gate) * up)


@pytest.mark.parametrize(("width", "wanted"), [(18944, (16384, 4096)), (48, (32, 16)), (64, (64, 1)), (1, (1, 1))])
def test_a_width_is_held_by_two_powers_of_two(width, wanted):
    assert halves(width) == wanted


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_row_of_zeros_stays_one_and_what_is_no_number_is_told(device):
    x = torch.zeros(1, 3, 32, dtype=torch.bfloat16, device=device)
    x[0, 1, 3], x[0, 2, 4] = torch.nan, torch.inf
    given = Scaled(*rows_fp8(x))
    assert (given.plain()[0] == 0).all()
    assert given.scale[2].isinf()
    if given.numbers.is_cuda:  # the interpreter makes NaN a number
        assert given.plain().isfinite().all(1).tolist() == [True, False, False]


def test_rows_that_are_not_contiguous_are_refused(device):
    x = normal(device, 4, 32)[:, ::2]
    for call in (lambda: norm_fp8(x, x[0], 1e-6), lambda: gated_fp8(x), lambda: rows_fp8(x[None])):
        with pytest.raises(ValueError, match="contiguous"):
            call()
