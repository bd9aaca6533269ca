"""BAGEL: a mixture of two experts with a vision tower and an autoencoder.

A folder holds `ema` and `ae`, and either our own `config.json` (`"format": "walkgraph/bagel@1"`) or the published
files: `llm_config.json`, `vit_config.json`, a `config.json` that may hold both of them, and the tokenizer.
"""

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path

from walkgraph.checkpoints import limits
from walkgraph.checkpoints.decoder import DecoderShape, DecoderSizes, rope_base, rope_kind, rope_of, sizes_of
from walkgraph.checkpoints.fields import Fields, described, read_object, read_optional
from walkgraph.checkpoints.files import stems, tensors
from walkgraph.checkpoints.flux_vae import VaeConfig
from walkgraph.checkpoints.pictures import PictureRules
from walkgraph.checkpoints.siglip import SiglipConfig
from walkgraph.checkpoints.tokenizer import added_tokens
from walkgraph.errors import InvalidInput, NotFound

FORMAT = "walkgraph/bagel@1"
LATENTS = "latent_pos_embed.pos_embed"
_CHANNELS, _LEVELS, _TIMES, _BLOCKS, _GROUPS = 2**14, 8, 64, 64, 1024
_LATENT_CHANNELS, _LATENT_PATCH = 1024, 16
_PIXELS = 2**16
"""The most pixels along a picture's side."""
_SHIFT = 1e6
_GELU = "gelu_pytorch_tanh"
_EDGES = {"bos": "<|im_start|>", "eos": "<|im_end|>", "boi": "<|vision_start|>", "eoi": "<|vision_end|>"}


@dataclass(frozen=True, kw_only=True)
class LlmConfig(DecoderSizes):
    rope_theta: float = 1e6
    norm_eps: float = 1e-6

    @property
    def shape(self) -> DecoderShape:
        return self.layer(qkv_bias=True, qk_norm=True)


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    bos: int
    eos: int
    boi: int
    eoi: int


@dataclass(frozen=True, kw_only=True)
class BagelConfig:
    llm: LlmConfig
    vit: SiglipConfig
    vae: VaeConfig
    tokens: SpecialTokens
    vit_pictures: PictureRules
    vae_pictures: PictureRules
    latent_side: int
    """Side of the table of latent positions, which is that of the largest picture, in latent tokens."""
    latent_patch: int = 2

    def __post_init__(self) -> None:
        if max(self.tokens.bos, self.tokens.eos, self.tokens.boi, self.tokens.eoi) >= self.llm.vocab:
            raise ValueError(f"special tokens must lie below `llm.vocab` {self.llm.vocab}")
        if self.vae_pictures.stride != self.pixels_per_token or self.vit_pictures.stride != self.vit.patch:
            raise ValueError("picture strides must be the ViT's patch and the pixels per latent token")

    @property
    def latent_channels(self) -> int:
        """Width of one latent token (64 in the published model)."""
        return self.latent_patch**2 * self.vae.latent_channels

    @property
    def pixels_per_token(self) -> int:
        """Pixels along a latent token's side (16 in the published model)."""
        return self.latent_patch * self.vae.downsample

    def latent_grid(self, width: int, height: int) -> tuple[int, int]:
        """(rows, columns) of latent tokens of a picture of this size in pixels."""
        step = self.pixels_per_token
        if width % step or height % step or max(width, height) > self.latent_side * step:
            raise ValueError(f"picture sides must be multiples of {step}, at most {self.latent_side * step} pixels")
        return height // step, width // step


BAGEL_7B_MOT = BagelConfig(
    llm=LlmConfig(width=3584, hidden=18944, layers=28, heads=28, kv_heads=4, head_dim=128, vocab=152064),
    vit=SiglipConfig(width=1152, hidden=4304, layers=26, heads=16, patch=14, side=70),
    vae=VaeConfig(channels=128, multipliers=(1, 2, 4, 4), blocks=2, latent_channels=16, shift=0.1159, scale=0.3611),
    tokens=SpecialTokens(bos=151644, eos=151645, boi=151652, eoi=151653),
    vit_pictures=PictureRules(min_side=224, max_side=980, stride=14),
    vae_pictures=PictureRules(min_side=512, max_side=1024, stride=16),
    latent_side=64,
)
"""BAGEL-7B-MoT as published: 14.6 billion parameters."""


