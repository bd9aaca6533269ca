"""Sizes of Qwen3-Omni's vision encoder, and of the pictures that it reads."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from walkgraph.checkpoints import limits
from walkgraph.checkpoints.fields import Fields, described, read_object
from walkgraph.errors import InvalidInput

_MERGE, _FRAMES = 16, 16
STEEPEST = 200
"""The most times that a side of a picture is as long as the other."""


@dataclass(frozen=True, kw_only=True)
class VisionConfig:
    width: int
    hidden: int
    layers: int
    heads: int
    out: int
    """Width of an embedding."""
    deepstack: tuple[int, ...]
    """Layers, from 0, whose rows become features of their own."""
    patch: int = 16
    """Side of a patch in pixels."""
    frames: int = 2
    """Frames of a patch; a picture counts as often."""
    merge: int = 2
    """Patches along the side of an embedding."""
    side: int = 48
    """Side of the table of learned positions, in patches."""
    theta: float = 10_000.0
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.width % self.heads or self.width // self.heads % 4:
            raise ValueError(f"`width` {self.width} over `heads` {self.heads} must be a multiple of 4 for each head")
        if any(not 0 <= layer < self.layers for layer in self.deepstack) or self.deepstack != self._ascending:
            raise ValueError(f"features {self.deepstack} are not those of {self.layers} layers, in their order")

    @property
    def _ascending(self) -> tuple[int, ...]:
        return tuple(sorted(set(self.deepstack)))

    @property
    def cell(self) -> int:
        """Pixels along the side of an embedding."""
        return self.patch * self.merge

    @classmethod
    def published(cls, fields: Fields) -> Self:
        """The section `thinker_config.vision_config` of a published config. Raises InvalidInput."""
        fields.word("hidden_act", ("gelu_pytorch_tanh",), default="gelu_pytorch_tanh")
        fields.whole("in_channels", 3, least=3, default=3)
        positions = fields.whole("num_position_embeddings", limits.SIDE**2, default=2304)
        if math.isqrt(positions) ** 2 != positions:
            raise InvalidInput(f"`{fields.at}num_position_embeddings` is {positions}, which is not a square")
        layers = fields.whole("depth", limits.LAYERS)
        return cls(
            width=fields.whole("hidden_size", limits.WIDTH),
            hidden=fields.whole("intermediate_size", limits.HIDDEN),
            layers=layers,
            heads=fields.whole("num_heads", limits.HEADS),
            out=fields.whole("out_hidden_size", limits.WIDTH),
            deepstack=fields.wholes("deepstack_visual_indexes", layers - 1, layers, least=0, default=(8, 16, 24)),
            patch=fields.whole("patch_size", limits.PATCH, default=16),
            frames=fields.whole("temporal_patch_size", _FRAMES, default=2),
            merge=fields.whole("spatial_merge_size", _MERGE, default=2),
            side=math.isqrt(positions),
        )


VISION = VisionConfig(width=1152, hidden=4304, layers=27, heads=16, out=2048, deepstack=(8, 16, 24))
"""Values published with Qwen3-Omni-30B-A3B."""
VISION_TINY = VisionConfig(width=32, hidden=48, layers=5, heads=2, out=64, deepstack=(0, 2, 3), side=6)
VISION_PRESETS: Mapping[str, VisionConfig] = {"qwen3-omni-30b-a3b": VISION, "qwen3-omni-tiny": VISION_TINY}


def read_vision(folder: Path) -> VisionConfig:
    """The sizes in a published folder. Raises InvalidInput or NotFound with what is wrong."""
    config = Fields(read_object(folder / "config.json"))
    try:
        return VisionConfig.published(config.section("thinker_config").section("vision_config"))
    except (InvalidInput, ValueError) as error:
        raise described("a Qwen3-Omni model", folder, error) from None


def fitted(height: int, width: int, cell: int, least: int, most: int) -> tuple[int, int]:
    """The height and width that a picture is resized to: multiples of `cell`, about its proportions, and `least` to
    `most` pixels where multiples allow it. Raises ValueError for a picture that is too long."""
    if max(height, width) > STEEPEST * min(height, width):
        raise ValueError(f"{width} by {height} pixels: a side is over {STEEPEST} times as long as the other")
    sides = height, width
    # Python rounds halves to even, and so does the published code.
    new = [round(side / cell) * cell for side in sides]
    if math.prod(new) > most:
        scale = math.sqrt(height * width / most)
        new = [max(cell, math.floor(side / scale / cell) * cell) for side in sides]
    elif math.prod(new) < least:
        scale = math.sqrt(least / (height * width))
        new = [math.ceil(side * scale / cell) * cell for side in sides]
    return new[0], new[1]
