"""The published config of the thinker, its bounds, and the sizes that follow."""

import math
from copy import deepcopy
from typing import Any

import pytest

from tests.golden.qwen3_omni.published import CONFIG
from walkgraph.checkpoints.fields import Fields
from walkgraph.errors import InvalidInput
from walkgraph.models.qwen3_omni.presets import OMNI
from walkgraph.models.qwen3_omni.thinker.config import PUBLISHED, ThinkerConfig


def test_the_published_config_is_the_preset() -> None:
    assert ThinkerConfig.published(Fields(CONFIG)) == PUBLISHED


def test_a_checkpoint_without_a_talker_tells_it_nothing() -> None:
    for change in ({"enable_audio_output": False}, {"talker_config": None}):
        assert ThinkerConfig.published(Fields({**CONFIG, **change})).told is None


def test_the_published_thinker_has_its_size() -> None:
    tensors = list(PUBLISHED.tensors())
    assert (len(tensors), sum(math.prod(shape) for _, shape in tensors)) == (18867, 30_532_646_912)


@pytest.mark.parametrize(
    ("at", "key", "value", "said"),
    [
        ("text_config", "rope_scaling", {"mrope_section": [24, 20]}, "must sum to half"),
        ("text_config", "rope_scaling", {}, "mrope_section"),
        ("text_config", "num_experts_per_tok", 129, "can't choose"),
        ("text_config", "vocab_size", 151655, "exceed a vocabulary"),
        ("text_config", "num_hidden_layers", 20, "accept_hidden_layer"),
        ("vision_config", "deepstack_visual_indexes", "8", "deepstack_visual_indexes"),
        ("", "position_id_per_seconds", 0, "position_id_per_seconds"),
        ("", "audio_token_id", None, "audio_token_id"),
    ],
)
def test_a_config_that_cannot_be_served_is_refused(at: str, key: str, value: Any, said: str) -> None:
    whole = deepcopy(dict(CONFIG))
    thinker = whole["thinker_config"]
    (thinker[at] if at else thinker)[key] = value
    with pytest.raises((InvalidInput, ValueError), match=said):
        ThinkerConfig.published(Fields(whole))


def test_the_tiny_preset_has_the_shape_of_the_large_one() -> None:
    tiny, large = OMNI["qwen3-omni-tiny"].thinker, OMNI["qwen3-omni-30b-a3b"].thinker
    assert tiny.deepstack == large.deepstack
    assert tiny.told is not None
    assert tiny.deepstack < tiny.told <= tiny.llm.layers
    assert len(set(vars(tiny.marks).values())) == len(vars(tiny.marks))
