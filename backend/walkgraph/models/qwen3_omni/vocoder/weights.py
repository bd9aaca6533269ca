"""The vocoder's weights: drawn at random, or read in the published layout."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Unpack

import torch
from torch import Tensor

from walkgraph.abi.operator import LoadContext
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.weights import Loading, Named, Names, load
from walkgraph.checkpoints.presets import preset
from walkgraph.errors import InvalidInput
from walkgraph.layers.causal_conv import packed
from walkgraph.models.qwen3_omni.vocoder.config import CODE2WAV, VocoderConfig, read_vocoder
from walkgraph.models.qwen3_omni.vocoder.model import Code2Wav, ResidualUnit, Snake

_ADDED = 0.3
_SCALED = {
    "self_attn.o_proj.weight": "self_attn_layer_scale.scale",
    "mlp.down_proj.weight": "mlp_layer_scale.scale",
    "pwconv2.weight": "gamma",
    "pwconv2.bias": "gamma",
}
"""Ends of the names of tensors -> the end of the name of the scale `[N]` of what they make."""


def vocoder_of(context: LoadContext) -> Code2Wav:
    """The network of a weight set, shared by its operators."""
    on: Loading = {"device": context.device, "dtype": context.dtype, "progress": context.progress}
    return context.once(
        Code2Wav,
        lambda name, seed: random_vocoder(preset(CODE2WAV, name), seed, device=context.device, dtype=context.dtype),
        lambda folder: load_vocoder(folder, "code2wav", read_vocoder(folder), **on),
    )


def load_vocoder(folder: Path, stem: str, config: VocoderConfig, **on: Unpack[Loading]) -> Code2Wav:
    """Load from the files of a stem; strict. Raises `NotFound` and `InvalidInput`."""
    model = load(lambda: Code2Wav(config), folder, stem, names=Names(regroup=scaled), **on)
    packed(model)
    return model


def random_vocoder(config: VocoderConfig, seed: int, *, device: torch.device, dtype: torch.dtype) -> Code2Wav:
    """Random weights. Snakes have e^alpha and e^beta near 1; residual units add less than their input, or rounding
    errors would grow with every stage."""
    model = drawn(lambda: Code2Wav(config), seed, device=device, dtype=dtype)
    for module in model.modules():
        if isinstance(module, Snake):
            module.alpha.sub_(1.0)
            module.beta.sub_(1.0)
        elif isinstance(module, ResidualUnit):
            module.conv2.conv.weight.mul_(_ADDED)
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
        elif (scale := _scale(name)) is not None:
            waiting[name] = tensor
            used.add(scale)
        else:
            yield name, tensor
    for name, tensor in waiting.items():
        scale = scales.get(_scale(name) or "")
        if scale is None:
            raise InvalidInput(f"the vocoder's `{name}` has no scale: missing tensor `{_scale(name)}`")
        if scale.shape != tensor.shape[:1]:
            raise InvalidInput(f"the vocoder's `{_scale(name)}` is {list(scale.shape)}, not {list(tensor.shape[:1])}")
        wide = scale.float().view(-1, *[1] * (tensor.dim() - 1))
        yield name, (tensor.float() * wide).to(tensor.dtype)
    yield from ((name, tensor) for name, tensor in scales.items() if name not in used)


def _scale(name: str) -> str | None:
    """The name of a tensor's scale; None for one without."""
    for end, scale in _SCALED.items():
        if name.endswith(end):
            return name.removesuffix(end) + scale
    return None
