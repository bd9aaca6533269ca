"""The published config of the thinker, its bounds, and the sizes that follow."""

import math
from typing import Any

import pytest

from walkgraph.checkpoints.fields import Fields
from walkgraph.errors import InvalidInput
from walkgraph.models.qwen3_omni.presets import OMNI
from walkgraph.models.qwen3_omni.thinker.config import PUBLISHED, ThinkerConfig


def published() -> dict[str, Any]:
    """As the checkpoint's `config.json` has it, in what the thinker reads."""
    text = {
        "hidden_act": "silu",
        "hidden_size": 2048,
        "intermediate_size": 768,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 152064,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "rope_scaling": {"interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default", "type": "default"},
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "tie_word_embeddings": False,
    }
    thinker = {
        "text_config": text,
        "vision_config": {"deepstack_visual_indexes": [8, 16, 24]},
        "position_id_per_seconds": 13,
        "audio_start_token_id": 151669,
        "audio_end_token_id": 151670,
        "audio_token_id": 151675,
        "image_token_id": 151655,
        "video_token_id": 151656,
        "vision_start_token_id": 151652,
        "vision_end_token_id": 151653,
        "user_token_id": 872,
    }
    return {
        "model_type": "qwen3_omni_moe",
        "enable_audio_output": True,
        "im_start_token_id": 151644,
        "im_end_token_id": 151645,
        "system_token_id": 8948,
        "user_token_id": 872,
        "assistant_token_id": 77091,
        "thinker_config": thinker,
        "talker_config": {"accept_hidden_layer": 24},
    }


def test_the_published_config_is_the_preset() -> None:
    assert ThinkerConfig.published(Fields(published())) == PUBLISHED


def test_a_checkpoint_without_a_talker_tells_it_nothing() -> None:
    for change in ({"enable_audio_output": False}, {"talker_config": None}):
        assert ThinkerConfig.published(Fields({**published(), **change})).told is None


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
    whole = published()
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
