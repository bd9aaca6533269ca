"""Configurations of Qwen3-Omni for `random:CONFIG:SEED` sources."""

from walkgraph.checkpoints.presets import preset
from walkgraph.models.qwen3_omni.config import OmniConfig
from walkgraph.models.qwen3_omni.talker import config as talker
from walkgraph.models.qwen3_omni.thinker import config as thinker
from walkgraph.models.qwen3_omni.vocoder import config as vocoder

OMNI: dict[str, OmniConfig] = {
    "qwen3-omni-30b-a3b": OmniConfig(thinker=thinker.PUBLISHED, talker=talker.TALKER, code2wav=vocoder.PUBLISHED),
    "qwen3-omni-tiny": OmniConfig(thinker=thinker.TINY, talker=talker.TALKER_TINY, code2wav=vocoder.TINY),
}
"""The published shapes, and tiny ones of the same classes for tests and laptops."""


def omni_config(name: str) -> OmniConfig:
    return preset(OMNI, name)


def text_edges(name: str) -> tuple[int, int]:
    """Ids of the tokens that begin and end a text."""
    marks = omni_config(name).thinker.marks
    return marks.im_start, marks.im_end
