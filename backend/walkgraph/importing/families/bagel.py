"""BAGEL: the published folder, and our own config of the same weights."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from math import isqrt
from typing import Any

from walkgraph.importing.contents import Contents, Shape
from walkgraph.importing.family import Document, Family, Part, gated, linear, norm, section, siglip, whole

_OWN = "walkgraph/bagel@1"
_VAE: Mapping[str, Any] = {"channels": 128, "multipliers": [1, 2, 4, 4], "blocks": 2, "latent_channels": 16}
_LATENTS = "latent_pos_embed.pos_embed"
_SIDE, _PATCH, _TIMES = 64, 2, 256
_GENERATION = "_moe_gen"


def _recognises(contents: Contents) -> bool:
    config = contents.config
    parts = {"llm_config.json", "vit_config.json"} <= contents.configs.keys()
    inside = {"llm_config", "vit_config"} <= config.keys()
    return config.get("format") == _OWN or config.get("model_type") == "bagel" or parts or inside


def _sizes(contents: Contents) -> Mapping[str, Any]:
    """Our own form of either."""
    own = contents.config
    if own.get("format") == _OWN:
        return own
    llm, vit = (_part(contents, name) for name in ("llm_config", "vit_config"))
    vae = section(own, "vae_config") if own.get("vae_config") else dict[str, Any]()
    published = {
        "channels": "ch",
        "multipliers": "ch_mult",
        "blocks": "num_res_blocks",
        "latent_channels": "z_channels",
    }
    width, heads, patch = whole(llm, "hidden_size"), whole(llm, "num_attention_heads"), whole(vit, "patch_size")
    return {
        "llm": {
            "width": width,
            "hidden": whole(llm, "intermediate_size"),
            "layers": whole(llm, "num_hidden_layers"),
            "heads": heads,
            "kv_heads": whole(llm, "num_key_value_heads"),
            "head_dim": whole(llm, "head_dim", width // heads),
            "vocab": whole(llm, "vocab_size"),
        },
        "vit": {
            "width": whole(vit, "hidden_size"),
            "hidden": whole(vit, "intermediate_size"),
            # The last layer of the published encoder is not used, and not in the checkpoint.
            "layers": whole(vit, "num_hidden_layers") - 1,
            "patch": patch,
            "side": whole(vit, "image_size", 70 * patch) // patch,
        },
        "vae": {name: vae.get(key, _VAE[name]) for name, key in published.items()},
        "latent_patch": own.get("latent_patch_size", _PATCH),
        "latent_side": _latent_side(contents),
    }


def _part(contents: Contents, name: str) -> Mapping[str, Any]:
    return contents.configs.get(f"{name}.json") or section(contents.config, name)


def _latent_side(contents: Contents) -> int:
    """Of the table of latent positions, as it is in the weights: the published `max_latent_size` says less."""
    table = contents.weights.get("ema", {}).get(_LATENTS)
    return _SIDE if table is None or not table.shape else isqrt(table.shape[0])


def _parts(contents: Contents) -> list[Part]:
    sizes = _sizes(contents)
    return [Part("ema", dict(_model(sizes))), Part("ae", dict(_autoencoder(section(sizes, "vae"))))]


def _model(sizes: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    llm, vit, vae = (section(sizes, key) for key in ("llm", "vit", "vae"))
    width, seen, patch, side = whole(llm, "width"), whole(vit, "width"), whole(vit, "patch"), whole(vit, "side")
    latent = whole(vae, "latent_channels") * whole(sizes, "latent_patch", _PATCH) ** 2
    table = (whole(llm, "vocab"), width)
    yield "language_model.model.embed_tokens.weight", table
    yield "language_model.lm_head.weight", table
    for expert in ("", _GENERATION):
        yield from norm(f"language_model.model.norm{expert}", width, bias=False)
        for layer in range(whole(llm, "layers")):
            yield from _layer(f"language_model.model.layers.{layer}", llm, expert)
    yield from linear("time_embedder.mlp.0", width, _TIMES)
    yield from linear("time_embedder.mlp.2", width, width)
    yield from linear("vae2llm", width, latent)
    yield from linear("llm2vae", latent, width)
    yield _LATENTS, (whole(sizes, "latent_side") ** 2, width)
    tower, pixels = "vit_model.vision_model", (3 * patch * patch,)
    yield from siglip(tower, seen, whole(vit, "hidden"), whole(vit, "layers"), pixels, side * side)
    yield from linear("connector.fc1", width, seen)
    yield from linear("connector.fc2", width, width)
    yield "vit_pos_embed.pos_embed", (side * side, width)


def _layer(at: str, llm: Mapping[str, Any], expert: str) -> Iterator[tuple[str, Shape]]:
    """One expert's half."""
    width, head = whole(llm, "width"), whole(llm, "head_dim")
    queries, keys = whole(llm, "heads") * head, whole(llm, "kv_heads") * head
    for part, out in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
        yield from linear(f"{at}.self_attn.{part}{expert}", out, width)
    yield from linear(f"{at}.self_attn.o_proj{expert}", width, queries, bias=False)
    for part in ("q_norm", "k_norm"):
        yield from norm(f"{at}.self_attn.{part}{expert}", head, bias=False)
    yield from gated(f"{at}.mlp{expert}", width, whole(llm, "hidden"))
    for part in ("input_layernorm", "post_attention_layernorm"):
        yield from norm(f"{at}.{part}{expert}", width, bias=False)


# ── the autoencoder ─────────────────────────────────────────────────────────────────────────────


def _autoencoder(vae: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    base, blocks, latents = (whole(vae, key) for key in ("channels", "blocks", "latent_channels"))
    widths = [base * int(times) for times in vae["multipliers"]]
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
    apart = ("vocab.json", "merges.txt", "tokenizer_config.json")
    if not contents.has("tokenizer.json") and not all(contents.has(name) for name in apart):
        yield f"it has no tokenizer: put `tokenizer.json`, or all of {', '.join(f'`{name}`' for name in apart)}, there"


def _adapt(document: Document, contents: Contents) -> Iterable[str]:
    """Our own config says how pictures are resized; the published model's is in the graph."""
    for node, rules in (("vae_picture", "vae_pictures"), ("vit_picture", "vit_pictures")):
        if rules in contents.config:
            document["nodes"][node]["params"] = dict(section(contents.config, rules))
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
)
