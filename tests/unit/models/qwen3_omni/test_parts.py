"""The part that each tensor of a published folder belongs to, in both layouts."""

import pytest

from walkgraph.models.qwen3_omni import parts


@pytest.mark.parametrize(
    ("filed", "part", "own"),
    [
        ("thinker.model.embed_tokens.weight", "thinker", "model.embed_tokens.weight"),
        ("thinker.model.language_model.embed_tokens.weight", "thinker", "model.embed_tokens.weight"),
        ("thinker.lm_head.weight", "thinker", "lm_head.weight"),
        ("thinker.audio_tower.conv_out.weight", "audio", "conv_out.weight"),
        ("thinker.model.audio_tower.conv_out.weight", "audio", "conv_out.weight"),
        ("thinker.visual.pos_embed.weight", "vision", "pos_embed.weight"),
        ("thinker.model.visual.pos_embed.weight", "vision", "pos_embed.weight"),
        ("talker.code_predictor.lm_head.0.weight", "code_predictor", "lm_head.0.weight"),
        ("talker.codec_head.weight", "talker", "codec_head.weight"),
        ("code2wav.code_embedding.weight", "code2wav", "code_embedding.weight"),
    ],
)
def test_each_tensor_belongs_to_one_part(filed: str, part: str, own: str) -> None:
    assert parts.part_of(filed) == part
    assert {name: parts.own_name(name)(filed) for name in parts.PARTS} == {**dict.fromkeys(parts.PARTS), part: own}
    assert [name for name in parts.PARTS if parts.reads(name)(filed)] == [part]


def test_other_tensors_belong_to_none() -> None:
    assert parts.part_of("model.embed_tokens.weight") is None
    assert not any(parts.own_name(name)("lm_head.weight") for name in parts.PARTS)
