"""V-JEPA 2-AC's configurations for `random:CONFIG:SEED` sources."""

from walkgraph.checkpoints.presets import preset
from walkgraph.models.vjepa2.config import VJEPA2_AC_VITG, TransformerConfig, Vjepa2Config

VJEPA2: dict[str, Vjepa2Config] = {
    "vjepa2-ac-vitg": VJEPA2_AC_VITG,
    "vjepa2-ac-tiny": Vjepa2Config(
        encoder=TransformerConfig(width=48, hidden=64, layers=2, heads=2),
        predictor=TransformerConfig(width=32, hidden=48, layers=2, heads=2),
        patch=8,
        side=4,
    ),
}
"""Full-size shapes for measurements, tiny ones for tests; both use the same classes."""


def vjepa2_config(name: str) -> Vjepa2Config:
    return preset(VJEPA2, name)
