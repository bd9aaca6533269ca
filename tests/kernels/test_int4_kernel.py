"""Products with weights in four bits, against the same numbers in float32. In float16: the interpreter can't multiply
matrices of bfloat16."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.kernels.gpu import KINDS
from walkgraph.layers.kernels.int4 import multiply
from walkgraph.layers.kernels.int4_config import GROUP, Cut, choose
from walkgraph.layers.kernels.linear import workspace
from walkgraph.layers.kernels.linear_config import COUNTERS, PARTIAL_BYTES
from walkgraph.layers.linear.int4 import Int4Weight

torch.set_num_threads(1)
CUTS = {
    "alone": Cut(m=16, n=16, stages=2),
    "split": Cut(m=16, n=16, split=2, stages=2),
    "many rows": Cut(m=16, n=32, warps=8, stages=2),
}


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half()


def exact(x: Tensor, weight: Tensor, *, norm: Any, residual: Any, bias: Any, gated: bool, eps: float) -> Tensor:
    x = x.float()
    if norm is not None:
        x = F.rms_norm(x, (x.shape[1],), norm.float(), eps)
    y = x @ weight.T
    y = y if bias is None else y + bias.float()
    if gated:
        gate, up = y.chunk(2, 1)
        y = F.silu(gate) * up
    return y if residual is None else y + residual.float()


def given(device: str, rows: int, n: int, k: int, *used: str) -> tuple[Tensor, Int4Weight, dict[str, Any]]:
    """Rows, a weight and options, of which only the used ones are something."""
    gated = "gated" in used
    every = {"norm": 1 + drawn(1, k) / 4, "bias": drawn(2, n * (1 + gated)), "residual": drawn(3, rows, n)}
    options = {name: one.to(device) if name in used else None for name, one in every.items()}
    weight = Int4Weight.of(drawn(4, n * (1 + gated), k) / k**0.5)
    weight = Int4Weight(weight.numbers.to(device), weight.scales.to(device), k)
    return drawn(5, rows, k).to(device), weight, {**options, "gated": gated, "eps": 1e-5}


@pytest.mark.parametrize("used", [(), ("norm", "gated"), ("bias", "norm"), ("residual",)], ids=str)
@pytest.mark.parametrize(("name", "rows"), [("alone", 3), ("split", 16), ("many rows", 37)])
def test_a_product_is_that_of_the_numbers_in_float32(name: str, rows: int, used: tuple[str, ...], device: str) -> None:
    x, weight, options = given(device, rows, 21, 2 * GROUP, *used)  # 21: the last block is ragged
    whole = Int4Weight(weight.numbers, weight.scales.float(), weight.shape[1]).plain()
    wanted = exact(x, whole, **options)
    found = multiply(x, weight.numbers, weight.scales, **options, cut=CUTS[name])
    assert found.dtype == torch.float16
    assert ((found.float() - wanted).norm() / wanted.norm()).item() < 2e-3
    assert torch.equal(found, multiply(x, weight.numbers, weight.scales, **options, cut=CUTS[name]))
    assert not workspace(x.device)[1].any(), "counters are back at zero"


def test_sums_can_be_kept_as_they_are(device: str) -> None:
    x, weight, options = given(device, 2, 16, GROUP)
    found = multiply(x, weight.numbers, weight.scales, **options, exact=True, cut=CUTS["alone"])
    assert found.dtype == torch.float32


def test_weights_may_be_rows_of_a_larger_one(device: str) -> None:
    x, weight, options = given(device, 4, 32, 2 * GROUP)
    whole = multiply(x, weight.numbers, weight.scales, **options, cut=CUTS["alone"])
    part = weight[16:]
    assert torch.equal(multiply(x, part.numbers, part.scales, **options, cut=CUTS["alone"]), whole[:, 16:])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 16, 17, 64, 65, 300, 8192])
@pytest.mark.parametrize(("height", "k"), [(5120, 3072), (3072, 8192), (2 * 18944, 3584), (3584, 18944), (4608, 3584)])
def test_the_chosen_cut_fits(kind: str, rows: int, height: int, k: int) -> None:
    gpu = KINDS[kind]
    cut = choose(rows, height, k, gpu)
    blocks = -(-height // cut.n)
    assert cut.stages * cut.stage_bytes <= gpu.shared
    assert k % (cut.split * GROUP) == 0
    assert cut.split == 1 or (blocks <= COUNTERS and blocks * cut.split * cut.m * (cut.n + 1) * 4 <= PARTIAL_BYTES)
    assert cut.split == 1 or (rows <= 64 and blocks * cut.split <= 2 * gpu.processors)
