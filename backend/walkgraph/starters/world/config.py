"""The starter's sizes: the published model's classes at a small scale."""

from walkgraph.models.vjepa2.config import TransformerConfig, Vjepa2Config
from walkgraph.models.world.painter import GRID, PainterConfig
from walkgraph.models.world.scene import SIDE

MODEL = Vjepa2Config(
    encoder=TransformerConfig(width=192, hidden=768, layers=6, heads=3),
    predictor=TransformerConfig(width=192, hidden=768, layers=6, heads=3),
    patch=SIDE // GRID,
    side=GRID,
)
"""5.5 million parameters."""
PAINTER = PainterConfig()
