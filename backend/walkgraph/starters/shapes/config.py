"""The starter's sizes: the published model's classes at a small scale."""

from walkgraph.checkpoints.flux_vae import VaeConfig
from walkgraph.checkpoints.pictures import PictureRules
from walkgraph.checkpoints.siglip import SiglipConfig
from walkgraph.models.bagel.config import BagelConfig, LlmConfig, SpecialTokens
from walkgraph.starters.shapes.render import SIDE


def config(shift: float = 0.0, scale: float = 1.0) -> BagelConfig:
    """7.4 million parameters. `shift` and `scale` are measured on the trained autoencoder."""
    return BagelConfig(
        llm=LlmConfig(width=192, hidden=512, layers=6, heads=4, kv_heads=2, head_dim=64, vocab=448),
        vit=SiglipConfig(width=128, hidden=384, layers=4, heads=4, patch=8, side=8),
        vae=VaeConfig(
            channels=32,
            multipliers=(1, 1, 2, 2),
            blocks=1,
            latent_channels=16,
            shift=shift,
            scale=scale,
            norm_groups=8,
        ),
        tokens=SpecialTokens(bos=256, eos=257, boi=258, eoi=259),
        vit_pictures=PictureRules(min_side=SIDE, max_side=SIDE, stride=8),
        vae_pictures=PictureRules(min_side=SIDE, max_side=SIDE, stride=16),
        latent_side=4,
    )
