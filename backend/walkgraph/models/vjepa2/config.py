"""V-JEPA 2-AC's config: sizes other than the published ViT-g's are in a `config.json` of our own format."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from walkgraph.checkpoints import limits
from walkgraph.checkpoints.fields import Fields, described, read_optional
from walkgraph.errors import InvalidInput

FORMAT = "walkgraph/vjepa2@1"
CONDITIONS = 2
"""Tokens before the patches of a frame: its action and its pose."""
_PIXELS = 8192
"""The most pixels along a picture's side."""


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    width: int
    hidden: int
    layers: int
    heads: int

    def __post_init__(self) -> None:
        if self.width % self.heads or self.head_dim < 6 or self.head_dim % 2:
            raise ValueError(
                f"`width` {self.width} over `heads` {self.heads} must be an even number of 6 or more for each head"
            )

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


@dataclass(frozen=True, kw_only=True)
class Vjepa2Config:
    encoder: TransformerConfig
    predictor: TransformerConfig
    patch: int
    """Side of a patch in pixels."""
    side: int
    """Patches of a row and of a column of a picture."""
    norm_eps: float = 1e-6

    @property
    def pixels(self) -> int:
        """Side of a picture in pixels."""
        return self.side * self.patch

    @property
    def patches(self) -> int:
        """Patches of a picture (n)."""
        return self.side**2

    @property
    def tokens(self) -> int:
        """Tokens that a frame appends to the predictor's cache."""
        return self.patches + CONDITIONS


VJEPA2_AC_VITG = Vjepa2Config(
    encoder=TransformerConfig(width=1408, hidden=6144, layers=40, heads=22),
    predictor=TransformerConfig(width=1024, hidden=4096, layers=24, heads=16),
    patch=16,
    side=16,
)


def read_vjepa2(folder: Path) -> Vjepa2Config:
    """The config of a checkpoint folder: our own, or the published sizes. Raises InvalidInput with what is wrong."""
    config = Fields(read_optional(folder / "config.json"))
    if config.values.get("format") != FORMAT:
        return VJEPA2_AC_VITG
    try:
        config.only("format", "encoder", "predictor", "patch", "side", "norm_eps")
        found = Vjepa2Config(
            encoder=_transformer(config.section("encoder")),
            predictor=_transformer(config.section("predictor")),
            patch=config.whole("patch", limits.PATCH),
            side=config.whole("side", limits.SIDE),
            norm_eps=config.number("norm_eps", limits.EPS, default=Vjepa2Config.norm_eps),
        )
        if found.pixels > _PIXELS:
            raise InvalidInput(f"`side` times `patch` is {found.pixels} pixels; at most {_PIXELS} are supported")
        return found
    except (InvalidInput, ValueError) as error:
        raise described("a V-JEPA 2 model", folder, error) from None


def vjepa2_json(config: Vjepa2Config) -> str:
    """The JSON that `read_vjepa2` reads."""
    return json.dumps({"format": FORMAT, **dataclasses.asdict(config)}, indent=2) + "\n"


def _transformer(sizes: Fields) -> TransformerConfig:
    sizes.only("width", "hidden", "layers", "heads")
    return TransformerConfig(
        width=sizes.whole("width", limits.WIDTH),
        hidden=sizes.whole("hidden", limits.HIDDEN),
        layers=sizes.whole("layers", limits.LAYERS),
        heads=sizes.whole("heads", limits.HEADS),
    )
