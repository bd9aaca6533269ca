"""Attention of runs whose query heads share one key and value head of 256 numbers, on Hopper: see
`folded_attention.cu`.

Shape letters: M runs, R rows, H query heads, S slots, D = 256.
"""

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from walkgraph.memory.cuda_source import CudaKernel, is_available
from walkgraph.memory.tensor_map import BYTES, tensor_map, tiles_map

DIM, RUNS = 256, 31
"""Numbers of a head, and the most runs of a launch."""
SPLITS = (8, 4, 3, 2)
"""Blocks that may share the keys of a cluster's rows."""
ROWS, THREADS = 128, 384
"""Folded rows of a cluster, and threads of a block."""
_EIGHT, _TILE, _COLUMNS, _STAGES = 8, 64, 64, 5
"""Slots that are certainly consecutive, rows and columns that are copied together, and tiles of keys or values in a
block's shared memory."""
SHARED = 2 * DIM * (ROWS + _TILE * _STAGES) + 8 * (2 * _STAGES + 4) + 1024
"""Bytes of shared memory of a block, with those that align its tiles to 1024."""


class _Arguments(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_ubyte * BYTES) for name in ("q", "k", "v")),
        *((name, ctypes.c_void_p) for name in ("out", "rows", "keys", "slots")),
        *((name, ctypes.c_int) for name in ("runs", "heads", "step")),
        ("scale", ctypes.c_float),
        ("_rest", ctypes.c_ubyte * 64),
    ]


def defined(split: int, *, dense: bool) -> dict[str, int]:
    """The compiler's options for the source."""
    return {"SPLIT": split, "DENSE": int(dense)}


def fits(q: Tensor, slot_k: Tensor, slot_v: Tensor, runs: int) -> bool:
    """True if the launches support queries `[R, H, D]` with such a cache."""
    return (
        q.is_cuda
        and q.dtype == slot_k.dtype == slot_v.dtype == torch.bfloat16
        and slot_k.shape == slot_v.shape
        and slot_k.shape[1:] == (1, DIM)
        and q.shape[2] == DIM
        and runs <= RUNS
        and q.is_contiguous()
        and all(one.stride(2) == 1 and one.stride(0) % 8 == 0 for one in (slot_k, slot_v))
        and all(one.data_ptr() % 16 == 0 for one in (q, slot_k, slot_v))
        and torch.cuda.get_device_capability(q.device) == (9, 0)
        and is_available()
    )


def attend_pages(q: Tensor, slot_k: Tensor, slot_v: Tensor, bounds: Tensor, slots: Tensor) -> Tensor:
    """q `[R, H, D]`, slot_k and slot_v `[S, 1, D]` -> `[R, H, D]`; scaled by D^-0.5. Rows past the last bound get
    arbitrary numbers.

    bounds int32 `[M + 1]`: where each run's rows begin, and the last one's end. slots int64 `[R]`: each 16 rows of a
    run have the slots of a page, in order. Both are read while the launch before this one still runs; they must have
    been there before that one began."""
    given = _given(q, bounds)
    given.k, given.v = (_map_of_pages(one.data_ptr(), len(one), one.stride(0)) for one in (slot_k, slot_v))
    given.keys, given.step, given.slots = bounds.data_ptr(), 1, slots.data_ptr()
    # More blocks for a cluster would leave some runs' clusters without processors.
    return _launched(given, q, SPLITS[-1], dense=False)


def attend_spans(q: Tensor, slot_k: Tensor, slot_v: Tensor, bounds: Tensor, spans: Tensor, split: int) -> Tensor:
    """Like `attend_pages`; spans int32 `[M, 2]`: start and stop of each run's keys among the slots. `split`: one of
    `SPLITS`."""
    given = _given(q, bounds)
    given.k, given.v = (
        _map(one.data_ptr(), (len(one), DIM), one.stride(0), (_TILE, _COLUMNS)) for one in (slot_k, slot_v)
    )
    given.keys, given.step = spans.data_ptr(), 2
    return _launched(given, q, split, dense=True)


@cache
def split_for(runs: int, rows: int, device: torch.device) -> int | None:
    """The most blocks of a cluster with which all blocks of `attend_spans` run at the same time, for runs of so many
    folded rows each; None if there is no such number."""
    clusters = runs * -(-rows // ROWS)
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    for split in SPLITS:
        if clusters * split > processors:
            continue
        if _kernel(split, device, dense=True).clusters_at_once(split, THREADS) >= clusters:
            return split
    return None


def _given(q: Tensor, bounds: Tensor) -> _Arguments:
    rows, heads, width = q.shape
    given = _Arguments(rows=bounds.data_ptr(), runs=len(bounds) - 1, heads=heads)
    given.q = tensor_map(q.data_ptr(), (rows * heads, width), width, (_TILE, _COLUMNS))
    given.scale = 1.4426950408889634 * width**-0.5
    return given


def _launched(given: _Arguments, q: Tensor, split: int, *, dense: bool) -> Tensor:
    out = torch.empty_like(q)
    given.out = out.data_ptr()
    # Each run may end with a cluster that has fewer rows.
    clusters = q.shape[0] * q.shape[1] // ROWS + given.runs
    _kernel(split, q.device, dense=dense).launch_early(clusters * split, THREADS, given)
    return out


@cache
def _kernel(split: int, device: torch.device, *, dense: bool) -> CudaKernel:
    return CudaKernel(Path(__file__).with_suffix(".cu"), "folded_attention", defined(split, dense=dense), SHARED)


# The memory of a cache doesn't move.
_map = cache(tensor_map)


@cache
def _map_of_pages(pointer: int, slots: int, stride: int) -> ctypes.Array[ctypes.c_ubyte]:
    """A copy is a page: all columns of 8 slots, then those of the next 8."""
    shape = (slots // _EIGHT, DIM // _COLUMNS, _EIGHT, _COLUMNS)
    return tiles_map(pointer, shape, (_EIGHT * stride, _COLUMNS, stride), (2, *shape[1:]))
