"""Qwen3-Omni: the published folder, whose shards hold all parts. Variants without a talker only write."""

from collections.abc import Iterable
from typing import cast

from walkgraph.checkpoints.contents import Contents
from walkgraph.checkpoints.family import Document, Family, Part, Published, Shapes, tokenizer_faults
from walkgraph.checkpoints.fields import Fields, read_optional
from walkgraph.models.qwen3_omni.config import KIND, TITLE, OmniConfig, read_omni
from walkgraph.models.qwen3_omni.hearing.config import read_audio
from walkgraph.models.qwen3_omni.parts import (
    CODE2WAV,
    CODE_PREDICTOR,
    PROJECTION,
    STEM,
    TALKER,
    part_of,
    published_name,
)
from walkgraph.models.qwen3_omni.seeing.config import read_vision
from walkgraph.models.qwen3_omni.tensors import published_tensors

_SPEECH = {
    "nodes": ("projection", "request", "script", "talker", "code_predictor", "code2wav", "audio_out"),
    "states": ("talker", "heard", "spoken", "window", "tails"),
    "walks": ("listen", "speak", "hear_instructions", "say", "vocode"),
    "tasks": ("say",),
    "params": ("speaker", "speech_temperature", "code_temperature", "max_frames"),
}
"""Names of the graph's parts that are for speech alone."""
_SYSTEM = "system_prompt"
_WRITES = "Qwen3-Omni without a talker takes text, sound, pictures and videos, and answers in text."
_POSITIONS = 2**31
_VOICE = "ethan"


def _recognises(contents: Contents) -> bool:
    return contents.config.get("model_type") == KIND


def _parts(contents: Contents) -> list[Part]:
    config = read_omni(contents.folder)
    expected = published_tensors(config, read_audio(contents.folder), read_vision(contents.folder))
    return [Part(STEM, expected, lambda found: _named(found, config))]


def _named(found: Shapes, config: OmniConfig) -> Shapes:
    """Names of the published layout. A model that only writes may have tensors of speech that nothing reads."""
    spare = () if config.talker is not None else (TALKER, PROJECTION, CODE_PREDICTOR, CODE2WAV)
    return {published_name(name): shape for name, shape in found.items() if part_of(name) not in spare}


def _adapt(document: Document, contents: Contents) -> Iterable[str]:
    """Take the longest context, the voices and the defaults of sampling from the configs."""
    config = read_omni(contents.folder)
    text = Fields(contents.config).section("thinker_config").section("text_config")
    generation = Fields(read_optional(contents.folder / "generation_config.json"))
    sampled = generation.flag("do_sample") and generation.values.get("temperature") is not None
    for task in document["tasks"].values():
        params = task["params"]
        if text.values.get("max_position_embeddings") is not None:
            most = text.whole("max_position_embeddings", _POSITIONS)
            context = params["context"]
            context |= {
                "max": most,
                "min": min(context["min"], most),
                "default": min(context["default"], most),
            }
        if sampled and "temperature" in params:
            params["temperature"]["default"] = generation.number("temperature", 2.0, least=0.0)
        if config.talker is not None:
            voices = sorted(config.talker.speakers)
            default = _VOICE if _VOICE in voices else voices[0]
            params["speaker"] |= {"choices": voices, "default": default}
    if config.talker is None:
        _silence(document)
        return ("this checkpoint has no talker, so the graph only writes",)
    return ()


def _silence(document: Document) -> None:
    """Leave out what only speech needs. Such models are asked as they were trained: without a system prompt, unless a
    request has one."""
    document["description"] = _WRITES
    for kind in ("nodes", "states", "walks", "tasks"):
        for name in _SPEECH[kind]:
            document[kind].pop(name, None)
    gone = set(_SPEECH["nodes"])
    for walk in document["walks"].values():
        walk["body"] = [use for use in walk["body"] if not (isinstance(use, str) and use in gone)]
        walk["edges"] = [e for e in walk["edges"] if not (isinstance(e, list) and _touches(cast(list[str], e), gone))]
    document["streams"] = []
    for task in document["tasks"].values():
        task["outputs"], task["steps"] = ["text"], task["steps"]["thinker"]
        for name in _SPEECH["params"]:
            task["params"].pop(name, None)
        if _SYSTEM in task["params"]:
            task["params"][_SYSTEM]["default"] = ""


def _touches(edge: Iterable[str], nodes: set[str]) -> bool:
    return any(end.partition(".")[0] in nodes for end in edge)


def _notes(contents: Contents) -> Iterable[str]:
    return tokenizer_faults(contents, plain=False)


_FILES = (
    "*config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "vocab.json",
    "merges.txt",
    "tokenizer*.json",
)

FAMILY = Family(
    name="qwen3_omni",
    title=TITLE,
    graph="qwen3_omni",
    weights="omni",
    kinds=(KIND, "Qwen3OmniMoeForConditionalGeneration"),
    recognises=_recognises,
    parts=_parts,
    adapt=_adapt,
    notes=_notes,
    published=(
        Published("Qwen/Qwen3-Omni-30B-A3B-Instruct", "Qwen3-Omni-30B-A3B-Instruct", 70_500_000_000, _FILES),
        Published(
            "Qwen/Qwen3-Omni-30B-A3B-Thinking",
            "Qwen3-Omni-30B-A3B-Thinking",
            63_400_000_000,
            _FILES,
            "It thinks before it answers, and only writes.",
        ),
        Published(
            "Qwen/Qwen3-Omni-30B-A3B-Captioner",
            "Qwen3-Omni-30B-A3B-Captioner",
            63_400_000_000,
            _FILES,
            "It describes a sound, and only writes.",
        ),
    ),
)
