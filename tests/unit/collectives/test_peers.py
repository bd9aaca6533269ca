"""The kernel that exchanges parts of shards through their GPUs' memory; what it computes is tested on GPUs."""

from __future__ import annotations

import re
from itertools import product

import pytest
import torch

from walkgraph.collectives import peers
from walkgraph.memory.cuda_source import compiled, is_available

SOURCE = peers._SOURCE.read_text()


def test_the_source_reads_the_arguments_in_the_order_that_they_are_given() -> None:
    inside = SOURCE.partition("struct Arguments {")[2].partition("};")[0]
    named = re.sub(r"//.*|\[\w+\]", "", inside)
    fields = re.findall(r"\*?(\w+)(?=[,;])", named)
    assert fields == [name for name, *_ in peers._Arguments._fields_]
    assert f"#define MOST {peers.MOST_SHARDS} " in SOURCE


@pytest.mark.skipif(not is_available(), reason="needs NVIDIA's run-time compiler")
@pytest.mark.parametrize("chip", ["80", "86", "89", "90a", "100a", "120a"])
def test_the_source_compiles_without_a_gpu(chip: str) -> None:
    for kind, gathers, count in product((0, 1), (0, 1), (2, peers.MOST_SHARDS)):
        defined = {"KIND": kind, "GATHER": gathers, "SHARD": count - 1, "COUNT": count, "THREADS": peers._THREADS}
        made = compiled(SOURCE, ["-std=c++17", f"-arch=sm_{chip}", *(f"-D{key}={n}" for key, n in defined.items())])
        assert b"exchanged" in made


@pytest.mark.parametrize(
    ("shape", "dtype", "passes"),
    [
        ((1, 3072), torch.bfloat16, True),
        ((128, 4096), torch.bfloat16, True),
        ((129, 4096), torch.bfloat16, False),
        ((1, 2), torch.bfloat16, False),
        ((0, 8), torch.bfloat16, False),
        ((1, 2), torch.float32, True),
        ((1, 8), torch.float16, False),
    ],
)
def test_small_parts_of_whole_pairs_go_through_memory(shape: tuple[int, ...], dtype: torch.dtype, passes: bool) -> None:
    assert peers._passes(torch.empty(shape, dtype=dtype)) == passes
