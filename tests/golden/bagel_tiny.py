"""Tiny BAGELs in the public layout, with the pictures and requests from which the stored answers were made.

`make_bagel.py` gives them to the published code, the parity tests to ours. Everything follows from names and seeds, so
that only answers are stored. Widths are small; the rest (patches of 14, 16 pixels and 64 numbers a latent token,
tables of 70 and 64 cells a side) is the published model's.
"""

import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor

from walkgraph.layers.positions import sincos_grid

SEED = 20250520
LLM = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "rope_theta": 1000000.0,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 32768,
    "hidden_act": "silu",
    "model_type": "qwen2",
    "rope_scaling": None,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
}
VIT = {
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "num_channels": 3,
    "image_size": 980,
    "patch_size": 14,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
    "model_type": "siglip_vision_model",
}
WIDE_LLM = {**LLM, "hidden_size": 512, "intermediate_size": 640, "num_key_value_heads": 1}
WIDE_VIT = {**VIT, "hidden_size": 144, "intermediate_size": 208, "num_attention_heads": 2}
VAE = {"ch": 32, "ch_mult": [1, 1, 1, 2], "num_res_blocks": 1, "z_channels": 16, "downsample": 8}
CONFIG = {
    "model_type": "bagel",
    "latent_patch_size": 2,
    # As the published file, which says the default of a class: the table in the weights has 64 cells a side.
    "max_latent_size": 32,
    "vit_max_num_patch_per_side": 70,
    "connector_act": "gelu_pytorch_tanh",
    "interpolate_pos": False,
    "timestep_shift": 1.0,
    "vae_config": VAE,
}
POSITIONS = {"latent_pos_embed.pos_embed": 64, "vit_pos_embed.pos_embed": 70}
"""Tables of the weights that are computed, not drawn: cells a side."""

VAE_RULES = (320, 256, 16)
VIT_RULES = (280, 224, 14)
"""Largest side, smallest side, stride: of the published (1024, 512, 16) and (980, 224, 14), to be faster."""

MERGES = ["Ġ t", "h e", "Ġt he", "i n", "r e", "re d", "Ġ a", "Ġ c", "a t", "Ġc at", "e r", "Ġ re", "l l", "o n"]
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref|>", "<|vision_start|>", "<|vision_end|>")
TEXTS = (
    "a red cat",
    "Make the sky violet, and the cat's hat 12 cm taller!",
    "  two\n\nlines\tand   spaces  ",
    "naïve façade — 北京 🙂 e\u0301",
)


@dataclass(frozen=True)
class Asked:
    """A run: its parts in their order, and the parameters of our task."""

    task: str
    parts: Sequence[tuple[str, str]]
    """(`text`, the text) or (`image`, a name of `PICTURES`)."""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])


THOUGHT = 9
"""Tokens of a thought, whose cut is its end."""
_DRAW = {"steps": 8, "seed": 5, "shift": 3.0}
_SIZE = {"height": 256, "width": 272}
_OLD = {"renorm_min": 0.0, "cfg_interval_low": 0.4, "cfg_interval_high": 1.0}
_CHANGED = {"cfg_text_scale": 4.0, "cfg_img_scale": 2.0, "cfg_interval_low": 0.0, "renorm": "text_channel"}
_SYSTEM = {"think": True, "system_prompt": "Plan the red hat in your mind.", "max_tokens": THOUGHT, "temperature": 0.0}
CAT, SKY, HAT = (("text", TEXTS[0]), ("text", TEXTS[1]), ("text", "and a hat"))
SCENE, SMALL = ("image", "scene"), ("image", "small")
ASKED: dict[str, Asked] = {
    "plain": Asked("text_to_image", [CAT], {**_DRAW, **_SIZE, "cfg_text_scale": 1.0}),
    "caption": Asked("text_to_image", [CAT], {**_DRAW, **_SIZE, **_OLD, "cfg_text_scale": 4.0, "renorm": "global"}),
    "app": Asked("text_to_image", [CAT], {**_DRAW, **_SIZE, **_OLD, "cfg_text_scale": 4.0, "cfg_img_scale": 1.5}),
    "channel": Asked(
        "text_to_image",
        [CAT, SKY],
        {**_DRAW, **_SIZE, "cfg_text_scale": 7.0, "renorm": "channel", "renorm_min": 0.3, "cfg_interval_low": 0.2}
        | {"cfg_interval_high": 0.9},
    ),
    # The time of its last step lies on the interval's border: inside in doubles, outside in float32.
    "border": Asked("text_to_image", [CAT], {**_DRAW, **_SIZE, **_OLD, "shift": 4.0}),
    "planned": Asked("text_to_image", [CAT], {**_DRAW, **_SIZE, **_OLD, **_SYSTEM, "cfg_img_scale": 1.5}),
    "edit": Asked("edit", [SCENE, SKY], {**_DRAW, **_CHANGED}),
    "edit_global": Asked("edit", [SCENE, SKY], {**_DRAW, **_CHANGED, "renorm": "global", "renorm_min": 0.4}),
    "edit_text": Asked("edit", [SCENE, SKY], {**_DRAW, **_CHANGED, "cfg_img_scale": 1.0, "renorm_min": 0.6}),
    # Without the text's guidance, the pictures' scale changes nothing.
    "edit_plain": Asked("edit", [SCENE, SKY], {**_DRAW, **_CHANGED, "cfg_text_scale": 1.0}),
    "between": Asked("edit", [CAT, SCENE, SKY], {**_DRAW, **_CHANGED, "renorm": "channel"}),
    "many": Asked("edit", [SCENE, CAT, SMALL, HAT], {**_DRAW, **_CHANGED, **_SYSTEM}),
    "last": Asked("edit", [CAT, SMALL], {**_DRAW, **_CHANGED}),
    "tell": Asked("image_to_text", [SCENE, SKY], {"max_tokens": 16, "temperature": 0.0}),
    "reason": Asked("image_to_text", [SMALL, HAT, SCENE], {**_SYSTEM, "max_tokens": 16}),
}


