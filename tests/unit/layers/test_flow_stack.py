"""Layers of a flow step in one launch: which layers it takes, and what Python and the CUDA source must agree on. The
launch itself is tested on a GPU."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch

from walkgraph.layers.kernels import flow_stack
from walkgraph.layers.kernels.flow_stack import (
    Entry,
    FlowLayer,
    FlowSizes,
    set_bytes,
    shared_bytes,
    stack_of,
    unfit_sizes,
)
from walkgraph.memory.cuda_source import compiled, headers_of, is_available
from walkgraph.models.pi05.presets import PI05

SIZES = FlowSizes(width=1024, heads=8, kv_heads=1, head_dim=256, hidden=4096, layers=18, eps=1e-6)
SOURCE = Path(flow_stack.__file__).with_suffix(".cu")
HOPPER_SHARED = 227 << 10
"""Bytes of shared memory that a block of compute capability 9.0 can have."""
MOST_ARGUMENTS = 32764
"""Bytes of a launch's arguments, at most."""


def test_the_published_expert_fits() -> None:
    config = PI05["pi05-base"]
    shape = config.shape(config.expert)
    found = (shape.width, shape.heads, shape.kv_heads, shape.head_dim, shape.hidden, config.layers, shape.norm_eps)
    assert FlowSizes(*found) == SIZES
    assert unfit_sizes(SIZES) is None
    assert shared_bytes() <= HOPPER_SHARED


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"width": 2048}, "1024 wide"),
        ({"hidden": 3072}, "4096 hidden"),
        ({"kv_heads": 2}, "share one key head"),
        ({"heads": 16}, "8 heads"),
        ({"head_dim": 128}, "of 256 numbers"),
        ({"layers": 17}, "must be even"),
    ],
)
def test_other_sizes_are_refused(change: dict[str, int], why: str) -> None:
    assert why in (unfit_sizes(SIZES._replace(**change)) or "")


def test_a_cpu_runs_layer_after_layer() -> None:
    weights = [torch.zeros(1, dtype=torch.bfloat16)] * 4
    entry = Entry(torch.zeros(1024, 32), torch.zeros(1024))
    assert stack_of(SIZES, [FlowLayer(*weights)] * 18, entry, torch.zeros(128)) is None


def caches(layers: int, *, apart: int) -> list[torch.Tensor]:
    """Makes caches of 4 slots, in one tensor, every `apart` of whose layers is one."""
    return list(torch.zeros(layers * apart, 4, 1, 256, dtype=torch.bfloat16).unbind()[::apart])


def test_caches_that_one_map_reads_are_equally_far_from_each_other() -> None:
    pointer, shape, strides = flow_stack._laid(caches(3, apart=2)) or (0, (0, 0), (0, 0))
    assert pointer > 0
    assert (shape, strides) == ((3, 4), (2 * 4 * 256, 256))
    first, second, third = caches(3, apart=2)
    assert flow_stack._laid([first, third, second]) is None
    assert flow_stack._laid([one.float() for one in (first, second, third)]) is None
    assert flow_stack._laid([one[..., :128] for one in (first, second, third)]) is None


@pytest.mark.skipif(not is_available(), reason="needs cuda-bindings")
@pytest.mark.parametrize("layers", [2, 18])
def test_the_source_compiles_without_a_gpu_and_agrees_with_python(layers: int) -> None:
    arguments = ctypes.sizeof(flow_stack._arguments(layers))
    assert arguments <= MOST_ARGUMENTS
    constants = {
        "BLOCKS": flow_stack._BLOCKS,
        "THREADS": flow_stack._THREADS,
        "ROWS": flow_stack.MOST_ROWS,
        "SET": set_bytes(),
        "EMPTY": flow_stack._EMPTY % (1 << 32),
        "EACH * LAYERS": SIZES._replace(layers=layers).numbers,
    }
    checks = [f'static_assert({name} == {value}u, "{name}");' for name, value in constants.items()]
    # The last barrier, with what aligns the stages.
    checks.append(f'static_assert(Shared::BYTES + 1024 == {shared_bytes()}, "shared memory");')
    checks.append(f'static_assert(sizeof(Arguments) <= {arguments} && sizeof(Arguments) > {arguments} - 128, "rest");')
    defined = SIZES._replace(layers=layers).defined
    options = ["-std=c++17", "-arch=sm_90a", *(f"-D{name}={value}" for name, value in defined.items())]
    assert compiled("\n".join((SOURCE.read_text(), *checks)), options, headers_of(SOURCE))
