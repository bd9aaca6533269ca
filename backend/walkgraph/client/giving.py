"""Encode values for tasks: texts, files, pictures, sounds, arrays of any library."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from numbers import Number
from pathlib import Path
from typing import Any, cast

import msgspec
import pybase64

from walkgraph.client.values import Binary, Picture, Sound, Tensor, Turn

MEDIA = ("image", "audio", "video", "bytes")
OPTIONS = ("outputs", "session", "priority", "deadline", "stop", "record", "hold")
"""Options of a request, besides its inputs and parameters."""
PARTS = "parts"
MESSAGES = "messages"
"""The modality of conversations."""
FRAMED_NUMBERS = 64
"""Tensors with at least this many numbers are sent as bytes where possible, not as text."""
_SUFFIXES = {
    "image": {".png", ".jpg", ".jpeg", ".webp"},
    "audio": {".wav", ".flac", ".ogg", ".mp3", ".aac", ".m4a", ".opus"},
    "video": {".mp4", ".webm"},
    "text": {".txt", ".md"},
}


class Packing:
    """Encodes values as JSON, with media and tensors in frames beside it if `framing` is on."""

    def __init__(self, *, framing: bool) -> None:
        self.frames: list[bytes] = []
        self._framing = framing

    def media(self, modality: str, data: bytes) -> Any:
        if self._framing:
            return {"type": modality, "frame": self._framed(data)}
        return pybase64.b64encode(data).decode()

    def tensor(self, modality: str, given: Any) -> Any:
        import numpy as np

        array = np.asarray(given)
        if self._framing and array.size >= FRAMED_NUMBERS:
            plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            shape = [int(side) for side in array.shape]
            return {"type": modality, "dtype": array.dtype.name, "shape": shape, "frame": self._framed(plain.tobytes())}
        return {"type": modality, "data": array.tolist()}

    def _framed(self, data: bytes) -> int:
        self.frames.append(data)
        return len(self.frames) - 1


def request_of(declared: Mapping[str, Any], given: Mapping[str, Any], packing: Packing) -> dict[str, Any]:
    """The request body for a task's declaration and the keyword arguments of a call: inputs, parameters and options by
    name.

    Raises TypeError for a name that is none of them, and for a value that can't be sent.
    """
    inputs: dict[str, Any] = {}
    params: dict[str, Any] = {}
    body: dict[str, Any] = {"inputs": inputs, "params": params}
    for name, value in given.items():
        if name in declared["inputs"]:
            if value is not None:
                inputs[name] = value_of(value, declared["inputs"][name]["modality"], packing)
        elif name in declared["params"] or name == "seed":
            params[name] = _scalar(value)
        elif name == PARTS:
            inputs[PARTS] = [_part(part, packing) for part in value]
        elif name in OPTIONS:
            body[name] = value
        else:
            raise TypeError(_unknown(declared, name))
    return body


def packed(request: Mapping[str, Any], packing: Packing) -> dict[str, Any]:
    """A request whose inputs may be files, pictures or arrays. Values already in the service's format stay as they
    are."""
    inputs = request.get("inputs")
    if not isinstance(inputs, Mapping):
        return dict(request)
    named = cast(Mapping[str, Any], inputs)
    return {**request, "inputs": {name: value_of(value, None, packing) for name, value in named.items()}}


def value_of(value: Any, modality: str | None, packing: Packing) -> Any:
    """Encode one input, or a list of values for an input that takes many; `modality`: None if unknown.

    Raises TypeError for what can't be sent.
    """
    if modality == MESSAGES:
        return _conversation(value, packing)
    if isinstance(value, Turn):
        return _turn(value, packing)
    if modality in MEDIA and isinstance(value, str) and "." in value and not value.startswith("data:"):
        raise TypeError(f"a string is read as base64; for a file give its path: `Path({value[:80]!r})`")
    if value is None or isinstance(value, str | bool | int | float | Mapping):
        return cast(Any, value)
    if isinstance(value, list | tuple):
        items = cast(Sequence[Any], value)
        if all(isinstance(item, Number | list | tuple) for item in items):
            return [_number(item) for item in items]
        return [value_of(item, modality, packing) for item in items]
    if isinstance(value, Path):
        return _file(value, modality, packing)
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(cast(bytes, value))
        return data.decode() if modality == "text" else packing.media(modality or "bytes", data)
    if isinstance(value, Binary):
        return packing.media(modality or _kind_of(value), value.data)
    if _is_image(value):
        return packing.media("image", Picture.of(value).data)
    if isinstance(value, Tensor) or hasattr(value, "__array__"):
        return _array(value, modality, packing)
    raise TypeError(f"a {type(value).__name__} can't be sent; give a text, bytes, a path, a picture or an array")


def _number(value: Any) -> Any:
    """Plain numbers from nested lists that may hold NumPy's."""
    if isinstance(value, list | tuple):
        return [_number(item) for item in cast(Sequence[Any], value)]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    """The plain scalar behind a NumPy scalar; any other value unchanged."""
    return value if isinstance(value, str | bool | int | float) else getattr(value, "item", lambda: value)()


