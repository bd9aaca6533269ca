"""A tiny Qwen3-Omni in the published layout, and the prompts from which the talker's stored answers were made.

`make_speaking.py` gives them to `transformers`, the parity tests to ours. The published code's encoders and thinker
compute what the talker reads of sound and pictures, so these rows are stored with the answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.golden.qwen3_omni.drawing import weight, weights, write_folder
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.models.qwen3_omni.parts import CODE_PREDICTOR, PREFIXES, PROJECTION, TALKER
from walkgraph.models.qwen3_omni.talker.config import TALKER_TINY
from walkgraph.models.qwen3_omni.talker.model import Projection, Talker
from walkgraph.models.qwen3_omni.talker.predictor import CodePredictor
from walkgraph.models.qwen3_omni.thinker.config import TINY

ANSWERS = Path(__file__).parent / "speaking.npz"
FRAMES = 10
"""Frames that the published code generates for each prompt, whole ones."""
DRAWN_AT = 5
WORDS = 6
"""Tokens of an answer, before the one that would be its last."""
_M, _SPOKEN, _CODEC = TINY.marks, TALKER_TINY.spoken, TALKER_TINY.codec
_USER, _ASSISTANT = (_M.im_start, _M.user, _M.newline), (_M.im_start, _M.assistant, _M.newline)
_END = (_M.im_end, _M.newline)
SOUND_FRAMES, SOUND_ROWS = 120, 16
"""Frames of a spectrum, and the rows that the encoder makes of them."""
GRID = (1, 4, 6)
"""Patches of the picture, before four are merged."""
PICTURE_ROWS = 6


def _text(text: str) -> tuple[int, ...]:
    return tuple(text.encode())


def _turn(role: int, *parts: Sequence[int]) -> tuple[int, ...]:
    return (_M.im_start, role, _M.newline, *(token for part in parts for token in part), *_END)


_SOUND = (_M.audio_start, *[_M.audio] * SOUND_ROWS, _M.audio_end)
_PICTURE = (_M.vision_start, *[_M.image] * PICTURE_ROWS, _M.vision_end)


@dataclass(frozen=True)
class Prompt:
    turns: Sequence[tuple[int, ...]]
    """All turns before the answer."""
    speaker: str = "Ethan"

    @property
    def ids(self) -> tuple[int, ...]:
        """The tokens that the thinker reads."""
        return (*(token for turn in self.turns for token in turn), *_ASSISTANT)

    @property
    def heard(self) -> tuple[int, ...]:
        """The tokens that the talker reads: the user's turns."""
        return tuple(token for turn in self.turns if turn[1] == _M.user for token in turn)

    @property
    def sounds(self) -> int:
        return self.ids.count(_M.audio_start)

    @property
    def pictures(self) -> int:
        return self.ids.count(_M.vision_start)


PROMPTS: Mapping[str, Prompt] = {
    "text": Prompt([_turn(_M.system, _text("be brief")), _turn(_M.user, _text("what is it?"))]),
    "sound": Prompt([_turn(_M.user, _SOUND, _text("say it"))], "CHELSIE"),
    "picture and sound": Prompt([_turn(_M.user, _text("see "), _PICTURE, _text("hear "), _SOUND)], "aiden"),
    "two turns": Prompt(
        [
            _turn(_M.system, _text("be brief")),
            _turn(_M.user, _PICTURE, _text("so?")),
            _turn(_M.assistant, _text("a cat, or two")),
            _turn(_M.user, _text("and here "), _PICTURE),
        ]
    ),
}


# ── the published config ──