def read_bagel(folder: Path) -> BagelConfig:
    """The config of a checkpoint folder; raises InvalidInput or NotFound with what is wrong."""
    config = Fields(read_optional(folder / "config.json"))
    try:
        return _own(config) if config.values.get("format") == FORMAT else _published(folder, config)
    except NotFound:
        raise
    except (InvalidInput, ValueError) as error:
        raise described("a BAGEL model", folder, error) from None


def bagel_json(config: BagelConfig) -> str:
    """The JSON that `read_bagel` reads."""
    return json.dumps({"format": FORMAT, **dataclasses.asdict(config)}, indent=2) + "\n"


# ── our own form ────────────────────────────────────────────────────────────────────────────────


def _own(config: Fields) -> BagelConfig:
    parts = ("llm", "vit", "vae", "tokens", "vit_pictures", "vae_pictures")
    config.only("format", *parts, "latent_side", "latent_patch")
    llm, vit, vae, tokens, seen, drawn = (config.section(part) for part in parts)
    return BagelConfig(
        llm=_own_llm(llm),
        vit=SiglipConfig.own(vit),
        vae=_own_vae(vae),
        tokens=_own_tokens(tokens),
        vit_pictures=_own_rules(seen),
        vae_pictures=_own_rules(drawn),
        latent_side=config.whole("latent_side", limits.SIDE),
        latent_patch=config.whole("latent_patch", _LATENT_PATCH, default=BagelConfig.latent_patch),
    )


def _own_llm(llm: Fields) -> LlmConfig:
    sizes = ("width", "hidden", "layers", "heads", "kv_heads", "head_dim", "vocab")
    llm.only(*sizes, "rope_theta", "norm_eps")
    most = (limits.WIDTH, limits.HIDDEN, limits.LAYERS, limits.HEADS, limits.HEADS, limits.HEAD_DIM, limits.VOCAB)
    return LlmConfig(
        **{key: llm.whole(key, bound) for key, bound in zip(sizes, most, strict=True)},
        rope_theta=llm.number("rope_theta", limits.BASE, default=LlmConfig.rope_theta),
        norm_eps=llm.number("norm_eps", limits.EPS, default=LlmConfig.norm_eps),
    )


def _own_vae(vae: Fields) -> VaeConfig:
    vae.only("channels", "multipliers", "blocks", "latent_channels", "shift", "scale", "norm_groups")
    return VaeConfig(
        channels=vae.whole("channels", _CHANNELS),
        multipliers=vae.wholes("multipliers", _TIMES, _LEVELS),
        blocks=vae.whole("blocks", _BLOCKS),
        latent_channels=vae.whole("latent_channels", _LATENT_CHANNELS),
        shift=vae.number("shift", _SHIFT, least=-_SHIFT),
        scale=vae.number("scale", _SHIFT),
        norm_groups=vae.whole("norm_groups", _GROUPS, default=VaeConfig.norm_groups),
    )


def _own_tokens(tokens: Fields) -> SpecialTokens:
    tokens.only(*_EDGES)
    return SpecialTokens(**{key: tokens.whole(key, limits.VOCAB, least=0) for key in _EDGES})


def _own_rules(rules: Fields) -> PictureRules:
    rules.only("min_side", "max_side", "stride", "max_pixels")
    sides = {key: rules.whole(key, _PIXELS) for key in ("min_side", "max_side", "stride")}
    return PictureRules(**sides, max_pixels=rules.whole("max_pixels", _PIXELS**2, default=PictureRules.max_pixels))


# ── the published form ──────────────────────────────────────────────────────────────────────────


