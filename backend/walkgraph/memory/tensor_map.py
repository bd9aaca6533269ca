"""Tensor maps: how Hopper's copies read tiles of a tensor into shared memory."""

import ctypes
from collections.abc import Sequence
from importlib import import_module
from typing import Any

BYTES = 128
"""The size of a map, which is a part of a launch's arguments."""


def tensor_map(pointer: int, shape: tuple[int, int], stride: int, box: tuple[int, int]) -> Any:
    """The map of a bfloat16 matrix, whose rows are `stride` numbers apart, read in tiles of `box` rows and columns.

    A tile has lines of 128 bytes, swizzled, and zeros past the matrix. Raises RuntimeError with the driver's error."""
    return tiles_map(pointer, shape, (stride,), box)


def tiles_map(pointer: int, shape: Sequence[int], strides: Sequence[int], box: Sequence[int]) -> Any:
    """Like `tensor_map`, of a tensor with two to five dimensions, the last of which is contiguous; `strides`: numbers
    between neighbours in the others."""
    driver: Any = import_module("cuda.bindings.driver")
    wide, narrow = driver.cuuint64_t, driver.cuuint32_t
    error, made = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        len(shape),
        pointer,
        [wide(size) for size in reversed(shape)],
        [wide(2 * stride) for stride in reversed(strides)],
        [narrow(size) for size in reversed(box)],
        [narrow(1)] * len(shape),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if error.value:
        raise RuntimeError(f"CUDA: {error.name}")
    return (ctypes.c_ubyte * BYTES).from_buffer_copy(ctypes.string_at(made.getPtr(), BYTES))
