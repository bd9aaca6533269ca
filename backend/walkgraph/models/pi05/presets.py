"""The configurations of pi0.5 that a `random:CONFIG:SEED` source may name."""

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
"""Full-size shapes for measurements, tiny ones for tests: the same classes."""


def pi05_config(name: str) -> Pi05Config:
    return preset(PI05, name)


def text_edges(name: str) -> tuple[int, int]:
    """The id of the begin of a text, twice: pi0.5 reads texts and writes none, so that nothing ends one."""
    config = pi05_config(name)
    return config.bos, config.bos
