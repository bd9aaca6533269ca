"""The parts of a published Qwen3-Omni folder, whose tensors share one stem, by the prefixes of their names.

Later exports of Transformers nest the thinker's parts one level deeper (`thinker.model.language_model.*`,
`thinker.model.visual.*`); both layouts are read.
"""

from collections.abc import Callable, Mapping
from functools import partial

STEM = "model"
AUDIO, VISION, THINKER = "audio", "vision", "thinker"
TALKER, PROJECTION, CODE_PREDICTOR, CODE2WAV = "talker", "projection", "code_predictor", "code2wav"
_WORDS = "thinker.model.embed_tokens.weight"
_NESTED: Mapping[str, str] = {
    "thinker.model.language_model.": "thinker.model.",
    "thinker.model.audio_tower.": "thinker.audio_tower.",
    "thinker.model.visual.": "thinker.visual.",
}
"""Prefix of the later layout -> that of the published one."""
PREFIXES: Mapping[str, str] = {
    AUDIO: "thinker.audio_tower.",
    VISION: "thinker.visual.",
    THINKER: "thinker.",
    CODE_PREDICTOR: "talker.code_predictor.",
    PROJECTION: "talker.hidden_projection.",
    TALKER: "talker.",
    CODE2WAV: "code2wav.",
}
"""Part -> the prefix of its tensors in the published layout. A tensor belongs to the first that fits."""
PARTS = tuple(PREFIXES)


def published_name(filed: str) -> str:
    """A tensor's name in the published layout."""
    for nested, plain in _NESTED.items():
        if filed.startswith(nested):
            return plain + filed.removeprefix(nested)
    return filed


def part_of(filed: str) -> str | None:
    """The part that a tensor belongs to, by its name in the files; None for a tensor of no part."""
    name = published_name(filed)
    return next((part for part, prefix in PREFIXES.items() if name.startswith(prefix)), None)


def own_name(part: str) -> Callable[[str], str | None]:
    """`Names.rename` for a part: names in the files -> its module's; None for tensors of other parts."""
    return partial(_own_name, part)


def reads(part: str) -> Callable[[str], bool]:
    """True for tensors of the part, by their names in the files."""
    return partial(_reads, part)


def is_word(filed: str) -> bool:
    """True for the thinker's table of words."""
    return published_name(filed) == _WORDS


def _own_name(part: str, filed: str) -> str | None:
    return published_name(filed).removeprefix(PREFIXES[part]) if part_of(filed) == part else None


def _reads(part: str, filed: str) -> bool:
    return part_of(filed) == part
