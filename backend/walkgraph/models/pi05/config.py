"""pi0.5's `config.json`: our own (`"format": "walkgraph/pi05@1"`), or openpi's or lerobot's, which name the published
variants."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from walkgraph.checkpoints import limits
from walkgraph.checkpoints.decoder import DecoderShape, StackSizes
from walkgraph.checkpoints.fields import Fields, described, read_object
from walkgraph.checkpoints.siglip import SiglipConfig
from walkgraph.errors import InvalidInput

FORMAT = "walkgraph/pi05@1"
_ACTIONS = 4096
"""The most numbers in an action, and actions in a chunk."""
_HORIZONS, _CAMERAS = 64, 64
_PERIOD = 1e6


@dataclass(frozen=True, kw_only=True)
class Widths:
    """Sizes of one of the two stacks."""

    width: int
    hidden: int
    """Width between the matrices of an MLP."""


@dataclass(frozen=True, kw_only=True)
class Pi05Config(StackSizes):
    """Sizes of a pi0.5 model. Raises ValueError for sizes that don't fit together."""

    vision: SiglipConfig
    prefix: Widths
    expert: Widths
    vocab: int
    action_width: int = 32
    """Numbers of an action, padding included."""
    bos: int = 2
    rope_theta: float = 1e4
    norm_eps: float = 1e-6
    periods: tuple[float, float] = (4e-3, 4.0)
    """Shortest and longest period of the sinusoids that encode a flow time."""
    horizons: tuple[int, ...] = (50, 15, 10)
    """Chunk lengths that are prepared at load: for two arms, DROID and LIBERO. Requests may use others."""
    cameras: int = 3
    """The robot's likely number of cameras: chunks after that many pictures are prepared at load."""

    def __post_init__(self) -> None:
        sizes = (self.layers, self.heads, self.kv_heads, self.vocab, self.action_width, self.prefix.hidden)
        if min(*sizes, self.prefix.width, self.expert.hidden) < 1 or self.heads % self.kv_heads:
            raise ValueError(f"`heads` {self.heads} must be a multiple of `kv_heads` {self.kv_heads}, and no size 0")
        if self.head_dim % 2 or self.expert.width % 2 or not 0 <= self.bos < self.vocab:
            raise ValueError("`head_dim` and `expert.width` must be even, and `bos` lie in the vocabulary")
        if self.cameras < 1:
            raise ValueError(f"`cameras` must be 1 or more, and is {self.cameras}")
        if min(self.horizons, default=0) < 1:
            raise ValueError(f"`horizons` must list chunk lengths of 1 or more, and is {self.horizons}")
        if not self.periods[0] < self.periods[1]:
            raise ValueError(f"the shortest of `periods` must be below the longest, and they are {self.periods}")

    @property
    def picture(self) -> int:
        """Side of a camera's picture in pixels."""
        return self.vision.side * self.vision.patch

    @property
    def patches(self) -> int:
        """Tokens of one camera's picture."""
        return self.vision.side**2

    @property
    def norms(self) -> int:
        """Number of norms that a flow time modulates."""
        return 2 * self.layers + 1

    def shape(self, of: Widths) -> DecoderShape:
        return self.layer_of(width=of.width, hidden=of.hidden)


PI05_BASE = Pi05Config(
    vision=SiglipConfig(width=1152, hidden=4304, layers=27, heads=16, patch=14, side=16),
    prefix=Widths(width=2048, hidden=16384),
    expert=Widths(width=1024, hidden=4096),
    layers=18,
    heads=8,
    kv_heads=1,
    head_dim=256,
    vocab=257152,
)
"""pi0.5 as published: 3.3 billion parameters."""
_VARIANTS = {"gemma_2b": PI05_BASE.prefix, "gemma_300m": PI05_BASE.expert}


def read_pi05(folder: Path) -> Pi05Config:
    """The config of a checkpoint folder; raises InvalidInput or NotFound with what is wrong."""
    config = Fields(read_object(folder / "config.json"))
    try:
        return _own(config) if config.values.get("format") == FORMAT else _published(config)
    except (InvalidInput, ValueError) as error:
        raise described("a pi0.5 model", folder, error) from None


def pi05_json(config: Pi05Config) -> str:
    """The JSON that `read_pi05` reads."""
    return json.dumps({"format": FORMAT, **dataclasses.asdict(config)}, indent=2) + "\n"


def _own(config: Fields) -> Pi05Config:
    base = Pi05Config
    sizes = {
        "layers": limits.LAYERS,
        "heads": limits.HEADS,
        "kv_heads": limits.HEADS,
        "head_dim": limits.HEAD_DIM,
        "vocab": limits.VOCAB,
    }
    known = [field.name for field in dataclasses.fields(base)]
    config.only("format", *known)
    return base(
        vision=SiglipConfig.own(config.section("vision")),
        prefix=_widths(config.section("prefix")),
        expert=_widths(config.section("expert")),
        **{key: config.whole(key, most) for key, most in sizes.items()},
        action_width=config.whole("action_width", _ACTIONS, default=base.action_width),
        bos=config.whole("bos", limits.VOCAB, least=0, default=base.bos),
        rope_theta=config.number("rope_theta", limits.BASE, default=base.rope_theta),
        norm_eps=config.number("norm_eps", limits.EPS, default=base.norm_eps),
        periods=_periods(config),
        horizons=config.wholes("horizons", _ACTIONS, _HORIZONS, default=base.horizons),
        cameras=config.whole("cameras", _CAMERAS, default=base.cameras),
    )


def _widths(sizes: Fields) -> Widths:
    sizes.only("width", "hidden")
    return Widths(width=sizes.whole("width", limits.WIDTH), hidden=sizes.whole("hidden", limits.HIDDEN))


def _periods(config: Fields) -> tuple[float, float]:
    value = config.values.get("periods")
    if value is None:
        return Pi05Config.periods
    if not isinstance(value, list | tuple) or len(cast(Sequence[Any], value)) != 2:
        raise InvalidInput("`periods` must be a list of two numbers, the shortest and the longest")
    each = Fields(dict(zip(("shortest", "longest"), cast(Sequence[Any], value), strict=True)), "periods.")
    return each.number("shortest", _PERIOD), each.number("longest", _PERIOD)


def _published(config: Fields) -> Pi05Config:
    if config.values.get("type", "pi05") != "pi05" or not config.flag("pi05", default=True):
        raise InvalidInput(
            "it is pi0, not pi0.5 (`type` `pi05`): it has a state token, and its norms know no flow time"
        )
    prefix, expert = (_VARIANTS[config.word(f"{part}_variant", _VARIANTS)] for part in ("paligemma", "action_expert"))
    base, side = PI05_BASE, PI05_BASE.picture
    if config.wholes("image_resolution", 2**31, 2, default=(side, side)) != (side, side):
        raise InvalidInput(f"`image_resolution` must be {side} by {side}")
    actions, horizon = (_either(config, keys) for keys in (("action_dim", "max_action_dim"), _CHUNK))
    return dataclasses.replace(
        base,
        prefix=prefix,
        expert=expert,
        action_width=actions or base.action_width,
        horizons=(horizon,) if horizon else base.horizons,
        periods=(
            config.number("min_period", _PERIOD, default=base.periods[0]),
            config.number("max_period", _PERIOD, default=base.periods[1]),
        ),
    )


_CHUNK = ("action_horizon", "chunk_size")


def _either(config: Fields, keys: tuple[str, str]) -> int | None:
    """The value that openpi stores under the first key, and lerobot under the second."""
    return next((config.whole(key, _ACTIONS) for key in keys if config.values.get(key) is not None), None)
