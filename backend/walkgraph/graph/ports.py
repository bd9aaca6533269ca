"""The type of the values on an edge: modality, dtype and symbolic shape, written `latents: float[n, 64]`.

A type may be its modality alone (`tokens`); dtype and shape are then open and match any. `list of image` is a list of
such values, which may differ in shape.
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

Modality = Literal[
    "text",  # str
    "messages",  # a conversation: turns with a role and parts
    "tokens",  # token ids
    "image",  # an encoded picture: PNG, JPEG or WebP bytes
    "pixels",  # a picture as a tensor
    "audio",  # encoded sound: WAV bytes
    "waveform",  # sound as a tensor
    "video",  # an encoded video: MP4 or WebM bytes
    "bytes",  # any other file, such as a ZIP archive
    "codes",  # discrete audio codes
    "latents",
    "embeddings",
    "features",
    "actions",
    "state",  # a robot's or a world's state vector
    "scalar",
    "flag",  # a boolean
    "tensor",  # anything dense
]
MODALITIES: tuple[str, ...] = get_args(Modality)
DTYPES = ("float", "int", "bool", "str", "bytes")

MEDIA = ("image", "audio", "video", "bytes", "messages")
"""Modalities whose values are not tensors or texts: they can't be stacked, joined or sliced."""

_TYPE = re.compile(
    r"^\s*(?P<many>list\s+of\s+)?(?P<modality>[a-z_]+)\s*(?::\s*(?P<dtype>[a-z]+)\s*(?:\[(?P<shape>[^\]]*)\])?)?\s*$"
)
_DIM = re.compile(r"^(?:[a-z_][a-z0-9_]*|\d+|\.\.\.)$")


@dataclass(frozen=True)
class PortType:
    modality: str
    dtype: str | None = None
    shape: tuple[str | int, ...] | None = None
    """Numbers are fixed sizes, names are symbols bound per Walk, `...` stands for any leading sizes."""
    many: bool = False
    """A list of values of this type."""

    def __str__(self) -> str:
        name = f"list of {self.modality}" if self.many else self.modality
        if self.dtype is None:
            return name
        if self.shape is None:
            return f"{name}: {self.dtype}"
        return f"{name}: {self.dtype}[{', '.join(str(d) for d in self.shape)}]"


def parse_type(text: str) -> PortType:
    """Read `modality`, `modality: dtype` or `modality: dtype[a, 64]`, each with or without `list of`; raises ValueError
    with advice."""
    match = _TYPE.match(text)
    if match is None:
        raise ValueError(f"`{text}` is not a port type; write `modality` or `modality: dtype[n, 64]`")
    modality, dtype, shape = match["modality"], match["dtype"], match["shape"]
    if modality not in MODALITIES:
        raise ValueError(f"`{modality}` is not a modality; use one of {', '.join(MODALITIES)}")
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"`{dtype}` is not a dtype; use one of {', '.join(DTYPES)}")
    return PortType(modality, dtype, None if shape is None else _dims(shape), many=match["many"] is not None)


def _dims(text: str) -> tuple[str | int, ...]:
    dims = [d.strip() for d in text.split(",")] if text.strip() else []
    for dim in dims:
        if not _DIM.match(dim):
            raise ValueError(f"`{dim}` is not a size; write a number, a name or `...`")
    return tuple(int(d) if d.isdigit() else d for d in dims)


def accepts(target: PortType, source: PortType) -> str | None:
    """None if a `source` value may enter a `target` port, otherwise a short reason."""
    if target.modality != source.modality:
        return f"`{source.modality}` does not fit `{target.modality}`"
    if target.many != source.many:
        return "a list does not fit a single value" if source.many else "a single value does not fit a list"
    if target.dtype and source.dtype and target.dtype != source.dtype:
        return f"dtype `{source.dtype}` does not fit `{target.dtype}`"
    if target.shape is None or source.shape is None or "..." in target.shape or "..." in source.shape:
        return None
    if len(target.shape) != len(source.shape):
        return f"shape {list(source.shape)} has {len(source.shape)} axes, expected {len(target.shape)}"
    for want, have in zip(target.shape, source.shape, strict=True):
        if isinstance(want, int) and isinstance(have, int) and want != have:
            return f"size {have} does not fit {want} in shape {list(target.shape)}"
    return None
