"""Converts clients' tensors to the dtype of the task's ports: exactly, or not at all.

Headers are checked with Python's integers before an array is made from the bytes.
"""

from collections.abc import Mapping
from math import prod
from typing import Any, Literal, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from walkgraph.components import catalogue
from walkgraph.errors import InvalidInput
from walkgraph.graph.document import Graph
from walkgraph.graph.ports import PortType, parse_type
from walkgraph.graph.steps import steps_of
from walkgraph.graph.structure import structure
from walkgraph.placement.tables import Scalar
from walkgraph.service.http.limits import TENSOR_DIMENSIONS
from walkgraph.service.http.pieces import Bytes
from walkgraph.wire import messages as m
from walkgraph.wire.tensors import ITEM_BYTES

Kind = Literal["float", "int", "bool"]
"""The kind of numbers in a port's type."""
Numbers = NDArray[Any]

_SAFETENSORS: Mapping[str, str] = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
_ENGINE_DTYPES: dict[Kind, str] = {"float": "float32", "int": "int64", "bool": "bool"}
"""The dtypes of the engine's operators; they narrow floats to their weights' dtype themselves."""


# ── types of a task's ports ─────────────────────────────────────────────────────────────────────


def type_of(graph: Graph, task: str, name: str) -> PortType | None:
    """The type of the first port behind a task's input that states its kind of numbers; None if none does."""
    declared = graph.tasks[task].inputs[name]
    for at in steps_of(graph.tasks[task]):
        for inner, binding in at.step.with_.items():
            if binding == f"@task.{name}" or (binding == "@part" and at.part == declared.modality):
                found = _type_in(graph, at.step.walk, inner)
                if found is not None:
                    return found
    return None


def kind_of(graph: Graph, task: str, name: str) -> Kind | None:
    """The kind of numbers that the ports behind a task's input take; None if they leave it open."""
    found = type_of(graph, task, name)
    return cast(Kind, found.dtype) if found is not None else None


def _type_in(graph: Graph, name: str, inner: str) -> PortType | None:
    """The type of a Walk's input, as `type_of` finds it."""
    walk = graph.walks[name]
    types = [parse_type(walk.inputs[inner])]
    uses = structure(walk, name).uses
    for edge in walk.edges:
        use, _, port = edge.to.partition(".")
        if edge.from_ == f"@in.{inner}" and use in uses:
            component = catalogue().get(graph.nodes[uses[use].node].component)
            taken = component.input(port) if component else None
            types += [taken.type] if taken else []
    return next((found for found in types if found.dtype in _ENGINE_DTYPES), None)


# ── from bytes ──────────────────────────────────────────────────────────────────────────────────


def read_bytes(data: bytes, dtype: Any, shape: Any, kind: Kind | None, pointer: str) -> m.InlineTensor:
    """Reads little-endian numbers in C order, without a copy if they have the right dtype already.

    Raises InvalidInput if the header doesn't match the bytes, a number is not finite, or the task's ports can't hold it
    exactly. `pointer`: of the value that has `dtype` and `shape`.
    """
    header = _header(dtype, shape, len(data), pointer)
    if header.dtype == "bfloat16":
        array = widened(np.frombuffer(data, "<u2"))
    else:
        array = np.frombuffer(data, np.dtype(header.dtype))
    if header.dtype == "bool" and np.frombuffer(data, np.uint8).max() > 1:
        raise InvalidInput("each byte of a `bool` tensor must be 0 or 1", pointer)
    _check_finite(array, pointer)
    if kind is None or header.dtype == _ENGINE_DTYPES[kind]:
        return m.InlineTensor(dtype=header.dtype, shape=header.shape, data=data)
    made = exactly(array, _ENGINE_DTYPES[kind], header.dtype, pointer)
    return m.InlineTensor(dtype=cast(Any, made.dtype.name), shape=header.shape, data=made.tobytes())


def _header(dtype: Any, shape: Any, nbytes: int, pointer: str) -> m.TensorHeader:
    """Checks the dtype, the shape, and the number of bytes before anything is computed from them."""
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        known = ", ".join(f"`{name}`" for name in ITEM_BYTES)
        raise InvalidInput(f"a tensor's `dtype` must be one of {known}", f"{pointer}/dtype")
    sides: list[Any] = cast(list[Any], shape) if isinstance(shape, list) else [None]
    if len(sides) > TENSOR_DIMENSIONS or any(type(side) is not int or side < 1 for side in sides):
        message = f"a tensor's `shape` must be a list of at most {TENSOR_DIMENSIONS} whole numbers, each at least 1"
        raise InvalidInput(message, f"{pointer}/shape")
    expected = prod(sides) * ITEM_BYTES[dtype]
    if expected != nbytes:
        # The product of eight 64-bit sides has more digits than anyone can read.
        needed = f"{expected} bytes" if expected < 1 << 53 else "more bytes than there can be"
        raise InvalidInput(f"this shape and dtype need {needed}, and {nbytes} came", f"{pointer}/shape")
    return m.TensorHeader(dtype=cast(Any, dtype), shape=tuple(sides))


