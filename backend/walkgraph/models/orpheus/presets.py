"""Orpheus's configurations for `random:CONFIG:SEED` sources."""

from walkgraph.checkpoints.decoder import LongContext
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.checkpoints.presets import preset
from walkgraph.models.orpheus.config import ORPHEUS_3B, OrpheusConfig, SpeechTokens

_CODES = SpeechTokens.after_bytes(codebook=64)
ORPHEUS: dict[str, OrpheusConfig] = {
    "orpheus-3b": ORPHEUS_3B,
    "orpheus-tiny": OrpheusConfig(
        llm=LanguageConfig(
            width=48,
            hidden=80,
            layers=2,
            heads=4,
            kv_heads=2,
            head_dim=16,
            vocab=_CODES.vocab,
            scaling=LongContext(factor=8.0, low=1.0, high=4.0, original=64),
        ),
        tokens=_CODES,
    ),
}
"""Full-size shapes for measurements, tiny ones for tests; both use the same classes."""


def orpheus_config(name: str) -> OrpheusConfig:
    return preset(ORPHEUS, name)


def text_edges(name: str) -> tuple[int, int]:
    """Ids of the tokens that begin and end a text."""
    tokens = orpheus_config(name).tokens
    return tokens.bos, tokens.eos
