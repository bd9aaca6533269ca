"""Names of V-JEPA 2-AC's tensors in files.

They are the public checkpoint's, with the prefixes of wrappers in a training run, or those of Transformers, where
queries, keys and values are separate.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

PARTS = ("query", "key", "value")
_WRAPPERS = ("module.", "backbone.")
_UNUSED = ("pos_embed",)
_OTHERS = {"embeddings.patch_embeddings.": "patch_embed.", "layernorm.": "norm."}
_LAYER = re.compile(r"layer\.(\d+)\.(.*)")
_ATTENTION = re.compile(r"(blocks\.\d+)\.attention\.(query|key|value)\.(weight|bias)")

V = TypeVar("V")


class EncoderName(NamedTuple):
    name: str
    """The network's name for the tensor."""
    part: str | None
    """One of `PARTS`, if the tensor is a third of the network's."""


def public_names(stem: str, found: Iterable[tuple[str, V]]) -> Iterator[tuple[str, V]]:
    """Names without the prefixes of wrappers, and without tensors that are not read."""
    prefixes = (f"{stem}.", *_WRAPPERS)
    for name, value in found:
        while (prefix := next((p for p in prefixes if name.startswith(p)), None)) is not None:
            name = name.removeprefix(prefix)
        if name not in _UNUSED:
            yield name, value


def encoder_names(found: Iterable[tuple[str, V]]) -> Iterator[tuple[EncoderName, V]]:
    """Names from either layout, without another predictor in the file."""
    for name, value in public_names("encoder", found):
        if name.startswith("predictor."):
            continue
        name = _LAYER.sub(r"blocks.\1.\2", name).replace(".attention.proj.", ".attn.proj.")
        name = next((new + name.removeprefix(old) for old, new in _OTHERS.items() if name.startswith(old)), name)
        part = _ATTENTION.fullmatch(name)
        yield (EncoderName(f"{part[1]}.attn.qkv.{part[3]}", part[2]) if part else EncoderName(name, None)), value
