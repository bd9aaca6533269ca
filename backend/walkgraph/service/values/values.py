"""Converts values to and from clients' JSON: `{"type": "text", "text": ...}`, media in base64, tensors as nested lists
or bytes; or with the bytes in binary frames beside the JSON."""

import binascii
import re
from collections.abc import Callable, Sequence
from itertools import groupby
from math import prod
from typing import Any, cast

import msgspec
import numpy as np
import pybase64

from walkgraph.errors import InvalidInput
from walkgraph.media_types import mime_of
from walkgraph.service.http import limits
from walkgraph.service.values import tensors, wav
from walkgraph.service.values.outlets import IN_TEXT, LARGE_BYTES, Outlet
from walkgraph.wire import messages as m
from walkgraph.wire.tensors import ITEM_BYTES

TEXT = "text"
WAV = "audio/wav"
_JOINED = frozenset({TEXT, WAV})
MEDIA = ("image", "audio", "video", "bytes")
MAX_TENSOR_VALUES = 100_000

_DATA_URL = re.compile(r"data:[\w.+-]*/?[\w.+-]*(;[\w.+-]+=[\w.+-]*)*;base64,", re.ASCII)

# ── from the client ─────────────────────────────────────────────────────────────────────────────


def read(modality: str, given: Any, pointer: str, kind: Callable[[], tensors.Kind | None] = lambda: None) -> m.Value:
    """Reads one value of a modality, bare (`"a red circle"`, base64 text, a list) or as an object with `type`.

    `bytes` may replace base64. `kind` returns the kind of numbers that the value's ports take; called only for tensors.
    Raises InvalidInput, with the pointer, if it is not such a value.
    """
    if isinstance(given, dict):
        fields = cast(dict[str, Any], given)
        if fields.get("type", modality) != modality:
            raise InvalidInput(f"this must be of type `{modality}`", f"{pointer}/type")
        if modality not in (TEXT, *MEDIA):
            return _tensor(fields, pointer, kind())
        given, pointer = _unwrap(modality, fields, pointer)
    if modality == TEXT:
        return _text(given, pointer)
    if modality in MEDIA:
        return _media(given, pointer)
    return tensors.read_list(given, MAX_TENSOR_VALUES, kind(), pointer)


def _unwrap(modality: str, given: dict[str, Any], pointer: str) -> tuple[Any, str]:
    key = TEXT if modality == TEXT else "data"
    _know(given, ("type", "mime", key), key, pointer)
    if key not in given:
        raise InvalidInput(f"`{key}` is missing; add it", pointer)
    return given[key], f"{pointer}/{key}"


def _know(given: dict[str, Any], keys: Sequence[str], key: str, pointer: str) -> None:
    unknown = sorted(set(given) - set(keys))
    if unknown:
        raise InvalidInput(f"this key is not known here; use `{key}`", f"{pointer}/{unknown[0][:80]}")


def _text(given: Any, pointer: str) -> m.Small:
    if not isinstance(given, str):
        raise InvalidInput("this must be a string", pointer)
    if len(given) > limits.TEXT_CHARACTERS:
        raise InvalidInput(f"a text may have {limits.TEXT_CHARACTERS} characters; shorten it", pointer)
    return m.Small(value=given)


def _media(given: Any, pointer: str) -> m.Blob:
    data = given if isinstance(given, bytes) else _unencoded(given, pointer)
    if not data:
        raise InvalidInput("this is empty; send the data itself", pointer)
    return m.Blob(data=data)


def _unencoded(given: Any, pointer: str) -> bytes:
    if not isinstance(given, str):
        raise InvalidInput("this must be base64 text, or a `data:` URL with it", pointer)
    if given.startswith(("http:", "https:", "file:", "ftp:")):
        raise InvalidInput("this service fetches no addresses; send the data itself in base64", pointer)
    if given.startswith("data:"):
        head = _DATA_URL.match(given[:200])
        if head is None:
            raise InvalidInput("a `data:` URL must hold base64 (`data:image/png;base64,...`)", pointer)
        given = given[head.end() :]
    try:
        return pybase64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("this is not base64", pointer) from None


def _tensor(given: dict[str, Any], pointer: str, kind: tensors.Kind | None) -> m.InlineTensor:
    """Reads `{"data": [...]}` or `{"dtype": ..., "shape": [...], "base64": ...}`, the two forms that `write` writes."""
    _know(given, ("type", "mime", "dtype", "shape", "data", "base64"), "data", pointer)
    if ("data" in given) == ("base64" in given):
        raise InvalidInput("a tensor is numbers in `data`, or bytes in `base64` with `dtype` and `shape`", pointer)
    if "base64" in given:
        data = given["base64"]
        if not isinstance(data, bytes):
            data = _unencoded(data, f"{pointer}/base64")
        return tensors.read_bytes(data, given.get("dtype"), given.get("shape"), kind, pointer)
    found = tensors.read_list(given["data"], MAX_TENSOR_VALUES, kind, f"{pointer}/data")
    if "dtype" in given and given["dtype"] not in tuple(ITEM_BYTES):
        raise InvalidInput("this is not a tensor's dtype; leave it out beside `data`", f"{pointer}/dtype")
    if "shape" in given and given["shape"] != list(found.shape):
        raise InvalidInput("this is not the shape of the lists in `data`; leave it out", f"{pointer}/shape")
    return found


