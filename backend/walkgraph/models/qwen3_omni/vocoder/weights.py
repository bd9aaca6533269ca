"""The vocoder's weights: drawn at random, or read in the published layout."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Unpack

import torch
from torch import Tensor

from walkgraph.abi.operator import LoadContext
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.weights import Loading, Named, Names, load
from walkgraph.errors import InvalidInput, Refused
from walkgraph.layers.sound.causal_conv import packed
from walkgraph.layers.sound.snake_conv import Snake
from walkgraph.models.qwen3_omni.config import OmniConfig, read_omni
from walkgraph.models.qwen3_omni.parts import CODE2WAV, STEM, own_name
from walkgraph.models.qwen3_omni.presets import omni_config
from walkgraph.models.qwen3_omni.vocoder.config import VocoderConfig
from walkgraph.models.qwen3_omni.vocoder.model import Code2Wav, ResidualUnit

_ADDED, _LOUDNESS = 0.1, 0.5
_SCALED = {
    "self_attn.o_proj.weight": "self_attn_layer_scale.scale",
    "mlp.down_proj.weight": "mlp_layer_scale.scale",
    "pwconv2.weight": "gamma",
    "pwconv2.bias": "gamma",
}
"""Ends of the names of tensors -> the end of the name of the scale `[N]` of what they make."""


def vocoder_of(context: LoadContext) -> Code2Wav:
    """The network of a weight set, shared by its operators. Raises `Refused` for a model without one."""
    on: Loading = {"device": context.device, "dtype": context.dtype, "progress": context.progress}
    config = _speaking(context.once(OmniConfig, lambda name, seed: omni_config(name), read_omni))
    return context.once(
        Code2Wav,
        lambda name, seed: random_vocoder(config, seed, device=context.device, dtype=context.dtype),
        lambda folder: load_vocoder(folder, config, **on),
    )


def load_vocoder(folder: Path, config: VocoderConfig, **on: Unpack[Loading]) -> Code2Wav:
    """Load the vocoder of a published folder; strict. Raises `NotFound` and `InvalidInput`."""
    names = Names(rename=own_name(CODE2WAV), regroup=scaled)
    model = load(lambda: Code2Wav(config), folder, STEM, names=names, **on)
    packed(model)
    return model


def random_vocoder(config: VocoderConfig, seed: int, *, device: torch.device, dtype: torch.dtype) -> Code2Wav:
    """Random weights. Snakes have e^alpha and e^beta near 1; residual units add less than their input, or rounding
    errors would grow with every stage; few samples are cut off at -1 and 1."""
    model = drawn(lambda: Code2Wav(config), seed, device=device, dtype=dtype)
    for module in model.modules():
        if isinstance(module, Snake):
            module.alpha.sub_(1.0)
            module.beta.sub_(1.0)
        elif isinstance(module, ResidualUnit):
            module.conv2.conv.weight.mul_(_ADDED)
    model.decoder[-1].get_submodule("conv").get_parameter("weight").mul_(_LOUDNESS)
    packed(model)
    return model


def scaled(tensors: Iterable[Named]) -> Iterator[Named]:
    """Multiply scales into the weights and biases before them, whatever the order of the tensors. Raises InvalidInput
    for one without its scale; a scale without them is passed on, for the loader to report."""
    scales: dict[str, Tensor] = {}
    waiting: dict[str, Tensor] = {}
    used: set[str] = set()
    for name, tensor in tensors:
        if name.endswith(tuple(_SCALED.values())):
            scales[name] = tensor
        elif (scale := scale_of(name)) is not None:
            waiting[name] = tensor
            used.add(scale)
        else:
            yield name, tensor
    for name, tensor in waiting.items():
        scale = scales.get(scale_of(name) or "")
        if scale is None:
            raise InvalidInput(f"the vocoder's `{name}` has no scale: missing tensor `{scale_of(name)}`")
        if scale.shape != tensor.shape[:1]:
            raise InvalidInput(f"the vocoder's `{scale_of(name)}` is {list(scale.shape)}, not {list(tensor.shape[:1])}")
        wide = scale.float().view(-1, *[1] * (tensor.dim() - 1))
        yield name, (tensor.float() * wide).to(tensor.dtype)
    yield from ((name, tensor) for name, tensor in scales.items() if name not in used)


def scale_of(name: str) -> str | None:
    """The name of a tensor's scale; None for one without."""
    for end, scale in _SCALED.items():
        if name.endswith(end):
            return name.removesuffix(end) + scale
    return None


def _speaking(config: OmniConfig) -> VocoderConfig:
    if config.code2wav is None:
        raise Refused("this model has no vocoder and doesn't speak; take its nodes for speech out of the graph")
    return config.code2wav