def widened(words: Numbers) -> Numbers:
    """bfloat16 as uint16 -> float32, exactly."""
    return (words.astype(np.uint32) << 16).view(np.float32)


def _check_finite(array: Numbers, pointer: str) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidInput("the numbers of a tensor must be finite", pointer)


# ── from JSON ───────────────────────────────────────────────────────────────────────────────────


def read_list(given: Any, most: int, kind: Kind | None, pointer: str) -> m.InlineTensor:
    """Reads nested lists of one shape. Decimal fractions are rounded to float32. Raises InvalidInput."""
    if isinstance(given, bool | int | float):
        given = [given]
    if not isinstance(given, list) or not given:
        raise InvalidInput("this must be a list of numbers, or nested lists of one shape", pointer)
    try:
        array: Numbers = np.asarray(cast(list[Any], given))
    except (ValueError, TypeError, OverflowError):
        raise InvalidInput("this must be a list of numbers, or nested lists of one shape", pointer) from None
    if array.dtype.kind not in "fiub":
        raise InvalidInput("this must be a list of numbers, or nested lists of one shape", pointer)
    if kind in (None, "float"):
        with np.errstate(all="ignore"):
            array = array.astype(np.float32)
    if not 0 < array.size <= most or array.ndim > TENSOR_DIMENSIONS or not np.isfinite(array).all():
        message = f"this must have 1 to {most} finite numbers in at most {TENSOR_DIMENSIONS} dimensions"
        raise InvalidInput(message, pointer)
    if kind is not None:
        array = exactly(array, _ENGINE_DTYPES[kind], "", pointer)
    return m.InlineTensor(dtype=cast(Any, array.dtype.name), shape=tuple(array.shape), data=array.tobytes())


def scalar_of(value: m.Value, pointer: str) -> Scalar:
    """The number, flag or text of a value. Raises InvalidInput for anything else."""
    match value:
        case m.Small(value=found):
            return found
        case m.InlineTensor() if prod(value.shape) == 1:
            if value.dtype == "bfloat16":
                return float(widened(np.frombuffer(value.data, "<u2"))[0])
            return np.frombuffer(value.data, np.dtype(value.dtype))[0].item()
        case _:
            raise InvalidInput("a parameter takes one number, flag or text", pointer)


# ── to bytes ────────────────────────────────────────────────────────────────────────────────────


def safetensors(named: Mapping[str, m.InlineTensor], facts: Mapping[str, str]) -> list[Bytes]:
    """A file of safetensors, in pieces: its library would put all bytes together."""
    # As the library does, so that each tensor begins at a multiple of its items' size.
    ordered = sorted(named.items(), key=lambda one: (-ITEM_BYTES[one[1].dtype], one[0]))
    header: dict[str, Any] = {"__metadata__": facts}
    end = 0
    for name, tensor in ordered:
        begin, end = end, end + len(tensor.data)
        kind = _SAFETENSORS[tensor.dtype]
        header[name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": (begin, end)}
    told = msgspec.json.encode(header)
    told += b" " * (-len(told) % 8)
    return [len(told).to_bytes(8, "little") + told, *(tensor.data for _, tensor in ordered)]


# ── conversion ──────────────────────────────────────────────────────────────────────────────────


def exactly(array: Numbers, dtype: str, given: str, pointer: str) -> Numbers:
    """The same numbers in another dtype. Raises InvalidInput if one of them would change."""
    if array.dtype.name == dtype:
        return array
    with np.errstate(all="ignore"):
        made = array.astype(dtype)
        same = _same(array, made)
    if not same:
        said = f"these `{given}` numbers" if given else "these numbers"
        advice = "; round them yourself and send `float32`" if dtype == "float32" else ""
        raise InvalidInput(f"the task takes `{dtype}`, which does not hold {said} exactly{advice}", pointer)
    return made


def _same(array: Numbers, made: Numbers) -> bool:
    """Compares in a type that holds both exactly: two floats as float64, two integers as int64. A float beyond int64's
    range differs from every integer; the cast would return an arbitrary one."""
    ours, theirs = array.dtype.kind == "f", made.dtype.kind == "f"
    if ours and theirs:
        return bool((made.astype(np.float64) == array.astype(np.float64)).all())
    if not ours and not theirs:
        return bool((made.astype(np.int64) == array.astype(np.int64)).all())
    floats, whole = (array, made) if ours else (made, array)
    wide = floats.astype(np.float64)
    if not ((wide >= -(2.0**63)) & (wide < 2.0**63)).all():
        return False
    back = wide.astype(np.int64)
    return bool((back == whole.astype(np.int64)).all() and (back.astype(np.float64) == wide).all())
