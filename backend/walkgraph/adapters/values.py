"""Values of wires in the form that a function takes them, and back, with each mistake named at its port."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs, plain_text
from walkgraph.architectures.pictures import decode
from walkgraph.functions.annotations import Form, Value
from walkgraph.functions.signatures import Signature

_SAID: dict[Form, str] = {
    "text": "text (`str`)",
    "bytes": "`bytes`",
    "picture": "a `PIL.Image.Image`",
    "tensor": "a `torch.Tensor`",
    "array": "a `numpy.ndarray`",
    "float": "a number",
    "int": "a whole number",
    "bool": "True or False",
}
_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})
"""Modes of Pillow's pictures that a PNG holds as they are."""


def taken(call: Call, port: str, declared: Value) -> Any:
    """The value of an input, or None where it is absent."""
    given = call.inputs.get(port)
    if given is None:
        if declared.optional:
            return None
        raise CallFailed(f"`{call.node}` got nothing at `{port}`", port)
    if declared.type.many:
        return [_taken(call, port, declared.form, one) for one in given]
    return _taken(call, port, declared.form, given)


def _taken(call: Call, port: str, form: Form, given: Any) -> Any:
    match form:
        case "text" if isinstance(given, str):
            return plain_text(given)
        case "bytes" if isinstance(given, bytes):
            return given
        case "picture" if isinstance(given, bytes):
            return _picture(call, port, given)
        case "tensor" if isinstance(given, Tensor):
            return given
        case "array" if isinstance(given, Tensor):
            # NumPy has no bfloat16.
            return (given.float() if given.dtype == torch.bfloat16 else given).cpu().numpy()
        case "float" | "int" | "bool" if isinstance(given, (bool, int, float)) or _is_single(given):
            return {"float": float, "int": int, "bool": bool}[form](given)
        case _:
            raise CallFailed(f"`{call.node}` takes {_SAID[form]} at `{port}`", port, code="invalid_input")


def _is_single(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1


def _picture(call: Call, port: str, data: bytes) -> Image.Image:
    try:
        return decode(replace(call, inputs={"image": data}))
    except CallFailed as error:
        raise CallFailed(str(error), port, code=error.code) from None


def outputs_of(call: Call, signature: Signature, given: Any) -> Outputs:
    """The returned values by port. Raises CallFailed with the port for what the function's own hints don't allow."""
    values = _by_name(call, signature, given)
    if unknown := sorted(set(values) - set(signature.outputs)):
        raise CallFailed(f"`{call.node}` returned `{unknown[0]}`, which its return type doesn't have")
    found: Outputs = {}
    sizes = _sizes(call, signature)
    for port, declared in signature.outputs.items():
        value = values.get(port)
        if value is None:
            if not declared.optional:
                message = f"`{call.node}` must return {_SAID[declared.form]} as `{port}`, and returned None"
                raise CallFailed(f"{message}; where it may be absent, its hint is `... | None`", port)
            continue
        if not declared.type.many:
            found[port] = _given(call, port, declared, value, sizes)
        elif isinstance(value, (list, tuple)):
            found[port] = [_given(call, port, declared, one, dict(sizes)) for one in value]
        else:
            raise CallFailed(f"`{call.node}` must return a list as `{port}`, and returned {_kind(value)}", port)
    return found


def _by_name(call: Call, signature: Signature, given: Any) -> Mapping[str, Any]:
    match signature.answer:
        case "single":
            [port] = signature.outputs
            return {port: given}
        case "items" if isinstance(given, Mapping):
            return given
        case "attributes" if all(hasattr(given, port) for port in signature.outputs):
            return {port: getattr(given, port) for port in signature.outputs}
        case _:
            fields = ", ".join(f"`{port}`" for port in signature.outputs)
            raise CallFailed(f"`{call.node}` must return {fields}, as its return type says, and gave {_kind(given)}")


def _given(call: Call, port: str, declared: Value, value: Any, sizes: dict[str, int]) -> Any:
    match declared.form, value:
        case "text", str():
            return plain_text(value)
        case "bytes", bytes() | bytearray() | memoryview():
            return bytes(value)
        case "picture", Image.Image():
            return _encoded(value)
        case "tensor", Tensor():
            return _shaped(call, port, declared, value.detach(), sizes)
        case "array", np.ndarray() | np.generic():
            return _shaped(call, port, declared, _of_array(call, port, value), sizes)
        case "bool", bool() | np.bool_():
            return bool(value)
        case "int", int() | np.integer() if not isinstance(value, bool):
            return int(value)
        case "float", int() | float() | np.integer() | np.floating() if not isinstance(value, bool):
            return float(value)
        case ("float" | "int" | "bool") as form, Tensor() if value.numel() == 1 and _kind_of(value) == form:
            return value.item()
    raise CallFailed(f"`{call.node}` must return {_SAID[declared.form]} as `{port}`, and returned {_kind(value)}", port)


def _encoded(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    (picture if picture.mode in _MODES else picture.convert("RGB")).save(data, "PNG", compress_level=1)
    return data.getvalue()


def _of_array(call: Call, port: str, value: Any) -> Tensor:
    array = np.ascontiguousarray(value)
    try:
        found = torch.from_numpy(array)
    except TypeError:
        raise CallFailed(f"`{call.node}` returned an array of `{array.dtype}` as `{port}`, not numbers", port) from None
    return found.float() if found.dtype == torch.float64 else found


def _kind_of(value: Tensor) -> str:
    if value.dtype == torch.bool:
        return "bool"
    return "float" if value.is_floating_point() else "int"


def _shaped(call: Call, port: str, declared: Value, value: Tensor, sizes: dict[str, int]) -> Tensor:
    """The tensor, if its numbers and its shape are as declared; sizes that have letters must agree within a call."""
    wanted = declared.type
    if value.is_complex() or (wanted.dtype is not None and wanted.dtype != _kind_of(value)):
        raise CallFailed(f"`{call.node}` must return `{wanted}` as `{port}`, and returned {_kind(value)}", port)
    if wanted.shape is None:
        return value
    open_ended = "..." in wanted.shape
    dims = wanted.shape[wanted.shape.index("...") + 1 :] if open_ended else wanted.shape
    there = list(value.shape)[len(value.shape) - len(dims) :] if open_ended else list(value.shape)
    agrees = len(there) == len(dims) and all(
        size == (dim if isinstance(dim, int) else sizes.setdefault(dim, size))
        for dim, size in zip(dims, there, strict=True)
    )
    if not agrees:
        raise CallFailed(f"`{call.node}` must return `{wanted}` as `{port}`, and returned {_kind(value)}", port)
    return value


def _sizes(call: Call, signature: Signature) -> dict[str, int]:
    """The sizes that the letters of the inputs stand for."""
    found: dict[str, int] = {}
    for port, declared in signature.inputs.items():
        given, shape = call.inputs.get(port), declared.type.shape
        if isinstance(given, Tensor) and shape is not None and len(shape) == given.dim() and not declared.type.many:
            found |= {dim: size for dim, size in zip(shape, given.shape, strict=True) if isinstance(dim, str)}
    return found


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {_kind_of(value)} {list(value.shape)}"
    return "None" if value is None else f"a `{type(value).__name__}`"