# ── to the client ───────────────────────────────────────────────────────────────────────────────


def write(value: m.Value, modality: str, outlet: Outlet = IN_TEXT) -> dict[str, Any]:
    """The JSON object of a run's output. `outlet` takes the bytes of media and tensors."""
    match value:
        case m.Small():
            return _written_small(value.value, modality)
        case m.Blob():
            mime = mime_of(value.data)
            kind = modality if modality in MEDIA else mime.partition("/")[0].replace("application", "bytes")
            return {"type": kind, "mime": mime, **outlet.put("data", value.data)}
        case m.InlineTensor():
            return _written_tensor(value, modality, outlet)
        case m.Many():
            return {"type": modality or "list", "items": [write(item, modality, outlet) for item in value.items]}
        case m.Named():
            items = {name: write(item, "", outlet) for name, item in value.items.items()}
            return {"type": modality or "named", "items": items}
        case m.Conversation():
            told = {"type": "messages", "turns": [_written_turn(turn, outlet) for turn in value.turns]}
            told |= {"tools": [msgspec.json.decode(tool) for tool in value.tools]} if value.tools else {}
            return told if value.call is None else {**told, "call": value.call or True}
        case m.Absent():
            return {"type": "absent"}
        case m.Ticket():
            return {"type": modality or "tensor", "dtype": value.dtype, "shape": value.shape}
        case m.Posted():
            raise TypeError("a posted value is fetched before its output is told")


def _written_turn(turn: m.Turn, outlet: Outlet) -> dict[str, Any]:
    """The turn in the form in which clients send it."""
    content = [write(part.value, part.modality, outlet) for part in turn.parts]
    calls = [(call.id, {"name": call.name, "arguments": call.arguments}) for call in turn.tool_calls]
    written: dict[str, Any] = {"role": turn.role, "content": content}
    if calls:
        written["tool_calls"] = [{"id": id_, "type": "function", "function": called} for id_, called in calls]
    return written if turn.tool_call_id is None else {**written, "tool_call_id": turn.tool_call_id}


def joined(outputs: Sequence[m.Output]) -> list[m.Value]:
    """The values of one output in order. In a pass of a loop of steps, consecutive texts are joined, and consecutive
    WAV pieces of one format into one file."""
    found: list[m.Value] = []
    for (kind, _), run in groupby(outputs, key=lambda output: (_kind(output.value), output.passes)):
        group = [output.value for output in run]
        if kind == TEXT:
            found.append(m.Small(value="".join(str(one.value) for one in group if isinstance(one, m.Small))))
            continue
        whole = None
        if kind == WAV and len(group) > 1:
            whole = wav.joined([one.data for one in group if isinstance(one, m.Blob)])
        found += group if whole is None else [m.Blob(data=whole)]
    return found


def is_early(value: m.Value) -> bool:
    """True for a value that an answer may begin with, before its run's end: it is worth a packet of its own, and isn't
    joined with those around it."""
    return size_of(value) >= LARGE_BYTES and _kind(value) not in _JOINED


def _kind(value: m.Value) -> str:
    match value:
        case m.Small(value=str()):
            return TEXT
        case m.Blob():
            return mime_of(value.data)
        case _:
            return ""


def size_of(value: m.Value) -> int:
    """Bytes of memory that a value keeps."""
    match value:
        case m.Blob() | m.InlineTensor():
            return len(value.data)
        case m.Small():
            return len(value.value) if isinstance(value.value, str) else 8
        case m.Many():
            return sum(size_of(item) for item in value.items)
        case m.Named():
            return sum(size_of(item) for item in value.items.values())
        case m.Conversation():
            parts = sum(size_of(part.value) for turn in value.turns for part in turn.parts)
            return parts + sum(map(len, value.tools))
        case _:
            return 0


def _written_small(value: str | bool | float, modality: str) -> dict[str, Any]:
    if isinstance(value, str):
        return {"type": TEXT, TEXT: value}
    return {"type": modality or "value", "value": value}


def _written_tensor(value: m.InlineTensor, modality: str, outlet: Outlet) -> dict[str, Any]:
    head: dict[str, Any] = {"type": modality or "tensor", "dtype": value.dtype, "shape": value.shape}
    count = prod(value.shape)
    if not outlet.numbers or value.dtype == "bfloat16" or count > MAX_TENSOR_VALUES:
        return {**head, **outlet.put("base64", value.data)}
    array = np.frombuffer(value.data, dtype=np.dtype(value.dtype)).reshape(value.shape)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return {**head, "data": [None if not np.isfinite(x) else float(x) for x in array.ravel()], "shape": [count]}
    return {**head, "data": array.tolist()}
