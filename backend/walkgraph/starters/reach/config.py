"""The starter's sizes: the published model's classes at a small scale."""

from walkgraph.checkpoints.siglip import SiglipConfig
from walkgraph.models.pi05.config import Pi05Config, Widths
from walkgraph.models.reach.pictures import SIDE
from walkgraph.models.reach.scene import HORIZON
from walkgraph.starters.reach.tokens import BOS, VOCAB


def config() -> Pi05Config:
    """2.4 million parameters."""
    return Pi05Config(
        vision=SiglipConfig(width=128, hidden=384, layers=3, heads=4, patch=8, side=SIDE // 8),
        prefix=Widths(width=128, hidden=384),
        expert=Widths(width=96, hidden=256),
        layers=4,
        heads=4,
        kv_heads=1,
        head_dim=64,
        vocab=VOCAB,
        action_width=2,
        bos=BOS,
        horizons=(HORIZON,),
        cameras=1,
    )
