"""Weights of V-JEPA 2-AC: a folder holds `encoder.safetensors` and `predictor.safetensors` (or indices and shards), and
where its sizes are not those of the published ViT-g, a `config.json` (`"format": "walkgraph/vjepa2@1"`).

Tensors have the names of the public checkpoint, with or without the prefixes `encoder.`, `predictor.`, `module.` and
`backbone.`; an encoder may also be in the layout of Transformers, whose files may hold another predictor, which is not
read. Pickles are not read: load the public `.pt` with torch and save its two dictionaries as these two files.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Unpack

import torch
from torch import nn

from walkgraph.abi.operator import LoadContext
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.weights import Loading, Named, Names, load
from walkgraph.models.vjepa2.config import Vjepa2Config, read_vjepa2
from walkgraph.models.vjepa2.model import Vjepa2Encoder, Vjepa2Predictor
from walkgraph.models.vjepa2.names import PARTS, encoder_names, public_names
from walkgraph.models.vjepa2.presets import vjepa2_config

M = TypeVar("M", bound=nn.Module)


def load_encoder(folder: Path, config: Vjepa2Config, **on: Unpack[Loading]) -> Vjepa2Encoder:
    """Load the encoder; strict. Raises `NotFound` and `InvalidInput`."""
    return load(lambda: Vjepa2Encoder(config), folder, "encoder", names=Names(regroup=_encoder_names), **on)


def load_predictor(folder: Path, config: Vjepa2Config, **on: Unpack[Loading]) -> Vjepa2Predictor:
    """Load the predictor, like `load_encoder`."""
    names = Names(regroup=partial(public_names, "predictor"))
    return load(lambda: Vjepa2Predictor(config), folder, "predictor", names=names, **on)


def encoder_of(context: LoadContext) -> Vjepa2Encoder:
    """The encoder of the weight set, drawn or read once."""
    return _part(context, Vjepa2Encoder, load_encoder)


def predictor_of(context: LoadContext) -> Vjepa2Predictor:
    return _part(context, Vjepa2Predictor, load_predictor)


def _part(context: LoadContext, kind: type[M], read: Callable[..., M]) -> M:
    config = context.once(Vjepa2Config, lambda name, seed: vjepa2_config(name), read_vjepa2)
    on: dict[str, Any] = {"device": context.device, "dtype": context.dtype}
    return context.once(
        kind,
        lambda name, seed: drawn(lambda: kind(config), seed, **on),
        lambda folder: read(folder, config, **on, progress=context.progress),
    )


def _encoder_names(found: Iterable[Named]) -> Iterator[Named]:
    """Names with queries, keys and values joined."""
    apart: dict[str, dict[str, torch.Tensor]] = {}
    for (name, part), tensor in encoder_names(found):
        if part is None:
            yield name, tensor
            continue
        whole = apart.setdefault(name, {})
        whole[part] = tensor
        if len(whole) == len(PARTS):
            yield name, torch.cat([whole.pop(kind) for kind in PARTS])
