"""Checks of a tensor's header with Python integers, before anything is allocated or read."""

from math import prod

from walkgraph.errors import InvalidInput
from walkgraph.wire.messages import TensorHeader

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
MAX_DIMS = 32
MAX_BYTES = 1 << 40


def check_header(header: TensorHeader, nbytes: int) -> None:
    """Raise InvalidInput unless dtype and shape are sound and take exactly `nbytes` bytes."""
    if header.dtype not in ITEM_BYTES:
        raise InvalidInput(f"a tensor's dtype must be one of {sorted(ITEM_BYTES)}")
    if len(header.shape) > MAX_DIMS or any(size < 0 for size in header.shape):
        raise InvalidInput(f"a tensor has at most {MAX_DIMS} dimensions, none negative")
    expected = prod(header.shape) * ITEM_BYTES[header.dtype]
    if expected != nbytes or expected > MAX_BYTES:
        raise InvalidInput("a tensor's bytes must be its shape times its item size")
