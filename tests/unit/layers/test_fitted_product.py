"""Products whose tiles fit their rows: the division among blocks, and what Python and the CUDA source must agree on.
The launches themselves are tested on a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from walkgraph.layers.encoder import EncoderWeights
from walkgraph.layers.fitted_blocks import FittedBlocks, FittedMap
from walkgraph.layers.kernels import fitted_product
from walkgraph.layers.kernels.fitted_product import Cut, Kind, choose, macros
from walkgraph.layers.norm.layer_norm import row_sums
from walkgraph.memory.cuda_source import compiled, is_available

SOURCE = Path(fitted_product.__file__).with_suffix(".cu").read_text()
SIZES = [
    (rows, *size)
    for rows in (1, 50, 83, 256, 258, 320)
    for size in ((3072, 1024), (1024, 4096), (4224, 1408), (1408, 6144), (64, 64))
]
"""Rows, columns and K; those of V-JEPA 2-AC among them."""


@pytest.mark.parametrize(("rows", "columns", "depth"), SIZES)
def test_every_cut_covers_the_result_once_and_fits_the_shared_memory(rows: int, columns: int, depth: int) -> None:
    cut = choose(rows, columns, depth)
    assert cut is not None
    assert (columns % cut.columns, depth % (64 * cut.split), cut.rows % 8) == (0, 0, 0)
    assert cut.shared <= 227 << 10
    tiles = -(-rows // cut.rows)
    assert cut.blocks(rows, columns) == tiles * columns // cut.columns * cut.split
    # A tile of nothing but padding would be computed for nobody.
    assert (tiles - 1) * cut.rows < rows <= tiles * cut.rows


def test_two_tokens_past_256_do_not_cost_a_third_tile() -> None:
    cut = choose(258, 3072, 1024)
    assert cut is not None
    assert cut.blocks(258, 3072) * cut.rows * cut.columns < 1.1 * 258 * 3072


@pytest.mark.parametrize(("columns", "depth"), [(3072, 1000), (100, 1024)])
def test_widths_that_no_tile_divides_have_no_cut(columns: int, depth: int) -> None:
    assert choose(258, columns, depth) is None


def test_a_cpu_runs_layer_after_layer() -> None:
    norms = [nn.LayerNorm(64, dtype=torch.bfloat16) for _ in range(2)]
    maps = [nn.Linear(64, columns, dtype=torch.bfloat16) for columns in (192, 64, 64, 64)]
    qkv = maps[0].weight, maps[0].bias
    assert FittedMap.of(maps[1]) is None
    assert FittedBlocks.of([EncoderWeights(norms[0], qkv, 1, maps[1], norms[1], maps[2], maps[3], "gelu")]) is None


def test_sums_of_a_row_give_its_mean_and_deviation() -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 192) + 3
    total, squares = row_sums(x).sum(1).unbind(1)
    assert row_sums(x).shape == (5, 3, 2)
    assert torch.allclose(total / 192, x.mean(1))
    assert torch.allclose(squares / 192 - (total / 192) ** 2, x.var(1, correction=0), rtol=1e-4)


def test_the_source_reads_the_arguments_in_the_order_that_they_are_given() -> None:
    inside = SOURCE.partition("struct Arguments {")[2].partition("};")[0]
    fields = re.findall(r"\*?(\w+)(?=[,;])", re.sub(r"//.*", "", inside))
    assert fields == [name for name, *_ in fitted_product._Arguments._fields_][:-1]
    assert f"SUMMED = {fitted_product.SUMMED};" in SOURCE


@pytest.mark.skipif(not is_available(), reason="needs NVIDIA's run-time compiler")
@pytest.mark.parametrize(
    ("cut", "kind"),
    [
        (Cut(136, stages=8), Kind(normed=True, places=True)),
        (Cut(88, split=2, stages=8), Kind(adds=True)),
        (Cut(136, split=4), Kind()),
        (Cut(64), Kind(adds=True)),
        (Cut(128, wide=2, stages=6), Kind(normed=True, gelu=True)),
    ],
)
def test_the_source_compiles_without_a_gpu(cut: Cut, kind: Kind) -> None:
    options = [f"-D{name}={value}" for name, value in macros(cut, kind).items()]
    made = compiled(SOURCE, ["-std=c++17", "-arch=sm_90a", *options])
    assert made.startswith(b"\x7fELF")
    assert b"fitted_product" in made