def _array(value: Any, modality: str | None, packing: Packing) -> Any:
    if modality == "image":
        return packing.media("image", Picture.of(value).data)
    if modality in MEDIA:
        raise TypeError(f"an array can't be sent as {modality}; give `Sound.of(samples, rate)`, bytes or a path")
    if modality is None:
        import numpy as np

        return np.asarray(value).tolist()
    return packing.tensor(modality, value)


def _file(path: Path, modality: str | None, packing: Packing) -> Any:
    kind = modality or _kind_of_file(path)
    if kind == "text":
        return path.read_text(encoding="utf-8")
    if kind in MEDIA:
        return packing.media(kind, path.read_bytes())
    if path.suffix == ".npy":
        import numpy as np

        return packing.tensor(kind, np.load(path, allow_pickle=False))
    return {"type": kind, "data": msgspec.json.decode(path.read_bytes())}


def _conversation(value: Any, packing: Packing) -> Any:
    """Encode a conversation: a list of `Turn` or of JSON's turns, whose content may hold files, pictures and sounds. A
    text is one turn of the user. `{"turns": ..., "tools": ...}` has functions that the answer may call."""
    if isinstance(value, Mapping) and "turns" in value:
        given = cast(Mapping[str, Any], value)
        return {**given, "turns": _conversation(given["turns"], packing)}
    if isinstance(value, str | Turn):
        value = [value]
    if not isinstance(value, list | tuple):
        raise TypeError(f"a conversation is a list of turns, not {type(cast(object, value)).__name__}")
    return [_turn(turn, packing) for turn in cast(Sequence[Any], value)]


def _turn(value: Any, packing: Packing) -> dict[str, Any]:
    if isinstance(value, str):
        return {"role": "user", "content": value}
    fields: dict[str, Any]
    if isinstance(value, Turn):
        fields = {"role": value.role, "content": value.content}
        fields |= {"tool_calls": list(value.tool_calls)} if value.tool_calls else {}
        fields |= {"tool_call_id": value.tool_call_id} if value.tool_call_id is not None else {}
    elif isinstance(value, Mapping):
        fields = dict(cast(Mapping[str, Any], value))
    else:
        raise TypeError(f"a turn is a `Turn`, a dict or a text, not {type(value).__name__}")
    content = fields.get("content")
    if content is None or isinstance(content, str):
        return fields
    parts = cast(Sequence[Any], content) if isinstance(content, list | tuple) else (content,)
    return {**fields, "content": [_part(part, packing) for part in parts]}


def _part(value: Any, packing: Packing) -> dict[str, Any]:
    """Encode one interleaved part, with its modality."""
    if isinstance(value, Mapping):
        return dict(cast(Mapping[str, Any], value))
    if isinstance(value, str):
        return {"type": "text", "text": value}
    kind = "image"
    if isinstance(value, Path):
        kind = _kind_of_file(value)
    elif isinstance(value, Binary):
        kind = _kind_of(value)
    found = value_of(value, kind, packing)
    if isinstance(found, dict):
        return cast(dict[str, Any], found)
    return {"type": kind, "text" if kind == "text" else "data": found}


def _kind_of(value: Binary) -> str:
    if isinstance(value, Picture):
        return "image"
    return "audio" if isinstance(value, Sound) else value.mime.partition("/")[0].replace("application", "bytes")


def _kind_of_file(path: Path) -> str:
    return next((kind for kind, suffixes in _SUFFIXES.items() if path.suffix.lower() in suffixes), "bytes")


def _is_image(value: Any) -> bool:
    """True for a Pillow image; there can be none unless Pillow has been imported."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def _unknown(declared: Mapping[str, Any], name: str) -> str:
    known = [*declared["inputs"], *declared["params"], "seed", PARTS, *OPTIONS]
    near = difflib.get_close_matches(name, known, n=1)
    advice = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(f'`{one}`' for one in known)}"
    return f"the task `{declared['name']}` has no input or parameter `{name}`; {advice}"
