"""pi0.5's configurations for `random:CONFIG:SEED` sources."""

from walkgraph.checkpoints.presets import preset
from walkgraph.checkpoints.siglip import SiglipConfig
from walkgraph.models.pi05.config import PI05_BASE, Pi05Config, Widths

PI05: dict[str, Pi05Config] = {
    "pi05-base": PI05_BASE,
    "pi05-tiny": Pi05Config(
        vision=SiglipConfig(width=24, hidden=40, layers=2, heads=3, patch=8, side=4),
        prefix=Widths(width=32, hidden=64),
        expert=Widths(width=24, hidden=48),
        layers=3,
        heads=8,
        kv_heads=1,
        head_dim=8,
        vocab=259,
        bos=256,
    ),
}
"""Full-size shapes for measurements, tiny ones for tests; both use the same classes."""


def pi05_config(name: str) -> Pi05Config:
    return preset(PI05, name)


def text_edges(name: str) -> tuple[int, int]:
    """The id of a text's begin, twice: pi0.5 reads texts and writes none, so it has no end token."""
    config = pi05_config(name)
    return config.bos, config.bos
