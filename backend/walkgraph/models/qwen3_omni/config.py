"""The config of a whole Qwen3-Omni checkpoint, each part's in the part's own folder."""

from dataclasses import dataclass
from pathlib import Path

from walkgraph.checkpoints.fields import Fields, described, read_object
from walkgraph.errors import InvalidInput
from walkgraph.models.qwen3_omni.talker.config import TalkerConfig
from walkgraph.models.qwen3_omni.thinker.config import ThinkerConfig, speaks
from walkgraph.models.qwen3_omni.vocoder.config import VocoderConfig

KIND = "qwen3_omni_moe"
TITLE = "Qwen3-Omni"


@dataclass(frozen=True, kw_only=True)
class OmniConfig:
    thinker: ThinkerConfig
    talker: TalkerConfig | None = None
    """None for a model that only writes; `code2wav` likewise."""
    code2wav: VocoderConfig | None = None


def read_omni(folder: Path) -> OmniConfig:
    """The config of a checkpoint folder; raises InvalidInput or NotFound with what is wrong."""
    whole = Fields(read_object(folder / "config.json"))
    try:
        whole.word("model_type", (KIND,), KIND)
        spoken = speaks(whole)
        return OmniConfig(
            thinker=ThinkerConfig.published(whole),
            talker=TalkerConfig.published(whole) if spoken else None,
            code2wav=VocoderConfig.published(whole.section("code2wav_config")) if spoken else None,
        )
    except (InvalidInput, ValueError) as error:
        raise described(TITLE, folder, error) from None