def _published(folder: Path, own: Fields) -> BagelConfig:
    """Read the sizes from the published files, with the published model's values as defaults. Refuses settings under
    which the same weights would mean another model."""
    base, llm, vit = BAGEL_7B_MOT, _part(folder, own, "llm_config"), _part(folder, own, "vit_config")
    own.word("connector_act", (_GELU,), _GELU)
    if own.flag("interpolate_pos"):
        raise InvalidInput("`interpolate_pos` is true, and only false can be run")
    return dataclasses.replace(
        base,
        llm=_published_llm(llm),
        vit=_published_vit(vit),
        vae=_published_vae(own.section_or_empty("vae_config")),
        tokens=_special_tokens(folder) or base.tokens,
        latent_patch=own.whole("latent_patch_size", _LATENT_PATCH, default=base.latent_patch),
        latent_side=_latent_side(folder) or base.latent_side,
    )


def _part(folder: Path, own: Fields, name: str) -> Fields:
    """A config in a file of its own, or inside `config.json`."""
    path = folder / f"{name}.json"
    if path.is_file():
        return Fields(read_object(path), f"{name}.")
    if own.values.get(name) is None:
        raise NotFound(f"`{folder.name}` has no `{path.name}`, nor `{name}` in its `config.json`")
    return own.section(name)


def _published_llm(llm: Fields) -> LlmConfig:
    base, rope = BAGEL_7B_MOT.llm, rope_of(llm)
    llm.word("hidden_act", ("silu",), "silu")
    rope_kind(rope, ("default",))
    return LlmConfig(
        **sizes_of(llm),
        rope_theta=rope_base(llm, rope, base.rope_theta),
        norm_eps=llm.number("rms_norm_eps", limits.EPS, default=base.norm_eps),
    )


def _published_vit(vit: Fields) -> SiglipConfig:
    base = BAGEL_7B_MOT.vit
    vit.word("hidden_act", (_GELU,), _GELU)
    patch = vit.whole("patch_size", limits.PATCH)
    side = vit.whole("image_size", limits.PATCH * limits.SIDE, least=patch, default=base.side * patch) // patch
    if side > limits.SIDE:
        raise InvalidInput(f"`vit_config.image_size` is {side} patches; at most {limits.SIDE} are supported")
    return SiglipConfig(
        width=vit.whole("hidden_size", limits.WIDTH),
        hidden=vit.whole("intermediate_size", limits.HIDDEN),
        # The published checkpoint omits the encoder's last layer, which is unused.
        layers=vit.whole("num_hidden_layers", limits.LAYERS, least=2) - 1,
        heads=vit.whole("num_attention_heads", limits.HEADS),
        patch=patch,
        side=side,
        norm_eps=vit.number("layer_norm_eps", limits.EPS, default=base.norm_eps),
    )


def _published_vae(vae: Fields) -> VaeConfig:
    base = BAGEL_7B_MOT.vae
    return dataclasses.replace(
        base,
        channels=vae.whole("ch", _CHANNELS, default=base.channels),
        multipliers=vae.wholes("ch_mult", _TIMES, _LEVELS, default=base.multipliers),
        blocks=vae.whole("num_res_blocks", _BLOCKS, default=base.blocks),
        latent_channels=vae.whole("z_channels", _LATENT_CHANNELS, default=base.latent_channels),
    )


def _latent_side(folder: Path) -> int | None:
    """Side of the table of latent positions, from the weights' shape: the published `max_latent_size` is smaller."""
    if "ema" not in stems(folder):
        return None
    table = tensors(folder, "ema").get(LATENTS)
    if table is None or not table.shape:
        return None
    rows = table.shape[0]
    side = math.isqrt(rows)
    if side**2 != rows or not 0 < side <= limits.SIDE:
        raise InvalidInput(f"`{LATENTS}` has {rows} rows, which is not the square of a side of at most {limits.SIDE}")
    return side


def _special_tokens(folder: Path) -> SpecialTokens | None:
    """Ids from the folder's tokenizer; None without a tokenizer."""
    known = added_tokens(folder)
    if known is None:
        return None
    missing = [name for name in _EDGES.values() if name not in known]
    if missing:
        raise InvalidInput(f"its tokenizer has no token {', '.join(f'`{name}`' for name in missing)}")
    return SpecialTokens(**{key: known[name] for key, name in _EDGES.items()})
