"""BAGEL: the published folder, and our own config of the same weights."""

import dataclasses
from collections.abc import Iterable, Iterator
from itertools import pairwise

from walkgraph.checkpoints.contents import Contents
from walkgraph.checkpoints.family import (
    Document,
    Family,
    Part,
    Published,
    gated,
    linear,
    norm,
    projections,
    siglip,
    tokenizer_faults,
)
from walkgraph.checkpoints.files import Shape
from walkgraph.checkpoints.flux_vae import VaeConfig
from walkgraph.models.bagel.config import FORMAT, LATENTS, BagelConfig, LlmConfig, read_bagel

_TIMES = 256
_GENERATION = "_moe_gen"


def _recognises(contents: Contents) -> bool:
    config = contents.config
    parts = {"llm_config.json", "vit_config.json"} <= contents.configs.keys()
    inside = {"llm_config", "vit_config"} <= config.keys()
    return config.get("format") == FORMAT or config.get("model_type") == "bagel" or parts or inside


def _parts(contents: Contents) -> list[Part]:
    config = read_bagel(contents.folder)
    return [Part("ema", dict(_model(config))), Part("ae", dict(_autoencoder(config.vae)))]


def _model(config: BagelConfig) -> Iterator[tuple[str, Shape]]:
    llm, vit = config.llm, config.vit
    table = (llm.vocab, llm.width)
    yield "language_model.model.embed_tokens.weight", table
    yield "language_model.lm_head.weight", table
    for expert in ("", _GENERATION):
        yield from norm(f"language_model.model.norm{expert}", llm.width, bias=False)
        for layer in range(llm.layers):
            yield from _layer(f"language_model.model.layers.{layer}", llm, expert)
    yield from linear("time_embedder.mlp.0", llm.width, _TIMES)
    yield from linear("time_embedder.mlp.2", llm.width, llm.width)
    yield from linear("vae2llm", llm.width, config.latent_channels)
    yield from linear("llm2vae", config.latent_channels, llm.width)
    yield LATENTS, (config.latent_side**2, llm.width)
    yield from siglip("vit_model.vision_model", vit, (3 * vit.patch**2,))
    yield from linear("connector.fc1", llm.width, vit.width)
    yield from linear("connector.fc2", llm.width, llm.width)
    yield "vit_pos_embed.pos_embed", (vit.side**2, llm.width)


def _layer(at: str, llm: LlmConfig, expert: str) -> Iterator[tuple[str, Shape]]:
    """Names and shapes of one expert's half of a layer."""
    yield from projections(at, llm, bias=True, suffix=expert)
    for part in ("q_norm", "k_norm"):
        yield from norm(f"{at}.self_attn.{part}{expert}", llm.head_dim, bias=False)
    yield from gated(f"{at}.mlp{expert}", llm.width, llm.hidden)
    for part in ("input_layernorm", "post_attention_layernorm"):
        yield from norm(f"{at}.{part}{expert}", llm.width, bias=False)


# ── the autoencoder ─────────────────────────────────────────────────────────────────────────────


def _autoencoder(vae: VaeConfig) -> Iterator[tuple[str, Shape]]:
    base, blocks, latents = vae.channels, vae.blocks, vae.latent_channels
    widths = [base * times for times in vae.multipliers]
    yield from _convolution("encoder.conv_in", base, 3)
    for level, (into, out) in enumerate(pairwise([base, *widths])):
        for block in range(blocks):
            yield from _resnet(f"encoder.down.{level}.block.{block}", into if block == 0 else out, out)
        if level < len(widths) - 1:
            yield from _convolution(f"encoder.down.{level}.downsample.conv", out, out)
    yield from _middle("encoder.mid", widths[-1])
    yield from norm("encoder.norm_out", widths[-1])
    yield from _convolution("encoder.conv_out", 2 * latents, widths[-1])
    yield from _convolution("decoder.conv_in", widths[-1], latents)
    yield from _middle("decoder.mid", widths[-1])
    into = widths[-1]
    for level, out in reversed(list(enumerate(widths))):
        for block in range(blocks + 1):
            yield from _resnet(f"decoder.up.{level}.block.{block}", into, out)
            into = out
        if level > 0:
            yield from _convolution(f"decoder.up.{level}.upsample.conv", out, out)
    yield from norm("decoder.norm_out", widths[0])
    yield from _convolution("decoder.conv_out", 3, widths[0])


def _convolution(name: str, out: int, into: int, side: int = 3) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (out, into, side, side)
    yield f"{name}.bias", (out,)


def _resnet(name: str, into: int, out: int) -> Iterator[tuple[str, Shape]]:
    yield from norm(f"{name}.norm1", into)
    yield from _convolution(f"{name}.conv1", out, into)
    yield from norm(f"{name}.norm2", out)
    yield from _convolution(f"{name}.conv2", out, out)
    if into != out:
        yield from _convolution(f"{name}.nin_shortcut", out, into, 1)


def _middle(name: str, width: int) -> Iterator[tuple[str, Shape]]:
    yield from _resnet(f"{name}.block_1", width, width)
    yield from norm(f"{name}.attn_1.norm", width)
    for part in ("q", "k", "v", "proj_out"):
        yield from _convolution(f"{name}.attn_1.{part}", width, width, 1)
    yield from _resnet(f"{name}.block_2", width, width)


# ── beside the weights ──────────────────────────────────────────────────────────────────────────


def _notes(contents: Contents) -> Iterable[str]:
    return tokenizer_faults(contents, plain=False)


def _adapt(document: Document, contents: Contents) -> Iterable[str]:
    """Set the sizes for pictures from our own config; the published model's are in the graph already."""
    if contents.config.get("format") == FORMAT:
        config = read_bagel(contents.folder)
        for node, rules in (("vae_picture", config.vae_pictures), ("vit_picture", config.vit_pictures)):
            document["nodes"][node]["params"] = dataclasses.asdict(rules)
    return ()


FAMILY = Family(
    name="bagel",
    title="BAGEL",
    graph="bagel",
    weights="bagel",
    kinds=("bagel", "BagelForConditionalGeneration"),
    recognises=_recognises,
    parts=_parts,
    adapt=_adapt,
    notes=_notes,
    published=(
        Published(
            "ByteDance-Seed/BAGEL-7B-MoT",
            "BAGEL-7B-MoT",
            29_200_000_000,
            ("ema.safetensors", "ae.safetensors", "*config.json", "vocab.json", "merges.txt", "tokenizer*.json"),
        ),
    ),
)
