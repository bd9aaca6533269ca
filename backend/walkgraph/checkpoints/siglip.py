"""Sizes of a SigLIP vision tower."""

from dataclasses import dataclass

from walkgraph.checkpoints.fields import EPS, HEADS, HIDDEN, LAYERS, PATCH, SIDE, WIDTH, Fields


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
        """From our own form."""
        config.only("width", "hidden", "layers", "heads", "patch", "side", "norm_eps")
        return cls(
            width=config.whole("width", WIDTH),
            hidden=config.whole("hidden", HIDDEN),
            layers=config.whole("layers", LAYERS),
            heads=config.whole("heads", HEADS),
            patch=config.whole("patch", PATCH),
            side=config.whole("side", SIDE),
            norm_eps=config.number("norm_eps", EPS, default=cls.norm_eps),
        )