def _layers(config: LanguageConfig) -> dict[str, Any]:
    found: dict[str, Any] = {
        "hidden_size": config.width,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "max_position_embeddings": 4096,
        "use_sliding_window": False,
    }
    if config.sections:
        found["rope_scaling"] = {"rope_type": "default", "mrope_section": [*config.sections], "interleaved": True}
    if config.moe is not None:
        found |= {
            "num_experts": config.moe.experts,
            "num_experts_per_tok": config.moe.chosen,
            "moe_intermediate_size": config.moe.hidden,
            "norm_topk_prob": config.moe.renormed,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
    return found


_AUDIO = {
    "num_mel_bins": 16,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "d_model": 32,
    "output_dim": TINY.llm.width,
    "downsample_hidden_size": 8,
    "n_window": 50,
    "n_window_infer": 800,
}
_VISION = {
    "depth": 4,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "out_hidden_size": TINY.llm.width,
    "num_position_embeddings": 64,
    "deepstack_visual_indexes": [0, 1, 2],
}
CONFIG: Mapping[str, Any] = {
    "model_type": "qwen3_omni_moe",
    "enable_audio_output": True,
    "im_start_token_id": _M.im_start,
    "im_end_token_id": _M.im_end,
    "system_token_id": _M.system,
    "user_token_id": _M.user,
    "assistant_token_id": _M.assistant,
    "newline_token_id": _M.newline,
    "tts_pad_token_id": _SPOKEN.pad,
    "tts_bos_token_id": _SPOKEN.bos,
    "tts_eos_token_id": _SPOKEN.eos,
    "thinker_config": {
        "text_config": _layers(TINY.llm),
        "audio_config": _AUDIO,
        "vision_config": _VISION,
        "audio_token_id": _M.audio,
        "image_token_id": _M.image,
        "video_token_id": _M.video,
        "audio_start_token_id": _M.audio_start,
        "audio_end_token_id": _M.audio_end,
        "vision_start_token_id": _M.vision_start,
        "vision_end_token_id": _M.vision_end,
        "user_token_id": _M.user,
        "position_id_per_seconds": 13,
    },
    "talker_config": {
        "text_config": {
            **_layers(TALKER_TINY.stack),
            "shared_expert_intermediate_size": TALKER_TINY.stack.moe and TALKER_TINY.stack.moe.shared,
        },
        "code_predictor_config": {**_layers(TALKER_TINY.predictor), "num_code_groups": TALKER_TINY.groups},
        "num_code_groups": TALKER_TINY.groups,
        "thinker_hidden_size": TINY.llm.width,
        "accept_hidden_layer": TINY.told,
        "codec_eos_token_id": _CODEC.eos,
        "codec_nothink_id": _CODEC.nothink,
        "codec_think_bos_id": _CODEC.think_bos,
        "codec_think_eos_id": _CODEC.think_eos,
        "codec_pad_id": _CODEC.pad,
        "codec_bos_id": _CODEC.bos,
        "audio_token_id": _M.audio,
        "image_token_id": _M.image,
        "video_token_id": _M.video,
        "vision_start_token_id": _M.vision_start,
        "audio_start_token_id": _M.audio_start,
        "position_id_per_seconds": 13,
        "spatial_merge_size": 2,
        "speaker_id": dict(TALKER_TINY.speakers),
    },
    "code2wav_config": {
        "codebook_size": TALKER_TINY.predictor.vocab,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_quantizers": TALKER_TINY.groups,
        "decoder_dim": 16,
    },
}


# ── weights and answers ──


def state() -> dict[str, Tensor]:
    """The tensors that the talker's parts read, by their published names."""
    table = "thinker.model.embed_tokens.weight"
    return {
        **weights(lambda: Talker(TALKER_TINY), PREFIXES[TALKER]),
        **weights(lambda: Projection(TALKER_TINY), PREFIXES[PROJECTION]),
        **weights(lambda: CodePredictor(TALKER_TINY.predictor, TALKER_TINY.groups), PREFIXES[CODE_PREDICTOR]),
        table: weight(table, (TINY.llm.vocab, TINY.llm.width)),
    }


def folder(root: Path) -> Path:
    return write_folder(root / "speaking", CONFIG, state())


@dataclass(frozen=True)
class Answer:
    """The published code's answer to a prompt."""

    words: tuple[int, ...]
    """The answer's tokens that are spoken."""
    media: Tensor
    """`[k, D]`: the thinker's rows of sound and pictures, in their order."""
    positions: Tensor
    """float32 `[m, 3]`: of the user's turns, in the talker's count."""
    codes: Tensor
    """int64 `[n, C]`: chosen greedily."""
    first: Tensor
    """`[n, V]`: logits of the first codes."""
    further: Tensor
    """`[n, C - 1, V]`"""
    first_chances: Tensor
    """`[V]`: how likely each first code of the frame `DRAWN_AT` is with the published sampling, after the codes before
    it; `second_chances` likewise, after its first code."""
    second_chances: Tensor


@cache
def answer(name: str) -> Answer:
    with np.load(ANSWERS) as kept:
        mine = [key for key in kept.files if key.startswith(f"{name}: ")]
        return Answer(**read({key.removeprefix(f"{name}: "): kept[key] for key in mine}))


def read(found: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The fields of an answer."""
    return {**{key: torch.from_numpy(one) for key, one in found.items()}, "words": tuple(found["words"].tolist())}


def images(count: int) -> Tensor:
    """The patches of `count` pictures, as the published processor would give them."""
    rows = count * GRID[0] * GRID[1] * GRID[2]
    return weight("pictures", (rows, 3 * 2 * 16 * 16)) * 8


def spectra(count: int) -> Tensor:
    return weight("sounds", (count, 16, SOUND_FRAMES)) * 8
