"""Names and shapes of the tensors of each part, without the part's prefix, as their configs require them."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from walkgraph.checkpoints.family import gated, language_model, linear, norm, projections
from walkgraph.checkpoints.files import Shape
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.models.qwen3_omni.config import OmniConfig
from walkgraph.models.qwen3_omni.hearing.config import AudioConfig
from walkgraph.models.qwen3_omni.parts import (
    AUDIO,
    CODE2WAV,
    CODE_PREDICTOR,
    PREFIXES,
    PROJECTION,
    TALKER,
    THINKER,
    VISION,
)
from walkgraph.models.qwen3_omni.seeing.config import VisionConfig
from walkgraph.models.qwen3_omni.talker.tensors import predictor_tensors, projection_tensors, talker_tensors
from walkgraph.models.qwen3_omni.vocoder.config import VocoderConfig

Tensors = Iterator[tuple[str, Shape]]


def published_tensors(config: OmniConfig, audio: AudioConfig, vision: VisionConfig) -> Mapping[str, Shape]:
    """All tensors, by their names in the published layout."""
    parts: dict[str, Tensors] = {
        AUDIO: _audio(audio),
        VISION: _vision(vision),
        THINKER: iter(language_model(config.thinker.llm).expected.items()),
    }
    if config.talker is not None:
        parts[TALKER] = talker_tensors(config.talker)
        parts[PROJECTION] = projection_tensors(config.talker)
        parts[CODE_PREDICTOR] = predictor_tensors(config.talker)
    if config.code2wav is not None:
        parts[CODE2WAV] = _vocoder(config.code2wav)
    return {f"{PREFIXES[part]}{name}": shape for part, tensors in parts.items() for name, shape in tensors}


def _audio(config: AudioConfig) -> Tensors:
    width, channels = config.width, config.channels
    for index, into in enumerate((1, channels, channels), 1):
        yield from _convolution(f"conv2d{index}", channels, into, 3, 3)
    yield from linear("conv_out", width, channels * config.bands, bias=False)
    for layer in range(config.layers):
        at = f"layers.{layer}"
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from linear(f"{at}.self_attn.{part}", width, width)
        yield from linear(f"{at}.fc1", config.hidden, width)
        yield from linear(f"{at}.fc2", width, config.hidden)
        for part in ("self_attn_layer_norm", "final_layer_norm"):
            yield from norm(f"{at}.{part}", width)
    yield from norm("ln_post", width)
    yield from linear("proj1", width, width)
    yield from linear("proj2", config.out, width)


# ── pictures ────────────────────────────────────────────────────────────────────────────────────


def _vision(config: VisionConfig) -> Tensors:
    width = config.width
    yield from _convolution("patch_embed.proj", width, 3, config.frames, config.patch, config.patch)
    yield "pos_embed.weight", (config.side**2, width)
    for layer in range(config.layers):
        at = f"blocks.{layer}"
        yield from linear(f"{at}.attn.qkv", 3 * width, width)
        yield from linear(f"{at}.attn.proj", width, width)
        yield from linear(f"{at}.mlp.linear_fc1", config.hidden, width)
        yield from linear(f"{at}.mlp.linear_fc2", width, config.hidden)
        for part in ("norm1", "norm2"):
            yield from norm(f"{at}.{part}", width)
    yield from _merger("merger", config, width)
    for index in range(len(config.deepstack)):
        yield from _merger(f"merger_list.{index}", config, width * config.merge**2)


def _merger(at: str, config: VisionConfig, normed: int) -> Tensors:
    joined = config.width * config.merge**2
    yield from norm(f"{at}.ln_q", normed)
    yield from linear(f"{at}.mlp.0", joined, joined)
    yield from linear(f"{at}.mlp.2", config.out, joined)


# ── speech ──────────────────────────────────────────────────────────────────────────────────────


def _vocoder(config: VocoderConfig) -> Tensors:
    width = config.width
    yield "code_embedding.weight", (config.codebook * config.groups, width)
    layers = LanguageConfig(
        width=width,
        hidden=config.hidden,
        layers=config.layers,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        vocab=1,
    )
    for layer in range(config.layers):
        at = f"pre_transformer.layers.{layer}"
        yield from projections(at, layers, bias=False)
        yield from gated(f"{at}.mlp", width, config.hidden)
        for part in ("input_layernorm", "post_attention_layernorm"):
            yield from norm(f"{at}.{part}", width, bias=False)
        for part in ("self_attn_layer_scale", "mlp_layer_scale"):
            yield f"{at}.{part}.scale", (width,)
    yield from norm("pre_transformer.norm", width, bias=False)
    for index, ratio in enumerate(config.ratios):
        yield from _transposed(f"upsample.{index}.0.conv", width, width, ratio)
        yield from _next(f"upsample.{index}.1", width)
    yield from _convolution("decoder.0.conv", config.decoder_width, width, 7)
    for stage, (into, out) in enumerate(pairwise(config.widths), 1):
        yield from _stage(f"decoder.{stage}.block", into, out, config.rates[stage - 1])
    last = len(config.rates) + 1
    yield from _snake(f"decoder.{last}", config.widths[-1])
    yield from _convolution(f"decoder.{last + 1}.conv", 1, config.widths[-1], 7)


def _next(at: str, width: int) -> Tensors:
    yield from _convolution(f"{at}.dwconv.conv", width, 1, 7)
    yield from norm(f"{at}.norm", width)
    yield from linear(f"{at}.pwconv1", 4 * width, width)
    yield from linear(f"{at}.pwconv2", width, 4 * width)
    yield f"{at}.gamma", (width,)


def _stage(at: str, into: int, out: int, rate: int) -> Tensors:
    yield from _snake(f"{at}.0", into)
    yield from _transposed(f"{at}.1.conv", into, out, 2 * rate)
    for unit in (2, 3, 4):
        for index, taps in ((1, 7), (2, 1)):
            yield from _snake(f"{at}.{unit}.act{index}", out)
            yield from _convolution(f"{at}.{unit}.conv{index}.conv", out, out, taps)


def _snake(at: str, width: int) -> Tensors:
    yield f"{at}.alpha", (width,)
    yield f"{at}.beta", (width,)


def _convolution(at: str, out: int, into: int, *taps: int) -> Tensors:
    yield f"{at}.weight", (out, into, *taps)
    yield f"{at}.bias", (out,)


def _transposed(at: str, into: int, out: int, taps: int) -> Tensors:
    yield f"{at}.weight", (into, out, taps)
    yield f"{at}.bias", (out,)
