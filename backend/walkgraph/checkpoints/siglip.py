"""Sizes of a SigLIP vision tower."""

from dataclasses import dataclass

from walkgraph.checkpoints import limits
from walkgraph.checkpoints.fields import Fields


@dataclass(frozen=True, kw_only=True)
class SiglipConfig:
    width: int
    hidden: int
    layers: int
    heads: int
    patch: int
    """Side of a patch in pixels."""
    side: int
    """Side of the table of learned positions, in patches."""
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"`vit.width` {self.width} must be a multiple of `vit.heads` {self.heads}")

    @classmethod
    def own(cls, config: Fields) -> "SiglipConfig":
        """Read our own format."""
        config.only("width", "hidden", "layers", "heads", "patch", "side", "norm_eps")
        return cls(
            width=config.whole("width", limits.WIDTH),
            hidden=config.whole("hidden", limits.HIDDEN),
            layers=config.whole("layers", limits.LAYERS),
            heads=config.whole("heads", limits.HEADS),
            patch=config.whole("patch", limits.PATCH),
            side=config.whole("side", limits.SIDE),
            norm_eps=config.number("norm_eps", limits.EPS, default=cls.norm_eps),
        )
