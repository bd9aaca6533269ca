"""Parts of a vocoder's stages in one launch: the layout of their weights, and what Python and the CUDA source must
agree on. The launches themselves are tested on a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from walkgraph.layers.kernels import vocoder_stage
from walkgraph.layers.kernels.vocoder_stage import RISES, UNITS, Cut, bricks, columns
from walkgraph.layers.sound.causal_conv import CausalConv, Upsample
from walkgraph.layers.sound.snake_conv import rise_launch, unit_launch
from walkgraph.memory.cuda_source import compiled, is_available

HOPPER_SHARED = 227 << 10
"""Bytes of shared memory that a block of compute capability 9.0 can have."""
CUTS = [*UNITS.values(), *RISES.values()]
SOURCE = Path(vocoder_stage.__file__).with_suffix(".cu").read_text()


def test_a_lane_has_eight_adjacent_channels_of_every_group_of_32() -> None:
    order = columns(96)
    assert sorted(order.tolist()) == list(range(96))
    for lane in range(4):
        # A lane of the tensor cores has two of every eight columns.
        mine = order[:32].view(4, 4, 2)[:, lane].flatten()
        assert mine.tolist() == list(range(8 * lane, 8 * lane + 8))


@pytest.mark.parametrize(("channels", "count", "depth"), [(96, 96, 96), (192, 288, 64), (64, 96, 32)])
def test_every_weight_is_where_the_launch_reads_it(channels: int, count: int, depth: int) -> None:
    torch.manual_seed(channels)
    taps, chunks = list(torch.randn(3, count, channels).unbind()), channels // depth
    laid = bricks(taps, depth)
    assert laid.shape == (3 * chunks, depth // 8, count // 8, 8, 8)
    assert laid.is_contiguous()
    for stage, found in enumerate(laid):
        start = stage % chunks * depth
        # In a brick the columns come first.
        wanted = taps[stage // chunks][:, start : start + depth].T
        assert torch.equal(found.permute(0, 3, 1, 2).reshape(depth, count), wanted)


@pytest.mark.parametrize("cut", CUTS)
def test_the_cuts_fit_the_shared_memory(cut: Cut) -> None:
    assert cut.shared <= HOPPER_SHARED
    assert cut.channels % cut.depth == 0


def test_the_source_reads_the_arguments_in_the_order_that_they_are_given() -> None:
    inside = SOURCE.partition("struct Arguments {")[2].partition("};")[0]
    fields = re.findall(r"\*?(\w+)(?=[,;])", re.sub(r"//.*", "", inside))
    assert fields == [name for name, *_ in vocoder_stage._Arguments._fields_]


@pytest.mark.skipif(not is_available(), reason="needs NVIDIA's run-time compiler")
@pytest.mark.parametrize("cut", CUTS)
def test_the_source_compiles_without_a_gpu(cut: Cut) -> None:
    options = ["-std=c++17", "-arch=sm_90a", *(f"-D{name}={value}" for name, value in cut.defined.items())]
    made = compiled(SOURCE, options)
    assert made.startswith(b"\x7fELF")
    assert b"vocoder_stage" in made


def test_a_cpu_has_no_launch() -> None:
    assert unit_launch(CausalConv(96, 96, 7), CausalConv(96, 96, 1)) is None
    assert rise_launch(Upsample(192, 96, 3, 2)) is None
