"""Plain language models, in the layout of Transformers."""

from collections.abc import Iterable

from walkgraph.checkpoints.contents import Contents
from walkgraph.checkpoints.family import Document, Family, Part, Published, language_model, tokenizer_faults
from walkgraph.checkpoints.fields import Fields, read_optional
from walkgraph.checkpoints.known_templates import PUBLISHED, template_of
from walkgraph.checkpoints.language import ARCHITECTURES, KINDS, kind_of
from walkgraph.errors import InvalidInput
from walkgraph.models.llm.config import read_llm

_CHAT, _CHAT_WALK, _CHAT_PROMPT = "chat", "prefill_chat", "chat_prompt"
"""The graph's task for conversations, the Walk that reads them, and its node with the chat template."""
_POSITIONS = 2**31
_SAMPLING = {"temperature": (0.0, 2.0), "top_p": (0.0, 1.0), "repetition_penalty": (1.0, 10.0)}
"""Keys of `generation_config.json` that are parameters of the task -> their bounds."""


def _recognises(contents: Contents) -> bool:
    return kind_of(Fields(contents.config)) is not None


def _parts(contents: Contents) -> list[Part]:
    return [language_model(read_llm(contents.folder).llm)]


def _adapt(document: Document, contents: Contents) -> Iterable[str]:
    """Take the longest context from the config, the defaults of sampling from `generation_config.json`, and the chat
    template from the tokenizer's files."""
    for task in document["tasks"].values():
        _bound(task["params"], Fields(contents.config))
        _sampling(task["params"], Fields(read_optional(contents.folder / "generation_config.json")))
    try:
        template = template_of(contents.folder, PUBLISHED)
    except InvalidInput as error:
        del document["tasks"][_CHAT], document["walks"][_CHAT_WALK], document["nodes"][_CHAT_PROMPT]
        reason, _, _ = str(error).partition(";")
        return (f"{reason}, so the graph continues texts and has no task `{_CHAT}`",)
    document["nodes"][_CHAT_PROMPT]["params"]["template"] = template.name
    return ()


def _bound(params: Document, config: Fields) -> None:
    if config.values.get("max_position_embeddings") is not None:
        most = config.whole("max_position_embeddings", _POSITIONS)
        for name in ("max_prompt", "max_tokens"):
            params[name] |= {"max": most, "default": min(params[name]["default"], most)}


def _sampling(params: Document, generation: Fields) -> None:
    for key, (least, most) in _SAMPLING.items():
        if generation.values.get(key) is not None:
            params[key]["default"] = generation.number(key, most, least=least)
    if generation.values.get("top_k") is not None:
        params["top_k"]["default"] = generation.whole("top_k", params["top_k"]["max"], least=0)
    if not generation.flag("do_sample", default=True):
        params["temperature"]["default"] = 0.0


def _notes(contents: Contents) -> Iterable[str]:
    return tokenizer_faults(contents, plain=False)


_FILES = ("config.json", "model*.safetensors", "model.safetensors.index.json", "tokenizer*.json", "chat_template*")

FAMILY = Family(
    name="llm",
    title="Language model",
    graph="llm",
    weights="llm",
    kinds=(*KINDS, *ARCHITECTURES),
    recognises=_recognises,
    general=True,
    parts=_parts,
    adapt=_adapt,
    notes=_notes,
    published=(
        Published("Qwen/Qwen3-0.6B", "Qwen3-0.6B", 1_500_000_000, _FILES, "Small enough for a laptop."),
        Published("Qwen/Qwen3-8B", "Qwen3-8B", 16_400_000_000, _FILES),
        Published("Qwen/Qwen3-30B-A3B", "Qwen3-30B-A3B", 61_100_000_000, _FILES, "With experts."),
        Published(
            "meta-llama/Llama-3.1-8B-Instruct",
            "Llama-3.1-8B-Instruct",
            16_100_000_000,
            _FILES,
            "Its licence has to be accepted before the download.",
        ),
        Published("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-Instruct-v0.3", 14_500_000_000, _FILES),
    ),
)
