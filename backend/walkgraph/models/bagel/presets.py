"""BAGEL's configurations for `random:CONFIG:SEED` sources."""

from walkgraph.checkpoints.flux_vae import VaeConfig
from walkgraph.checkpoints.pictures import PictureRules
from walkgraph.checkpoints.presets import preset
from walkgraph.checkpoints.siglip import SiglipConfig
from walkgraph.models.bagel.config import BAGEL_7B_MOT, BagelConfig, LlmConfig, SpecialTokens

BAGEL: dict[str, BagelConfig] = {
    "bagel-7b-mot": BAGEL_7B_MOT,
    "bagel-tiny": BagelConfig(
        llm=LlmConfig(width=32, hidden=48, layers=2, heads=4, kv_heads=2, head_dim=8, vocab=264),
        vit=SiglipConfig(width=24, hidden=32, layers=2, heads=3, patch=8, side=16),
        vae=VaeConfig(
            channels=8, multipliers=(1, 1, 2, 2), blocks=1, latent_channels=4, shift=0.1, scale=0.5, norm_groups=4
        ),
        tokens=SpecialTokens(bos=256, eos=257, boi=258, eoi=259),
        vit_pictures=PictureRules(min_side=16, max_side=128, stride=8),
        vae_pictures=PictureRules(min_side=16, max_side=128, stride=16),
        latent_side=8,
    ),
}
"""Full-size shapes for measurements, tiny ones for tests; both use the same classes."""


def bagel_config(name: str) -> BagelConfig:
    return preset(BAGEL, name)


def text_edges(name: str) -> tuple[int, int]:
    """Ids of the tokens that begin and end a text."""
    tokens = bagel_config(name).tokens
    return tokens.bos, tokens.eos
