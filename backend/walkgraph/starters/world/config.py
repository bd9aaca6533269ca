"""The starter's sizes: the published model's classes, small."""

from walkgraph.checkpoints.vjepa2 import TransformerConfig, Vjepa2Config
from walkgraph.networks.world_painter import GRID, PainterConfig
from walkgraph.networks.world_scene import SIDE

MODEL = Vjepa2Config(
    encoder=TransformerConfig(width=192, hidden=768, layers=6, heads=3),
    predictor=TransformerConfig(width=192, hidden=768, layers=6, heads=3),
    patch=SIDE // GRID,
    side=GRID,
)
"""5.5 million parameters."""
PAINTER = PainterConfig()
