"""Attention of blocks over a paged cache on Hopper: what Python and the CUDA source must agree on. The launches
themselves are tested on a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from walkgraph.layers.kernels import block_attention
from walkgraph.layers.kernels.block_attention import Cut
from walkgraph.memory.cuda_source import compiled, headers_of, is_available

HOPPER_SHARED = 227 << 10
"""Bytes of shared memory that a block of compute capability 9.0 can have."""
CUTS = [
    *(Cut(258, 6), Cut(256, 5), Cut(264, 1), Cut(200, 2), Cut(136, 8)),
    *(Cut(258, 2, pieces=4, teams=3, stages=9), Cut(258, 1, pieces=2, teams=2)),
]
PATH = Path(block_attention.__file__).with_suffix(".cu")
SOURCE = PATH.read_text()


@pytest.mark.parametrize("cut", CUTS)
def test_the_cuts_fit_the_shared_memory(cut: Cut) -> None:
    assert cut.shared <= HOPPER_SHARED


@pytest.mark.parametrize(
    ("tokens", "tiles", "few"), [(64, 1, 0), (65, 1, 1), (72, 1, 8), (73, 2, 0), (256, 4, 0), (258, 4, 2), (264, 4, 8)]
)
def test_few_queries_past_a_whole_tile_have_no_warpgroup(tokens: int, tiles: int, few: int) -> None:
    assert (Cut(tokens, 1).tiles, Cut(tokens, 1).few) == (tiles, few)
    assert (Cut(4 * tokens, 2, pieces=4).tiles, Cut(4 * tokens, 2, pieces=4).few) == (tiles, few)


def test_the_source_reads_the_arguments_in_the_order_that_they_are_given() -> None:
    inside = SOURCE.partition("struct Arguments {")[2].partition("};")[0]
    fields = re.findall(r"\*?(\w+)(?=[,;])", re.sub(r"//.*", "", inside))
    assert fields == [name for name, *_ in block_attention._Arguments._fields_ if name != "_rest"]


@pytest.mark.skipif(not is_available(), reason="needs NVIDIA's run-time compiler")
@pytest.mark.parametrize("cut", CUTS)
def test_the_source_compiles_without_a_gpu(cut: Cut) -> None:
    options = ["-std=c++17", "-arch=sm_90a", *(f"-D{name}={value}" for name, value in cut.defined.items())]
    made = compiled(SOURCE, options, headers_of(PATH))
    assert made.startswith(b"\x7fELF")
    assert b"block_attention" in made
