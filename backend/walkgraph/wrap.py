"""Models of one's own as components, without operators of the engine. A plug-in's file imports it; no torch.

    @wrap.module
    class Denoise(nn.Module): ...

    embed = wrap.transformers("BertModel", inputs={...}, outputs={...}, description="Embeds text.")
    detect = wrap.onnx("model.onnx", inputs={...}, outputs={...}, description="Finds cats.")

The service reads these lines from the source, so their arguments are written out. Workers load the weights: safetensors
or ONNX, from a folder under the checkpoint roots. Formats whose loaders run code of the file are never loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

__all__ = ["Module", "Onnx", "Transformers", "module", "onnx", "transformers"]

C = TypeVar("C", bound=type)

UNSAFE = {
    ".pt2": "an exported program of torch",
    ".pt": "a pickle of torch",
    ".pth": "a pickle of torch",
    ".bin": "a pickle of torch",
    ".ckpt": "a pickle of torch",
    ".pkl": "a pickle",
    ".pickle": "a pickle",
    ".ts": "a TorchScript program",
    ".torchscript": "a TorchScript program",
}
"""Endings of files whose loaders unpickle, which runs code of the file -> what they are."""
_FILE = re.compile(r"[\w\-][\w.\-]*\Z")
_CLASS = re.compile(r"[A-Z]\w*\Z")
_ATTENTION = ("sdpa", "eager")


def refused(name: str) -> str | None:
    """Why a file is never loaded, in a sentence; None for one that may be."""
    for ending, what in UNSAFE.items():
        if name.lower().endswith(ending):
            return (
                f"`{name}` is {what}: loading it runs code that is in the file, so it is never loaded; save the "
                "tensors as safetensors, or export the model as ONNX"
            )
    return None


@dataclass(frozen=True, kw_only=True)
class Module:
    """A class on `torch.nn.Module`."""

    files: str | None = None
    """The stem of its safetensors files in the folder of its weights; None: all of them."""


@dataclass(frozen=True, kw_only=True)
class Transformers:
    """A model that the package `transformers` has."""

    model: str
    """The name of its class: `BertModel`, `AutoModel`."""
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Argument of the model -> type of the port, without a batch axis."""
    outputs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Field of what it returns -> type of the port."""
    description: str = ""
    attention: str = "sdpa"


@dataclass(frozen=True, kw_only=True)
class Onnx:
    """An ONNX file."""

    file: str
    """Its name in the folder of its weights."""
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    outputs: Mapping[str, str] = field(default_factory=dict[str, str])
    description: str = ""


@overload
def module(made: C, /) -> C: ...
@overload
def module(*, files: str | None = None) -> Callable[[C], C]: ...
def module(made: Any = None, /, *, files: str | None = None) -> Any:
    """Makes a class on `torch.nn.Module` a component. Its `forward` gets and returns tensors with a batch axis in
    front; the keyword arguments of `__init__` become parameters that are read when it is loaded."""
    given_module(files=files)
    return made if made is not None else lambda later: later


def given_module(*, files: str | None = None) -> Module:
    """Raises ValueError, in words for the author, as the other two do."""
    if files is not None:
        _check_file(files)
    return Module(files=files)


def transformers(
    model: str,
    /,
    *,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    description: str,
    attention: str = "sdpa",
) -> Transformers:
    """A model of `transformers` by the name of its class. Its config and its safetensors are in one folder under the
    checkpoint roots; no code of the folder runs, and nothing is fetched."""
    if not _CLASS.match(model):
        raise ValueError(f"`{model}` is no name of a class in `transformers`, such as `BertModel`")
    if attention not in _ATTENTION:
        raise ValueError("`attention` is `sdpa` or `eager`")
    return Transformers(model=model, inputs=inputs, outputs=outputs, description=description, attention=attention)


def onnx(file: str, /, *, inputs: Mapping[str, str], outputs: Mapping[str, str], description: str) -> Onnx:
    """An ONNX file in a folder under the checkpoint roots, run by `onnxruntime` where that is installed."""
    _check_file(file)
    if not file.endswith(".onnx"):
        raise ValueError(f"`{file}` doesn't end with `.onnx`")
    return Onnx(file=file, inputs=inputs, outputs=outputs, description=description)


def _check_file(name: str) -> None:
    if why := refused(name):
        raise ValueError(why)
    if not _FILE.match(name) or ".." in name:
        raise ValueError(f"`{name}` is no name of a file; name one in the folder of the weights, without a path")
