"""The files that an ONNX file names: read from its bytes, as far as needed, before any library opens it.

An ONNX file is a protobuf message. A tensor may have its numbers in another file, whose name it gives; a name that
leads out of the folder would make the library read any file of the machine.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from walkgraph.errors import InvalidInput, Refused

_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5
_KEY, _VALUE = 1, 2
_DEPTH = 96
"""Messages inside one another; a branch of a branch takes three."""

# Message -> number of a field that is a message -> which. What isn't listed holds no tensor.
_FIELDS: Mapping[str, Mapping[int, str]] = {
    "Model": {7: "Graph", 20: "Training", 25: "Function"},
    "Training": {1: "Graph", 2: "Graph"},
    "Function": {7: "Node", 11: "Attribute"},
    "Graph": {1: "Node", 5: "Tensor", 15: "Sparse"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "Sparse", 23: "Sparse"},
    "Sparse": {1: "Tensor", 2: "Tensor"},
    "Tensor": {13: "Entry"},
}


def check_files(path: Path) -> None:
    """Raises InvalidInput for a file that is no ONNX file, and Refused for one that names files outside its folder."""
    folder = path.parent.resolve()
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            named = [name.decode() for name in _locations(data, _Range(0, len(data)), "Model", 0)]
    except (OSError, ValueError, IndexError):
        raise InvalidInput(f"`{path.name}` is no ONNX file, or is incomplete; fetch it again") from None
    for name in named:
        there = (folder / name).resolve() if "\0" not in name else folder
        if folder not in there.parents:
            raise Refused(f"`{path.name}` has numbers in `{name}`, outside its folder; such files are never opened")
        if not there.is_file():
            raise InvalidInput(f"`{path.name}` has numbers in `{name}`, which is not in `{folder.name}`; fetch it too")


class _Range(NamedTuple):
    """The bytes of a message, by their places in the file: slices would be copies."""

    start: int
    end: int


def _locations(data: mmap.mmap, there: _Range, kind: str, depth: int) -> Iterator[bytes]:
    """The names of other files. Raises IndexError for broken bytes, and for more depth than any model has."""
    if depth > _DEPTH:
        raise IndexError
    if kind == "Entry":
        # Of a field that is there twice, the last counts; key and value may come in either order.
        said = {number: data[value.start : value.end] for number, value in _fields(data, there)}
        if said.get(_KEY) == b"location":
            yield said.get(_VALUE, b"")
        return
    for number, value in _fields(data, there):
        inner = _FIELDS[kind].get(number)
        if inner is not None:
            yield from _locations(data, value, inner, depth + 1)


def _fields(data: mmap.mmap, there: _Range) -> Iterator[tuple[int, _Range]]:
    """The length-delimited fields of a message by number."""
    at = there.start
    while at < there.end:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _LEN:
            size, at = _varint(data, at)
            if at + size > there.end:
                raise IndexError
            yield tag >> 3, _Range(at, at + size)
            at += size
        elif kind == _VARINT:
            _, at = _varint(data, at)
        elif kind in (_I64, _I32):
            at += 8 if kind == _I64 else 4
        else:
            raise IndexError


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    """A number of up to ten bytes, and the place behind it."""
    value = 0
    for place in range(10):
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return value, at + place + 1
    raise IndexError
