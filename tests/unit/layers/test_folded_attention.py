"""Attention of runs whose heads share their keys: what Python and the CUDA source must agree on, and the naive form.
The launches themselves are tested on a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from walkgraph.layers.attention.packed_blocks import PackedBlocks
from walkgraph.layers.kernels import folded_attention
from walkgraph.layers.kernels.folded_attention import SHARED, SPLITS, defined, fits
from walkgraph.memory.cuda_source import compiled, headers_of, is_available

HOPPER_SHARED = 227 << 10
"""Bytes of shared memory that a block of compute capability 9.0 can have."""
PATH = Path(folded_attention.__file__).with_suffix(".cu")
SOURCE = PATH.read_text()


def test_a_block_fits_the_shared_memory() -> None:
    assert SHARED <= HOPPER_SHARED


def test_the_source_reads_the_arguments_in_the_order_that_they_are_given() -> None:
    inside = SOURCE.partition("struct Arguments {")[2].partition("};")[0]
    fields = re.findall(r"\*?(\w+)(?=[,;])", re.sub(r"//.*", "", inside))
    assert fields == [name for name, *_ in folded_attention._Arguments._fields_ if name != "_rest"]


@pytest.mark.skipif(not is_available(), reason="needs NVIDIA's run-time compiler")
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("split", SPLITS)
def test_the_source_compiles_without_a_gpu(split: int, dense: bool) -> None:
    options = [
        "-std=c++17",
        "-arch=sm_90a",
        *(f"-D{name}={value}" for name, value in defined(split, dense=dense).items()),
    ]
    made = compiled(SOURCE, options, headers_of(PATH))
    assert made.startswith(b"\x7fELF")
    assert b"folded_attention" in made


def test_on_a_cpu_pages_are_gathered() -> None:
    dice = torch.Generator().manual_seed(1)
    k, v = (torch.randn(64, 1, 256, generator=dice).bfloat16() for _ in range(2))
    q = torch.randn(23, 2, 256, generator=dice).bfloat16()
    assert not fits(q, k, v, 2)
    slots = torch.cat((torch.arange(48, 64), torch.arange(3), torch.arange(16, 20)))
    blocks = PackedBlocks(torch.tensor([0, 19, 23], dtype=torch.int32), 19, 2)
    torch.testing.assert_close(blocks.paged(q, k, v, slots), blocks(q, k[slots], v[slots]))
