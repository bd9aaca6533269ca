"""The parts of Qwen3-Omni that components load, and the sizes of its named configurations."""

from collections.abc import Mapping
from pathlib import Path

from walkgraph.models.qwen3_omni.config import read_omni
from walkgraph.models.qwen3_omni.parts import (
    AUDIO,
    CODE2WAV,
    CODE_PREDICTOR,
    PARTS,
    PROJECTION,
    STEM,
    TALKER,
    THINKER,
    VISION,
    is_word,
    reads,
)
from walkgraph.models.qwen3_omni.vocoder.components import NUMBERS
from walkgraph.placement.sizes import MIB, TOKENIZER, FamilySizes, Part, Shape, token_numbers, token_numbers_of

_WORDS = "words"
"""The thinker's table of words, from which the talker makes its own."""
_LARGE, _TINY = "qwen3-omni-30b-a3b", "qwen3-omni-tiny"


def _caches(folder: Path) -> Mapping[str, int]:
    config = read_omni(folder)
    thinker = config.thinker
    # The row that the talker reads is kept with keys and values.
    told = 0 if thinker.told is None else thinker.llm.width
    found = {"qwen3_omni.thinker": token_numbers_of(thinker.llm) + told}
    if config.talker is not None:
        found["qwen3_omni.talker"] = token_numbers_of(config.talker.stack)
    return found


SIZES: Mapping[str, FamilySizes] = {
    "qwen3_omni": FamilySizes(
        holds=frozenset({TOKENIZER}),
        parts={**{part: Part(stem=STEM, reads=reads(part)) for part in PARTS}, _WORDS: Part(stem=STEM, reads=is_word)},
        components={
            "qwen3_omni.audio_encoder": (AUDIO,),
            "qwen3_omni.vision_encoder": (VISION,),
            "qwen3_omni.video_encoder": (VISION,),
            "qwen3_omni.thinker": (THINKER,),
            "qwen3_omni.talker_projection": (PROJECTION,),
            "qwen3_omni.talker": (TALKER, _WORDS),
            "qwen3_omni.code_predictor": (CODE_PREDICTOR,),
            "qwen3_omni.code2wav": (CODE2WAV,),
        },
        shapes={
            _LARGE: Shape(
                parts={
                    AUDIO: 647_927_168,
                    VISION: 538_631_408,
                    THINKER: 30_532_646_912,
                    PROJECTION: 6_294_528,
                    TALKER: 3_176_731_648,
                    CODE_PREDICTOR: 141_570_304,
                    CODE2WAV: NUMBERS[_LARGE],
                    _WORDS: 311_427_072,
                },
                caches={
                    "qwen3_omni.thinker": token_numbers(48, 4, 128) + 2048,
                    "qwen3_omni.talker": token_numbers(20, 2, 128),
                },
                experts={THINKER: 48 * 128 * 3 * 2048 * 768},
                workspace={
                    "qwen3_omni.audio_encoder": 300 * MIB,
                    "qwen3_omni.vision_encoder": 1000 * MIB,
                    "qwen3_omni.video_encoder": 1000 * MIB,
                    "qwen3_omni.thinker": 1000 * MIB,
                    "qwen3_omni.talker": 250 * MIB,
                    "qwen3_omni.code2wav": 800 * MIB,
                },
            ),
            _TINY: Shape(
                parts={
                    AUDIO: 23_584,
                    VISION: 187_760,
                    THINKER: 347_488,
                    PROJECTION: 4_568,
                    TALKER: 172_392,
                    CODE_PREDICTOR: 127_024,
                    CODE2WAV: NUMBERS[_TINY],
                    _WORDS: 18_432,
                },
                caches={
                    "qwen3_omni.thinker": token_numbers(5, 2, 16) + 64,
                    "qwen3_omni.talker": token_numbers(2, 2, 16),
                },
            ),
        },
        caches_of=_caches,
    ),
}