@dataclass(frozen=True, eq=False)
class Model:
    name: str
    llm: Mapping[str, Any]
    vit: Mapping[str, Any]
    asked: tuple[str, ...]
    """The runs of `ASKED` that have answers."""

    @property
    def file(self) -> Path:
        return Path(__file__).parent / f"bagel_{self.name}.npz"


TINY = Model("tiny", LLM, VIT, tuple(ASKED))
WIDE = Model("wide", WIDE_LLM, WIDE_VIT, ("caption", "edit", "tell"))
"""Heads of 128 and 72 numbers, as the published ones: those that kernels of GPUs are made for."""
MODELS = {model.name: model for model in (TINY, WIDE)}
FORCED = [5, 90, 280, 17, 33, 201, 64, 9]
"""Tokens that an answer is made to begin with."""


def pictures() -> dict[str, bytes]:
    """Encoded pictures by name: `scene` is to be shrunk, `small` to be enlarged, and has alpha."""
    return {"scene": _encoded(_pixels(411, 373, 3, 1)), "small": _encoded(_pixels(200, 145, 4, 2))}


def _pixels(width: int, height: int, channels: int, seed: int) -> np.ndarray:
    """uint8 `[height, width, channels]`: slopes, edges and noise."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [(x * (c + 1) // 2 + y * (3 - c) + 90 * (((x // 23) + (y // 31)) % 2)) % 256 for c in range(channels)]
    noise = np.random.default_rng(seed).integers(-12, 13, (height, width, channels))
    return np.clip(np.stack(planes, -1) + noise, 0, 255).astype(np.uint8)


def _encoded(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def drawn(name: str, shape: Sequence[int]) -> Tensor:
    """float32 numbers of one tensor of the weights, by its public name. Nothing is 0 or 1 that could be left out."""
    digest = hashlib.blake2b(f"{SEED}:{name}".encode(), digest_size=7).digest()
    numbers = torch.randn(tuple(shape), generator=torch.Generator("cpu").manual_seed(int.from_bytes(digest, "big")))
    if len(shape) > 1:
        # What is read from a context weighs as much as the token itself, so that texts don't repeat one token.
        return numbers * (2.0 if "proj" in name else 1.0) / math.sqrt(math.prod(shape[1:]))
    # Sharp attention: an answer depends on single tokens of its context.
    usual = 2.0 if "q_norm" in name or "k_norm" in name else 1.0
    return numbers * 0.3 + (0.0 if name.endswith("bias") else usual)


def noise(height: int, width: int, seed: int) -> Tensor:
    """float32 `[height, width, 64]`: what a run of this seed begins with; sides in latent tokens."""
    return torch.randn(height, width, 64, generator=torch.Generator("cpu").manual_seed(seed))


@cache
def answers(model: Model = TINY) -> dict[str, np.ndarray]:
    """The results of the published code."""
    with np.load(model.file) as file:
        return dict(file)


def write_weights(folder: Path, model: Model = TINY) -> None:
    """`ema.safetensors` and `ae.safetensors`, with the names and shapes of the published code's state."""
    for stem in ("ema", "ae"):
        state: dict[str, Tensor] = {}
        for line in answers(model)[f"shapes/{stem}"].tolist():
            name, *shape = line.split(" ")
            sizes, side = [int(size) for size in shape], POSITIONS.get(name)
            state[name] = drawn(name, sizes) if side is None else sincos_grid(side, sizes[1])
        save_file(state, folder / f"{stem}.safetensors")


def write_folder(root: Path, model: Model = TINY) -> Path:
    """A whole folder, as a person downloads it, under a root of weights: `checkpoint:BAGEL-tiny`."""
    folder = root / f"BAGEL-{model.name}"
    folder.mkdir()
    write_config(folder, model)
    write_tokenizer(folder)
    write_weights(folder, model)
    return folder


def write_config(folder: Path, model: Model = TINY) -> None:
    for name, document in (("llm_config", model.llm), ("vit_config", model.vit), ("config", CONFIG)):
        (folder / f"{name}.json").write_text(json.dumps(document, indent=2))


def vocabulary() -> dict[str, int]:
    pieces = [*sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]
    return {piece: index for index, piece in enumerate(pieces)}


def write_tokenizer(folder: Path) -> None:
    """In the layout of the published model's slow tokenizer: `vocab.json`, `merges.txt`, `tokenizer_config.json`."""
    vocab = vocabulary()
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), "utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(MERGES) + "\n", "utf-8")
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    added = {str(len(vocab) + i): {"content": name, **flags} for i, name in enumerate(SPECIAL)}
    config = {
        "added_tokens_decoder": added,
        "additional_special_tokens": list(SPECIAL[1:]),
        "eos_token": SPECIAL[0],
        "pad_token": SPECIAL[0],
        "tokenizer_class": "Qwen2Tokenizer",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2))
